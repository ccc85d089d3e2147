"""Sizes of a model and its layers, and the scoring of their attention: all that a memory knows of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from engine.models.rope import Rope

PROJECTIONS = frozenset(  # linear layers whose outputs are queries, keys and values
    {"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa"}
)


@dataclass(frozen=True)
class Scoring:
    """How a layer turns the products of queries and keys into probabilities."""

    scaling: float  # factor of the products
    softcap: float | None = None  # bound of the logits: softcap * tanh(logit / softcap)
    sink: Tensor | None = None  # [HQ], one more logit for all queries of a head; its probability goes to no value

    @property
    def plain(self) -> bool:
        """True for a softmax over scaled products and nothing else."""
        return self.softcap is None and self.sink is None

    def parted(self, count: int) -> list[Scoring]:
        """Return the scoring of each of `count` equal shares of the query heads, in order."""
        sinks = [None] * count if self.sink is None else self.sink.chunk(count)
        return [replace(self, sink=sink) for sink in sinks]


@dataclass(frozen=True)
class LayerSpec:
    """Sizes and rotation of one layer with attention."""

    query_heads: int
    kv_heads: int
    head_size: int
    sliding_window: int | None  # tokens back that a query sees; None: all
    rope: Rope
    latent: bool = False  # keys before RoPE are the values too; their rotated part is ignored there

    @property
    def value_heads(self) -> int:
        """Number of KV heads whose values are kept beside their keys."""
        return 0 if self.latent else self.kv_heads


@dataclass(frozen=True)
class Projection:
    """A linear layer that computes queries, keys or values."""

    name: str  # inside the base model: `layers.3.self_attn.q_proj`
    inputs: int
    outputs: int
    bias: bool


@dataclass(frozen=True)
class ModelSpec:
    """Sizes of a model, as far as memories and trained weights depend on them."""

    layers: tuple[LayerSpec, ...]  # layers with attention, in order; their numbers leave out all others
    dtype: torch.dtype
    device: torch.device
    window: int  # positions that the model was trained for
    activation: str = "silu"  # non-linearity of the MLPs, by transformers' name
    embedding: str = ""  # digest of the token embeddings, the same in every dtype that holds them
    folder: Path | None = None  # folder that the model was loaded from; None for a file or a hub id
    projections: tuple[Projection, ...] = ()  # of all layers, in order
    state_bytes: int = 0  # of the states of all recurrent layers

    @property
    def recurrent(self) -> bool:
        """True if some layers carry states from token to token."""
        return self.state_bytes > 0

    @property
    def looking_far(self) -> ModelSpec:
        """The same model with heads in full-attention layers only, since sliding windows never look far."""
        return self.with_heads(lambda layer: layer.sliding_window is None)

    def with_heads(self, where: Callable[[LayerSpec], bool]) -> ModelSpec:
        """Return the same model with heads only in the layers that `where` accepts."""
        layers = (layer if where(layer) else replace(layer, query_heads=0, kv_heads=0) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    def without_windows(self) -> ModelSpec:
        """Return the same model without sliding windows."""
        return replace(self, layers=tuple(replace(layer, sliding_window=None) for layer in self.layers))

    @property
    def reach(self) -> int:
        """Number of tokens back that any layer looks: the window, or the widest if all layers have sliding windows."""
        return max(self.window if each.sliding_window is None else each.sliding_window for each in self.layers)

    @property
    def query_heads(self) -> int:
        """Number of query heads in all layers."""
        return sum(layer.query_heads for layer in self.layers)

    @property
    def query_width(self) -> int:
        """Numbers in the queries of one token in all layers."""
        return sum(layer.query_heads * layer.head_size for layer in self.layers)

    def averaged(self, of_layer: Callable[[LayerSpec], float]) -> float:
        """Return the mean of a layer's value over all layers, weighted by the width of their queries."""
        each = (of_layer(layer) * layer.query_heads * layer.head_size for layer in self.layers)
        return sum(each) / self.query_width

    @property
    def ropes(self) -> set[Rope]:
        """Frequency tables of all layers; layers with the same frequencies share one."""
        return {layer.rope for layer in self.layers}

    @property
    def entry_width(self) -> int:
        """Numbers in the keys and values of one token in all layers; latents count once."""
        return sum((layer.kv_heads + layer.value_heads) * layer.head_size for layer in self.layers)

    @property
    def entry_bytes(self) -> int:
        """Bytes of the keys and values of one token, in the dtype of the model."""
        return self.entry_width * self.dtype.itemsize

    @property
    def key_share(self) -> float:
        """Share of the keys in `entry_bytes`."""
        return self.key_bytes / self.entry_bytes

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys of one token, in the dtype of the model."""
        return sum(layer.kv_heads * layer.head_size for layer in self.layers) * self.dtype.itemsize


def projections_of(network: PreTrainedModel) -> tuple[Projection, ...]:
    """Return the projections of all layers, in order.

    Weights may be on the meta device. Layers of a package that quantises count too, though they are no nn.Linear.
    """
    modules: Iterable[tuple[str, Any]] = network.base_model.named_modules()
    return tuple(
        Projection(name, module.in_features, module.out_features, module.bias is not None)
        for name, module in modules
        if name.rpartition(".")[2] in PROJECTIONS
    )


def window_of(config: PretrainedConfig) -> int:
    """Return the number of positions that a model was trained for."""
    return int(config.max_position_embeddings)
