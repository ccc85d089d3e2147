"""From a folder or a hub id to a network on its device, refusing whatever cannot be used before a weight is read.

Weights come from safetensors shards one tensor at a time, straight into the network in the dtype that is wanted, or
quantised as they arrive by bitsandbytes (8bit: LLM.int8(), nf4: QLoRA's 4 bits with double quantisation); the whole
model is never there twice. What was published in FP8 is in that dtype once it is read (`fp8.py`). Of a mixture the
experts of a layer arrive together, and are packed one by one (`experts.py`). transformers wants the package accelerate
for bitsandbytes, which spreads models over several devices; here there is one, so the quantizers below leave that
demand out.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer
from transformers.quantizers.quantizer_bnb_8bit import Bnb8BitHfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name
from transformers.utils import logging as transformers_logging
from transformers.utils.quantization_config import QuantizationConfigMixin

from engine.errors import ModelNotFound, OutOfMemory, SettingsError, UnsupportedModel
from engine.measure import free_bytes
from engine.models import architectures
from engine.models.building import LOADING
from engine.models.checkpoint import check_files, check_loaded, named_files
from engine.models.experts import MXFP4, PACKINGS, PackedExperts, pack_experts
from engine.models.fp8 import FP8
from engine.models.gguf.header import is_gguf
from engine.models.gguf.reading import config_of, generation_of, weights_of
from engine.models.hub import fetched, hub_is_silent
from engine.models.integers import INTEGERS, in_integers
from engine.models.load_errors import cause_of, load_errors_as
from engine.models.quantised import OWN, Published
from engine.models.sizes import CPU, NO_MODEL, ModelSizes, model_sizes

# In checkpoints of models for pictures as well, the names of what is the part for text, and what they are there.
PART_FOR_TEXT = {r"^language_model\.(.+)": r"\1", r"^model\.language_model\.(.+)": r"model.\1"}

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # that STOCKPOT_DTYPE may name
WIDE = 512  # hidden size from which products in bfloat16 save a CPU more than narrower numbers cost


def device_named(name: str) -> torch.device:
    """The device of that name; auto is the GPU if there is one.

    Raises:
        SettingsError: this machine does not have it.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise SettingsError(f"There is no device '{name}': choose auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("No CUDA device is available on this machine: choose cpu, or auto.")
    return torch.device(name)


def dtype_on(place: torch.device, config: PretrainedConfig) -> torch.dtype:
    """Return the dtype that a model computes in, unless STOCKPOT_DTYPE names it.

    On a GPU it is that of the published weights, bfloat16 for weights in float32. On a CPU it is bfloat16 where the
    processor multiplies it fast and the model is wide enough to gain from that, else float32.

    Raises:
        SettingsError: STOCKPOT_DTYPE names no dtype that models compute in.
    """
    wanted = os.environ.get("STOCKPOT_DTYPE", "auto")
    if wanted not in ("auto", *DTYPES):
        raise SettingsError(f"STOCKPOT_DTYPE is one of auto, {', '.join(DTYPES)}, not '{wanted}'.")
    if wanted != "auto":
        return DTYPES[wanted]
    if place.type == "cpu":
        wide = int(getattr(config, "hidden_size", 0)) >= WIDE
        return torch.bfloat16 if wide and fast_in_bfloat16(place) else torch.float32
    own = config.dtype if isinstance(config.dtype, torch.dtype) else None
    return own if own in (torch.bfloat16, torch.float16) else torch.bfloat16


def fast_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device is a CPU that multiplies matrices in bfloat16 much faster than in float32."""
    able = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def read_config(source: str | Path) -> PretrainedConfig:
    """The configuration of a model, if the engine can use it. Of a folder, config.json is enough; of a GGUF file, its
    header.

    Of some models for pictures as well it is that of the part for text.

    Raises:
        ModelNotFound: there is none, or its config.json cannot be read.
        UnsupportedModel: sizes that go with no model, another vision model, one without a language model's head, an
            architecture or a way of quantising that is not known, or not of this architecture.
    """
    if is_gguf(source):
        config = config_of(source)
        architectures.check(config)
        return config
    facts = _facts(source)
    if not facts.get("model_type"):
        raise ModelNotFound(f"There is no model at '{source}': there is no config.json that names its model_type.")
    kind = str(facts["model_type"])
    part = kind in architectures.WITH_PICTURES
    if ("vision_config" in facts or "audio_config" in facts) and not part:
        known = ", ".join(sorted(architectures.WITH_PICTURES))
        raise UnsupportedModel(
            f"'{kind}' is a model for pictures or sound as well as text, which cannot be used: choose a text model, or "
            f"one of these, whose part for text can: {known}."
        )
    heads = facts.get("architectures") or []
    if kind in architectures.SUPPORTED and heads and not any(str(head).endswith("ForCausalLM") for head in heads):
        raise UnsupportedModel(f"{heads[0]} does not generate text: choose a model that is a ...ForCausalLM.")
    if not part:
        architectures.check_kind(kind)
    with load_errors_as(UnsupportedModel, f"The config.json of '{source}' {NO_MODEL}"):
        whole = AutoConfig.from_pretrained(source, trust_remote_code=False)
        config = whole.get_text_config(decoder=True)
        assert isinstance(config, PretrainedConfig)
        architectures.check(config)
        if part and facts.get("tie_word_embeddings"):  # some say it of the whole alone
            config.tie_word_embeddings = True
        config.name_or_path = str(source)
    if getattr(whole, "quantization_config", None) is None:  # it may be said of the part alone
        whole = config
    published = Published.of(whole)
    if FP8.of(whole) is not None:
        config.quantization_config = whole.quantization_config
    if published is None:
        return config
    taken_apart = kind in architectures.MIXTURES or kind in architectures.LATENT
    if kind not in architectures.MXFP4 if published.experts else part or taken_apart:
        raise UnsupportedModel(
            f"Its weights were published quantised as '{published.method}', which is not supported of '{kind}': "
            f"choose a plain checkpoint, and --quantize nf4 or 8bit."
        )
    return config


def _facts(source: str | Path) -> dict[str, Any]:
    """What config.json says.

    Raises:
        ModelNotFound: there is none, or it cannot be read.
    """
    silent = not Path(source).is_dir() and hub_is_silent(str(source))
    path = Path(source) / "config.json"
    try:
        facts, _ = PretrainedConfig.get_config_dict(source)
    except Exception as error:
        if path.is_file():
            raise ModelNotFound(f"{path} cannot be read: fetch it anew ({cause_of(error)}).") from error
        if silent:
            raise ModelNotFound(
                f"'{source}' is not on this machine, and the hub does not answer: give a folder with config.json, "
                "or connect to the network and try again."
            ) from error
        raise ModelNotFound(f"There is no model at '{source}': give a folder with config.json, or a hub id.") from error
    if not isinstance(facts, dict):
        raise ModelNotFound(f"{path} cannot be read: fetch it anew (it holds no object).")
    return facts


def load_network(
    source: str | Path, config: PretrainedConfig, place: torch.device, dtype: torch.dtype, quantize: str
) -> PreTrainedModel:
    """The network with its weights, on its device.

    Raises:
        SettingsError: quantising without bitsandbytes, what is quantised already, or where it cannot be.
        OutOfMemory: the weights do not fit the memory that is free.
        ModelNotFound: weights that are missing, damaged or another model's.
        UnsupportedModel: weights in codes without a word on what they stand for, or published quantised in a way whose
            packages are not installed.
    """
    published, fp8, sizes = Published.of(config), FP8.of(config), model_sizes(config, dtype, place)
    sizes.check(quantize)
    if published is not None:
        published.require_packages()
    bits_and_bytes = quantize not in ("none", *INTEGERS)
    if bits_and_bytes and importlib.util.find_spec("bitsandbytes") is None:
        raise SettingsError(
            f"--quantize {quantize} needs the package bitsandbytes: .venv/bin/pip install -e '.[quantized]', in "
            "Stockpot's folder, installs it."
        )
    gguf = is_gguf(source)
    as_stored = fp8 is None and not gguf and getattr(config, "dtype", None) in (None, dtype)
    _require_room(source, sizes, quantize, place, as_stored)
    options: dict[str, Any] = {"config": config}
    if published is not None and published.experts:
        options = {"config": _as_plain(config), "quantization_config": _MXFP4(place)}
    elif published is not None:
        options["device_map"] = {"": place}  # its codes are unpacked for the device that they are loaded to
    elif bits_and_bytes:
        options["quantization_config"] = _quantization(quantize, place, dtype)
    if Path(source).is_dir() or gguf:
        check_files(Path(source), config)
    kind: Any = AutoModelForCausalLM
    origin: str | Path | None = source
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # standard error is the program's own
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # what it would report is refused below
    with LOADING, load_errors_as(ModelNotFound, f"The weights at '{source}' cannot be loaded"):
        if fp8 is not None or gguf:
            # Weights are handed over, for which transformers wants the class itself and no place where they could lie.
            kind, origin = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], None
        if fp8 is not None:
            options |= _unscaled(source, config, fp8, dtype)
        if gguf:
            options |= {"state_dict": weights_of(source, config, dtype), "generation_config": generation_of(source)}
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
    if not bits_and_bytes and published is None:
        network.to(place)  # type: ignore[arg-type]  # its decorator hides what it takes
    if quantize in INTEGERS:
        kept = architectures.KEPT.get(config.model_type, ())
        in_integers(network, quantize, network.get_output_embeddings(), kept)  # type: ignore[no-untyped-call]
    unpack_as_computed(network)
    return network


def quieten_bitsandbytes() -> None:
    """It says at every layer and pass that 8-bit products take their inputs in float16, and on some CPUs that it misses
    the package `kernels`, whose only use would be what `unpack_as_computed` turns off.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def unpack_as_computed(network: nn.Module) -> None:
    """Have 4-bit layers multiply in what the activations are computed in, on every CPU.

    At its first pass on a CPU with AVX-512 BF16, bitsandbytes would pack a layer anew for products in bfloat16, beside
    scales that take more bytes than planned, and stop at one whose rows are no multiple of 32.
    """
    layer: Any
    for layer in network.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def _require_room(source: str | Path, sizes: ModelSizes, quantize: str, place: torch.device, as_stored: bool) -> None:
    """Refuse weights that cannot fit, naming how they would.

    Plain weights on their way to a GPU go through the host's memory if their type changes, else they are mapped from
    their files; what is quantised goes there tensor by tensor, the experts of a layer together. as_stored: whether
    plain ones keep their type.
    """

    def too_small(each: str) -> torch.device | None:
        straight = as_stored or sizes.packed(each) or place.type == "cpu"
        on_the_way = (place,) if straight else (place, CPU)
        return next((device for device in on_the_way if sizes.loading_bytes(each) > free_bytes(device)), None)

    device = too_small(quantize)
    if device is None:
        return
    fitting = [each for each in sizes.quantizations if too_small(each) is None]
    advice = f"--quantize {fitting[0]} would fit" if fitting else "choose a smaller model, or close other programs"
    needed, free = sizes.loading_bytes(quantize), free_bytes(device)
    raise OutOfMemory(
        f"The weights of '{source}' need {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on {device}: {advice}."
    )


def _unscaled(source: str | Path, config: PretrainedConfig, fp8: FP8, dtype: torch.dtype) -> dict[str, Any]:
    """What transformers takes of a checkpoint in FP8, as if it were a plain one.

    Raises:
        ModelNotFound, UnsupportedModel: of a hub id, see `check_files`.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = fetched(str(source))
        check_files(folder, config)
    options: dict[str, Any] = {"config": _as_plain(config), "state_dict": fp8.weights(named_files(folder), dtype)}
    with suppress(OSError):  # of models that have none it is made from config.json
        options["generation_config"] = GenerationConfig.from_pretrained(source)
    return options


def _as_plain(config: PretrainedConfig) -> PretrainedConfig:
    """The configuration of the same model, not quantised."""
    plain = copy.deepcopy(config)
    del plain.quantization_config
    return plain


def _quantization(quantize: str, place: torch.device, dtype: torch.dtype) -> BitsAndBytesConfig:
    quieten_bitsandbytes()
    return _EightBit(place) if quantize == "8bit" else _NF4(place, dtype)


@register_quantization_config(f"{OWN}8bit")
class _EightBit(BitsAndBytesConfig):
    """Eight bits a weight, one scale a row."""

    def __init__(self, place: torch.device) -> None:
        super().__init__(load_in_8bit=True)  # type: ignore[no-untyped-call]
        self.quant_method: Any = f"{OWN}8bit"
        self.place = str(place)


@register_quantization_config(f"{OWN}nf4")
class _NF4(BitsAndBytesConfig):
    """Four bits a weight, unpacked to what the activations are computed in."""

    def __init__(self, place: torch.device, dtype: torch.dtype) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        self.quant_method: Any = f"{OWN}nf4"
        self.place = str(place)


@register_quantization_config(f"{OWN}mxfp4")
class _MXFP4(QuantizationConfigMixin):
    """Experts as they were published; transformers' own way with them wants a package that has our kernels' name."""

    def __init__(self, place: torch.device) -> None:
        super().__init__(quant_method=f"{OWN}mxfp4")  # type: ignore[arg-type]
        self.place = str(place)


class _OnePlace:
    """All of a model on one device."""

    quantization_config: Any

    def update_device_map(self, device_map: object) -> dict[str, torch.device]:
        """That of the configuration."""
        return {"": torch.device(self.quantization_config.place)}


@register_quantizer(f"{OWN}mxfp4")
class _MXFP4Quantizer(_OnePlace, HfQuantizer):
    """Puts in place what has room for the tensors of the checkpoint; they are loaded as they are."""

    def is_serializable(self) -> bool:
        """It is never saved."""
        return False

    @property
    def is_trainable(self) -> bool:
        """Nor trained."""
        return False

    def preprocess_model(self, model: PreTrainedModel, dtype: Any = None, **kwargs: Any) -> None:
        """For experts alone."""
        super().preprocess_model(model, dtype, **kwargs)
        pack_experts(model, MXFP4)


class _PackExperts(ConversionOps):
    """Of a layer's weights as they arrive: experts are packed, and linear layers left to bitsandbytes."""

    def __init__(self, linear: ConversionOps) -> None:
        self.linear = linear

    def convert(self, input_dict: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Tensors by their paths in the network. Experts of another number or size are left out, as if missing."""
        packed = {}
        for path in list(input_dict):
            module, name = get_module_from_name(kwargs["model"], path)
            if isinstance(module, PackedExperts):
                found = input_dict.pop(path)
                weights = found[0] if isinstance(found, list) else found
                if module.takes(name, weights):
                    packed[path] = module.pack(name, weights)
        return packed | self.linear.convert(input_dict, *args, **kwargs)


class _Ours(_OnePlace):
    """Weights are quantised where they are to stay, experts too."""

    quantization: str

    def validate_environment(self, *args: object, **kwargs: object) -> None:
        """Bitsandbytes has been looked for already."""

    def get_modules_to_not_convert(self, model: PreTrainedModel, *args: Any, **kwargs: Any) -> list[str]:
        """The head, and what the architecture keeps."""
        own: list[str] = super().get_modules_to_not_convert(model, *args, **kwargs)  # type: ignore[misc]
        return [*own, *architectures.KEPT.get(model.config.model_type, ())]

    def preprocess_model(self, model: PreTrainedModel, dtype: Any = None, **kwargs: Any) -> None:
        """Put in place what the weights are to be held by."""
        super().preprocess_model(model, dtype, **kwargs)  # type: ignore[misc]
        pack_experts(model, PACKINGS[self.quantization])

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **kwargs: Any) -> bool:
        """Whether it is a weight of experts or of one of bitsandbytes' layers."""
        module, name = get_module_from_name(model, param_name)
        ours = isinstance(module, PackedExperts) and name in module.stacks
        return ours or super().param_needs_quantization(model, param_name, **kwargs)  # type: ignore[misc]

    def get_quantize_ops(self) -> ConversionOps:
        """What makes codes of a weight."""
        return _PackExperts(super().get_quantize_ops())  # type: ignore[misc]


@register_quantizer(f"{OWN}8bit")
class _EightBitQuantizer(_Ours, Bnb8BitHfQuantizer):
    """LLM.int8() (https://arxiv.org/abs/2208.07339)."""

    quantization = "8bit"


@register_quantizer(f"{OWN}nf4")
class _NF4Quantizer(_Ours, Bnb4BitHfQuantizer):
    """QLoRA's NormalFloat (https://arxiv.org/abs/2305.14314)."""

    quantization = "nf4"
