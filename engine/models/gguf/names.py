"""Map the weights of a network to the tensors of a GGUF file, and convert those whose layout differs."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from engine.errors import ModelNotFound
from engine.models.gguf.config_facts import architecture_in
from engine.models.gguf.header import BLOCK, Header
from engine.models.gguf.layouts import rules_of
from engine.models.gguf.values import size
from engine.models.gguf.weights import Place
from engine.models.load_errors import ANEW

NOT_WEIGHTS = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)  # part of the configuration
EYES = ("v.", "mm.", "a.")  # beginnings of the names of parts for pictures and sound, which are left out
AHEAD = "mtp."  # that of layers which predict several tokens at once, in the models of Ollama
LAYER = re.compile(r"^model\.layers\.(\d+)\.(.+)$")
EXPERTS = re.compile(r"^(.+\.)?experts\.(gate_up|down)_proj(_bias)?$")


def places_of(header: Header, config: PretrainedConfig, network: PreTrainedModel) -> dict[str, Place]:
    """Return the place of each weight of the network in a file, by name. network: the outline of the configuration.

    Raises:
        ModelNotFound: a tensor is missing, has another shape, or is none of this network.
    """
    tied = set(network._tied_weights_keys or {}) if config.tie_word_embeddings else set()
    named = _Namer(header, config)
    places = {name: named.place(name, weight) for name, weight in network.state_dict().items() if name not in tied}
    _check(header, config, places)
    return places


class _Namer:
    """Finds the places of weights by their names."""

    def __init__(self, header: Header, config: Any) -> None:
        form = architecture_in(header).gguf
        assert form is not None
        arch = next(number for number, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
        self.form, self.header, self.config = form, header, config
        self.names = get_tensor_name_map(arch, config.num_hidden_layers)
        self.rules = rules_of(config, header)

    def place(self, name: str, weight: Tensor) -> Place:
        """Return the place of a weight of the network."""
        shape, layer = tuple(weight.shape), LAYER.match(name)
        block, rest = (f"blk.{layer[1]}.", layer[2]) if layer else ("", name)
        if rule := self.rules.get(rest):
            sources = tuple(self._stored(block + source) for source in rule.sources)
            return Place(sources, shape, lambda whole: rule.views(whole, self.config), rule.undo)
        if experts := EXPERTS.match(rest):
            return self._experts(block, experts[2], "bias" if experts[3] else "weight", shape)
        path, _, end = name.rpartition(".")
        last = path.rpartition(".")[2]
        stored = self.names.get_name(path) or ("output" if path == "lm_head" else block + rest)
        source = (self._stored(f"{stored}.{end}"),)
        if self.form.permuted and last in ("q_proj", "k_proj"):
            heads = self.config.num_attention_heads if last == "q_proj" else self.config.num_key_value_heads
            return Place(source, shape, lambda whole: (_pairs(whole, heads),))
        offset = self.form.norm_offset if last.endswith("norm") else 0.0
        return Place(source, shape, undo=(lambda numbers: numbers - offset) if offset else None)

    def _experts(self, block: str, which: str, end: str, shape: tuple[int, ...]) -> Place:
        """Return the place of a layer's stack of experts."""
        interleaved, joined = self.form.interleaved_experts, f"{block}ffn_gate_up_exps.{end}"
        if which == "down":
            turned = interleaved and end == "weight"
            views = (lambda whole: (whole.transpose(1, 2),)) if turned else (lambda whole: (whole,))
            return Place((f"{block}ffn_down_exps.{end}",), shape, views)
        if joined in self.header.tensors:
            return Place((joined,), shape)
        sources = (f"{block}ffn_gate_exps.{end}", f"{block}ffn_up_exps.{end}")
        return Place(sources, shape, _interleaved if interleaved else _halves)

    def _stored(self, name: str) -> str:
        """Return the name of a tensor as the file has it: some leave the end out."""
        bare = name.rpartition(".")[0]
        return bare if name not in self.header.tensors and bare in self.header.tensors else name


def _pairs(whole: Tensor, heads: int) -> Tensor:
    """Reorder rows as in files where RoPE pairs neighbours: the two halves of each head alternate."""
    return whole.view(heads, 2, -1, *whole.shape[1:]).transpose(1, 2)


def _halves(whole: Tensor) -> tuple[Tensor, ...]:
    """Split stacks into gate [E, :I, H] and up projection [E, I:, H]."""
    return whole.chunk(2, dim=1)


def _interleaved(whole: Tensor) -> tuple[Tensor, ...]:
    """Split transposed stacks [E, H, 2 I], where gate and up projection alternate, or their biases [E, 2 I]."""
    rows = whole.transpose(1, 2) if whole.dim() == 3 else whole
    return rows[:, ::2], rows[:, 1::2]


def _check(header: Header, config: PretrainedConfig, places: dict[str, Place]) -> None:
    wanted = {source for place in places.values() for source in place.sources}
    if missing := sorted(wanted - header.tensors.keys()):
        raise ModelNotFound(f"{header.path} lacks {missing[0]}: {ANEW}.")
    if strange := sorted(_strange(header, config, wanted)):
        raise ModelNotFound(
            f"{header.path} holds {strange[0]}, for which a {config.model_type} has no place: choose another file."
        )
    for name, place in places.items():
        numbers: Counter[str] = Counter()
        for source, view in zip(place.sources, place.views(torch.empty(place.shape, device="meta")), strict=True):
            numbers[source] += view.numel()
            if _columns(header.tensors[source].shape) not in accumulate(reversed(view.shape), mul):
                raise _misfit(header, config, name, place, source)
        for source, many in numbers.items():
            if many != math.prod(header.tensors[source].shape):
                raise _misfit(header, config, name, place, source)


def _strange(header: Header, config: Any, wanted: set[str]) -> set[str]:
    """Return the names of tensors that no part of the model has."""
    begin, end = config.num_hidden_layers, size(header, "block_count")
    ahead = {name for name in header.tensors if (block := BLOCK.match(name)) and begin <= int(block[1]) < end}
    rest = header.tensors.keys() - wanted - ahead - set(NOT_WEIGHTS)
    return {name for name in rest if not name.startswith((*EYES, AHEAD))}


def _columns(shape: tuple[int, ...]) -> int:
    """Return the last size that is not 1: files leave out and add such dimensions."""
    return next((width for width in reversed(shape) if width > 1), 1)


def _misfit(header: Header, config: Any, name: str, place: Place, source: str) -> ModelNotFound:
    return ModelNotFound(
        f"{source} in {header.path} has the shape {list(header.tensors[source].shape)}, and {name} of this "
        f"{config.model_type} is of {list(place.shape)}: fetch it anew."
    )
