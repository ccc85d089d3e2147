"""Sizes of a model and its layers, and how their attention is scored: what a memory must know of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from engine.models.rope import Rope

PROJECTIONS = frozenset(  # what makes queries, keys and values of a layer
    {"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa"}
)


@dataclass(frozen=True)
class Scoring:
    """How a layer makes probabilities of the products of queries and keys.

    scaling: of the products; softcap: what logits are bent to stay within; sink: a logit of each query head [HQ] that
    all its queries see beside those of keys, and what it is given goes to no value.
    """

    scaling: float
    softcap: float | None = None
    sink: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a softmax over scaled products and nothing else."""
        return self.softcap is None and self.sink is None

    def parted(self, count: int) -> list[Scoring]:
        """Of so many equal shares of the query heads, in their order."""
        sinks = [None] * count if self.sink is None else self.sink.chunk(count)
        return [replace(self, sink=sink) for sink in sinks]


@dataclass(frozen=True)
class LayerSpec:
    """What a memory must know of one layer.

    latent: whether keys before RoPE are the values too, of which nobody looks at the part that RoPE turns.
    """

    query_heads: int
    kv_heads: int
    head_size: int
    sliding_window: int | None
    rope: Rope
    latent: bool = False

    @property
    def value_heads(self) -> int:
        """KV heads whose values are kept beside their keys."""
        return 0 if self.latent else self.kv_heads


@dataclass(frozen=True)
class Projection:
    """A linear layer that makes queries, keys or values. name: inside the base model, `layers.3.self_attn.q_proj`."""

    name: str
    inputs: int
    outputs: int
    bias: bool


@dataclass(frozen=True)
class ModelSpec:
    """What a memory must know of a model.

    activation: the non-linearity of its MLPs, by transformers' name; embedding: a digest of its token embeddings, the
    same in every dtype that holds them; folder: where it was loaded from, if that is a folder here; projections: of
    all layers, in their order; state_bytes: of what recurrent layers carry from token to token, 0 if there are none.
    layers: those with attention, in their order; they are numbered among themselves.
    """

    layers: tuple[LayerSpec, ...]
    dtype: torch.dtype
    device: torch.device
    window: int  # positions that the model was trained for
    activation: str = "silu"
    embedding: str = ""
    folder: Path | None = None
    projections: tuple[Projection, ...] = ()
    state_bytes: int = 0

    @property
    def recurrent(self) -> bool:
        """Whether layers carry states from token to token."""
        return self.state_bytes > 0

    @property
    def looking_far(self) -> ModelSpec:
        """The same without heads in layers that have a sliding window, which look at nothing that has left it."""
        return self.with_heads(lambda layer: layer.sliding_window is None)

    def with_heads(self, where: Callable[[LayerSpec], bool]) -> ModelSpec:
        """The same without heads in other layers than those."""
        layers = (layer if where(layer) else replace(layer, query_heads=0, kv_heads=0) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    @property
    def reach(self) -> int:
        """How many tokens back any layer looks: the window, or where all have a sliding one, the widest of those."""
        return max(self.window if each.sliding_window is None else each.sliding_window for each in self.layers)

    @property
    def query_heads(self) -> int:
        """Of all layers together."""
        return sum(layer.query_heads for layer in self.layers)

    @property
    def query_width(self) -> int:
        """Numbers in the queries of one token, of all layers together."""
        return sum(layer.query_heads * layer.head_size for layer in self.layers)

    def averaged(self, of_layer: Callable[[LayerSpec], float]) -> float:
        """What it is for all layers' queries together."""
        each = (of_layer(layer) * layer.query_heads * layer.head_size for layer in self.layers)
        return sum(each) / self.query_width

    @property
    def ropes(self) -> set[Rope]:
        """Of all layers; those with the same frequencies share one."""
        return {layer.rope for layer in self.layers}

    @property
    def entry_width(self) -> int:
        """Numbers in one key and one value of every KV head in every layer, or in what is both."""
        return sum((layer.kv_heads + layer.value_heads) * layer.head_size for layer in self.layers)

    @property
    def entry_bytes(self) -> int:
        """Bytes of the same, in the model's own type."""
        return self.entry_width * self.dtype.itemsize

    @property
    def key_share(self) -> float:
        """The share of keys among them."""
        return self.key_bytes / self.entry_bytes

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys among them."""
        return sum(layer.kv_heads * layer.head_size for layer in self.layers) * self.dtype.itemsize


def projections_of(network: PreTrainedModel) -> tuple[Projection, ...]:
    """The projections of all layers; their weights may be on the meta device, or in layers of a package that quantises,
    which are like nn.Linear and none.
    """
    modules: Iterable[tuple[str, Any]] = network.base_model.named_modules()
    return tuple(
        Projection(name, module.in_features, module.out_features, module.bias is not None)
        for name, module in modules
        if name.rpartition(".")[2] in PROJECTIONS
    )


def window_of(config: PretrainedConfig) -> int:
    """Positions that a model was trained for."""
    return int(config.max_position_embeddings)
