"""Which tensors of a GGUF file a network's weights are, and where they differ from them in more than their names."""

from __future__ import annotations

import re
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig

from engine.errors import ModelNotFound
from engine.models.gguf.architectures import known_of
from engine.models.gguf.header import Header
from engine.models.gguf.weights import Place
from engine.models.load_errors import ANEW

NOT_WEIGHTS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # of which a config tells
EXPERTS = re.compile(r"^model\.layers\.(\d+)\..+\.experts\.(gate_up|down)_proj(_bias)?$")
NAMES = {"block_sparse_moe.router": "ffn_gate_inp", "self_attn.sinks": "attn_sinks"}  # that gguf's own map lacks


def places_of(header: Header, config: PretrainedConfig) -> dict[str, Place]:
    """Where each weight of the network lies in a file, by its name.

    Raises:
        ModelNotFound: a tensor is missing, has another shape, or is none of this network.
    """
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    tied = set(network._tied_weights_keys or {}) if config.tie_word_embeddings else set()
    named = _namer(header, config)
    places = {name: named(name, weight) for name, weight in network.state_dict().items() if name not in tied}
    _check(header, config, places)
    return places


def _namer(header: Header, config: Any) -> Any:
    """Finds the place of a weight by its name."""
    known = known_of(header)
    arch = next(number for number, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}

    def named(name: str, weight: Tensor) -> Place:
        shape = tuple(weight.shape)
        if experts := EXPERTS.match(name):
            layer, which, bias = experts.groups()
            end = "bias" if bias else "weight"
            if which == "down":
                turned = known.interleaved and not bias
                views = (lambda whole: (whole.transpose(1, 2),)) if turned else (lambda whole: (whole,))
                return Place((f"blk.{layer}.ffn_down_exps.{end}",), shape, views)
            sources = (f"blk.{layer}.ffn_gate_exps.{end}", f"blk.{layer}.ffn_up_exps.{end}")
            return Place(sources, shape, _interleaved if known.interleaved else _halves)
        path, _, end = name.rpartition(".")
        if end not in ("weight", "bias"):
            path, end = name, "weight"
        stored = names.get_name(path) or ("output" if path == "lm_head" else _own_name(path))
        last = path.rpartition(".")[2]
        offset = known.offset if last.endswith("norm") else 0.0
        if known.permuted and last in heads:
            return Place((f"{stored}.{end}",), shape, lambda whole: (_pairs(whole, heads[last]),), offset)
        return Place((f"{stored}.{end}",), shape, offset=offset)

    return named


def _own_name(path: str) -> str:
    layer, _, rest = path.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES.get(rest, rest)}"


def _pairs(whole: Tensor, heads: int) -> Tensor:
    """Rows in the order of files in which RoPE turns neighbours: the halves of each head in turns."""
    return whole.view(heads, 2, -1, *whole.shape[1:]).transpose(1, 2)


def _halves(whole: Tensor) -> tuple[Tensor, ...]:
    """Gates [E, :I, H] and what they are for [E, I:, H]."""
    return whole.chunk(2, dim=1)


def _interleaved(whole: Tensor) -> tuple[Tensor, ...]:
    """The same of stacks that are transposed, [E, H, 2 I], and have both in turns; or of their biases [E, 2 I]."""
    rows = whole.transpose(1, 2) if whole.dim() == 3 else whole
    return rows[:, ::2], rows[:, 1::2]


def _check(header: Header, config: PretrainedConfig, places: dict[str, Place]) -> None:
    wanted = {source for place in places.values() for source in place.sources}
    if missing := sorted(wanted - header.tensors.keys()):
        raise ModelNotFound(f"{header.path} lacks {missing[0]}: {ANEW}.")
    if strange := sorted(header.tensors.keys() - wanted - set(NOT_WEIGHTS)):
        raise ModelNotFound(
            f"{header.path} holds {strange[0]}, for which a {config.model_type} has no place: choose another file."
        )
    for name, place in places.items():
        views = place.views(torch.empty(place.shape, device="meta"))
        for source, view in zip(place.sources, views, strict=True):
            stored = header.tensors[source].shape
            if torch.Size(stored).numel() != view.numel() or stored[-1] != view.shape[-1]:
                raise ModelNotFound(
                    f"{source} in {header.path} has the shape {list(stored)}, and {name} of this {config.model_type} "
                    f"is of {list(place.shape)}: fetch it anew."
                )
