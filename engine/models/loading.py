"""Load a model's weights into a network on its device.

Weights come from safetensors shards one tensor at a time, straight into the network in the dtype that is wanted, or
quantised as they arrive (`quantizers.py`). The whole model is never held twice. Weights published in FP8 become numbers
of that dtype as they are read (`fp8.py`).
"""

from __future__ import annotations

import copy
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from engine.errors import ModelNotFound, OutOfMemory, SettingsError
from engine.memory_usage import free_bytes
from engine.models.architectures import architecture_of
from engine.models.building import LOADING, outline
from engine.models.checkpoint import check_files, check_loaded, named_files
from engine.models.four_bits import check_device
from engine.models.fp8 import FP8
from engine.models.gguf.header import is_gguf
from engine.models.gguf.kept import Kept
from engine.models.gguf.model_file import generation_of, kept_weights, weights_of
from engine.models.hub import fetched
from engine.models.integers import INTEGERS, in_integers
from engine.models.load_errors import load_errors_as
from engine.models.quantised import Published
from engine.models.quantizers import KeptInFile, PublishedMXFP4, quantization_for, unpack_as_computed
from engine.models.sizes import AS_STORED, CPU, ModelSizes, model_sizes

# In checkpoints of vision models: the names of tensors of the text part, and their names in the text model.
PART_FOR_TEXT = {r"^language_model\.(.+)": r"\1", r"^model\.language_model\.(.+)": r"model.\1"}


def load_network(
    source: str | Path, config: PretrainedConfig, place: torch.device, dtype: torch.dtype, quantize: str
) -> PreTrainedModel:
    """Return the network with its weights, on its device.

    Raises:
        SettingsError: bitsandbytes is missing, or this model cannot be quantised so on this device.
        OutOfMemory: the weights do not fit the memory that is free.
        ModelNotFound: weights that are missing, damaged or another model's.
        UnsupportedModel: weights in codes that the config does not explain, or published in a quantised form whose
            packages are not installed.
    """
    published, fp8, sizes = Published.of(config), FP8.of(config), model_sizes(config, dtype, place)
    sizes.check(quantize)
    if quantize == "int4":
        check_device(place)
    if published is not None:
        published.require_packages()
    bits_and_bytes = quantize not in ("none", AS_STORED, *INTEGERS)
    if bits_and_bytes and importlib.util.find_spec("bitsandbytes") is None:
        raise SettingsError(
            f"--quantize {quantize} needs the package bitsandbytes: .venv/bin/pip install -e '.[quantized]', in "
            "Stockpot's folder, installs it."
        )
    gguf = is_gguf(source)
    in_file = quantize == AS_STORED
    as_stored = fp8 is None and not gguf and getattr(config, "dtype", None) in (None, dtype)
    _require_room(source, sizes, quantize, place, as_stored)
    options: dict[str, Any] = {"config": config}
    if published is not None and published.experts:
        options = {"config": _as_plain(config), "quantization_config": PublishedMXFP4(place)}
    elif published is not None:
        options["device_map"] = {"": place}  # its package prepares codes for the device that it loads them to
    elif bits_and_bytes:
        options["quantization_config"] = quantization_for(quantize, place, dtype)
    if Path(source).is_dir():
        check_files(Path(source), config)
    kind: Any = AutoModelForCausalLM
    origin: str | Path | None = source
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # standard error belongs to the program
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # `check_loaded` tells instead
    with LOADING, load_errors_as(ModelNotFound, f"The weights at '{source}' cannot be loaded"):
        if fp8 is not None or gguf:
            # To take weights from a dict, transformers needs the class of the model and no path.
            kind, origin = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], None
        if fp8 is not None:
            options |= _unscaled(source, config, fp8, dtype)
        stay: dict[str, Kept] = {}
        if gguf:
            planned = outline(config)
            weights = weights_of(source, config, dtype, planned)
            if in_file or quantize == "int4":
                stay = kept_weights(source, config, planned)
            if in_file:
                options["quantization_config"] = KeptInFile(stay, dtype)
                weights = {name: each for name, each in weights.items() if name.removesuffix(".weight") not in stay}
            options |= {"state_dict": weights, "generation_config": generation_of(source)}
        loaded: Any = kind.from_pretrained(
            origin,
            key_mapping=PART_FOR_TEXT,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    network, info = loaded
    assert isinstance(network, PreTrainedModel)
    check_loaded(network, source, config, info)
    network.config.name_or_path = str(source)
    if published is not None and published.experts:
        network.config.quantization_config = config.quantization_config
    if in_file:
        del network.config.quantization_config
    if quantize in INTEGERS:  # before the rest goes to a GPU, which need not hold the plain layers
        left = architecture_of(config).unquantised
        head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
        in_integers(network, quantize, place, head, left, stay)
    if not bits_and_bytes and published is None:
        network.to(place)  # type: ignore[arg-type]  # its decorator hides its parameters
    unpack_as_computed(network)
    return network


def _require_room(source: str | Path, sizes: ModelSizes, quantize: str, place: torch.device, as_stored: bool) -> None:
    """Refuse weights that cannot fit in free memory, and name a quantisation that would.

    On their way to a GPU, plain weights go through host memory if their dtype changes, and so do those that will be
    integers; else they are mapped from their files. Weights that bitsandbytes quantises go tensor by tensor, the
    experts of a layer together.

    as_stored: whether plain weights keep their dtype.
    """

    def needed(each: str, device: torch.device) -> int:
        return sizes.loading_bytes(each) if device == place else sizes.weight_bytes("none")

    def too_small(each: str) -> torch.device | None:
        straight = as_stored or (sizes.packed(each) and each not in INTEGERS) or place.type == "cpu"
        on_the_way = (place,) if straight else (place, CPU)
        return next((device for device in on_the_way if needed(each, device) > free_bytes(device)), None)

    device = too_small(quantize)
    if device is None:
        return
    fitting = [each for each in sizes.quantizations if too_small(each) is None]
    advice = f"--quantize {fitting[0]} would fit" if fitting else "choose a smaller model, or close other programs"
    wanted, free = needed(quantize, device), free_bytes(device)
    raise OutOfMemory(
        f"The weights of '{source}' need {wanted / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on {device}: {advice}."
    )


def _unscaled(source: str | Path, config: PretrainedConfig, fp8: FP8, dtype: torch.dtype) -> dict[str, Any]:
    """Return the arguments that make transformers load a checkpoint in FP8 as a plain one.

    Raises:
        ModelNotFound, UnsupportedModel: see `check_files`; only here for a hub id, which is fetched first.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = fetched(str(source))
        check_files(folder, config)
    options: dict[str, Any] = {"config": _as_plain(config), "state_dict": fp8.weights(named_files(folder), dtype)}
    with suppress(OSError):  # transformers makes one from config.json if there is none
        options["generation_config"] = GenerationConfig.from_pretrained(source)
    return options


def _as_plain(config: PretrainedConfig) -> PretrainedConfig:
    """Return the configuration of the same model without its quantisation."""
    plain = copy.deepcopy(config)
    del plain.quantization_config
    return plain
