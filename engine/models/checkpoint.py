"""The weights of a checkpoint: what is seen of its files before one is read, and whether the network got them all."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from engine.errors import ModelNotFound, UnsupportedModel
from engine.models.fp8 import CODES, FP8
from engine.models.gguf.header import is_gguf
from engine.models.gguf.reading import check_weights
from engine.models.load_errors import ANEW, load_errors_as, refuse_pointers
from engine.models.quantised import Published

WEIGHT_NAMES = (".weight", ".bias")
# Tensors that methods read for themselves; they may lie among the model's own weights.
BEACON_TENSORS = re.compile(r".*beacon_.*")
RETAINING_TENSORS = re.compile(r"model\.layers\.(\d+)\.self_attn\.fc[12]\.weight")
NUMBERS = ("F64", "F32", "F16", "BF16")  # safetensors' names of what weights may be in, where no config says otherwise


def check_files(folder: Path, config: PretrainedConfig) -> None:
    """Refuse weight files that are missing or damaged; only their headers are read. folder: or a GGUF file.

    Raises:
        ModelNotFound: there are none, or one is a pointer, empty or cut short; weights in FP8 without their scales.
        UnsupportedModel: weights in whole numbers, or other codes, without a word on what they stand for.
    """
    if is_gguf(folder):
        check_weights(folder, config)
        return
    paths = named_files(folder)
    refuse_pointers(paths)
    fp8 = FP8.of(config)
    stored: dict[str, tuple[str, tuple[int, ...]]] = {}
    known = (*NUMBERS, CODES) if fp8 else NUMBERS
    for path in paths:
        with load_errors_as(ModelNotFound, f"{path} is damaged, fetch it anew"), safe_open(path, "pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
            kinds = {name: (each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
        coded = [name for name, (kind, _) in kinds.items() if name.endswith(WEIGHT_NAMES) and kind not in known]
        if coded and Published.of(config) is None:
            raise UnsupportedModel(
                f"{coded[0]} in {path} is stored as {kinds[coded[0]][0]}, and config.json has no quantization_config "
                f"that says what its codes stand for: choose a checkpoint in bfloat16, float16 or float32."
            )
        stored |= kinds
    if fp8:
        fp8.check(folder, stored)


def named_files(folder: Path) -> list[Path]:
    """The file of a checkpoint, or all that its index names.

    Raises:
        ModelNotFound: there is neither, or an index that cannot be read or names what is not there.
    """
    single, index = folder / SAFE_WEIGHTS_NAME, folder / SAFE_WEIGHTS_INDEX_NAME
    if single.is_file():
        return [single]
    if not index.is_file():
        raise ModelNotFound(
            f"There are no weights at '{folder}': it needs {single.name}, or {index.name} and the files that it names."
        )
    with load_errors_as(ModelNotFound, f"{index} is damaged, fetch it anew"):
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        paths = [folder / name for name in sorted(names)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelNotFound(
            f"The weights at '{folder}' are incomplete: fetch {', '.join(missing)}, which {index.name} names."
        )
    return paths


def check_loaded(
    network: PreTrainedModel, source: str | Path, config: PretrainedConfig, info: Mapping[str, Any]
) -> None:
    """Refuse a network that did not get all of its weights, or a layer of which the checkpoint holds more.

    Weights of layers that the network does not have are nobody's loss. config: as published; info: transformers'
    `output_loading_info`.

    Raises:
        ModelNotFound: naming the first tensor, and how many others.
    """
    if info["missing_keys"]:
        raise ModelNotFound(f"The weights at '{source}' lack {_listed(info['missing_keys'])}: {ANEW}.")
    if info["mismatched_keys"]:
        name, found, wanted = min(info["mismatched_keys"], key=lambda each: str(each[0]))
        raise ModelNotFound(
            f"{name} at '{source}' has the shape {list(found)}, and its config.json asks for {list(wanted)}: {ANEW}."
        )
    modules = dict(network.named_modules())
    strange = [name for name in info["unexpected_keys"] if _has_place(modules, name) and not _is_sidecar(name)]
    if strange and Published.of(config) is None:
        raise ModelNotFound(
            f"The weights at '{source}' hold {_listed(strange)}, for which a {config.model_type} has no place: {ANEW}."
        )


def _has_place(modules: Mapping[str, nn.Module], name: str) -> bool:
    """Whether a tensor would be a weight of a layer that the network has: model.layers.0.self_attn.q_proj.bias.

    Masks, scales of a cache and the like are none. modules: the network's, by their paths.
    """
    path, _, kind = name.rpartition(".")
    if f".{kind}" not in WEIGHT_NAMES:
        return False
    if path in modules:
        return next(modules[path].parameters(recurse=False), None) is not None
    return any(
        path.startswith(f"{each}.")
        for each, module in modules.items()
        if each and not isinstance(module, (PreTrainedModel, nn.ModuleList))
    )


def _is_sidecar(name: str) -> bool:
    """Return whether a tensor belongs to beacons or retaining heads."""
    return any(pattern.fullmatch(name) for pattern in (BEACON_TENSORS, RETAINING_TENSORS))


def _listed(names: Collection[str]) -> str:
    """The first name by the alphabet, and how many there are besides."""
    rest = len(names) - 1
    return min(names) + (f" and {rest:,} other {'tensor' if rest == 1 else 'tensors'}" if rest else "")
