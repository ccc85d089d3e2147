"""Stacks: the heads of all layers in few tensors, so that a pass is kept in few operations for any number of layers.

Heads of one size lie in one stack, layer by layer: the keys of a layer, then its values. Sizes: R heads of a stack, T
tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from engine.models.spec import ModelSpec

T = TypeVar("T")


class Stacks:
    """The places of the heads of each layer.

    Attributes:
        sizes: head size of each stack.
        heads: per stack, the heads of each layer's keys and values in turn; 0 in layers of another size.
        layer_heads: heads of keys, and of values, per layer.
    """

    def __init__(self, spec: ModelSpec) -> None:
        """Arrange the KV heads of a model."""
        self.sizes = sorted({layer.head_size for layer in spec.layers})
        self.heads = [
            [
                heads if layer.head_size == size else 0
                for layer in spec.layers
                for heads in (layer.kv_heads, layer.value_heads)
            ]
            for size in self.sizes
        ]
        self.layer_heads = [x.kv_heads for x in spec.layers], [x.value_heads for x in spec.layers]
        self._stack_of = [self.sizes.index(layer.head_size) for layer in spec.layers]

    @property
    def rows(self) -> list[int]:
        """R of each stack."""
        return [sum(heads) for heads in self.heads]

    def stacked(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
        """Return the stacks [R, ...] of keys and values [H, ...] per layer. Heads that the model lacks are dropped."""
        kept = [
            [x if len(x) == layer_heads else x[:layer_heads] for x, layer_heads in zip(each, heads, strict=True)]
            for each, heads in zip((keys, values), self.layer_heads, strict=True)
        ]
        return [torch.cat(parts) for parts in self.of_stacks(*kept)]

    def parted(self, stacks: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return keys and values per layer, as views of stacks."""
        return self.of_layers([torch.split(stack, heads) for stack, heads in zip(stacks, self.heads, strict=True)])

    def of_layers(self, parts: Sequence[Sequence[T]]) -> tuple[list[T], list[T]]:
        """Return the parts of keys and of values per layer, from the parts of each stack in order of `heads`."""
        keys, values = (
            [parts[stack][2 * layer + which] for layer, stack in enumerate(self._stack_of)] for which in (0, 1)
        )
        return keys, values

    def of_stacks(self, keys: Sequence[T], values: Sequence[T]) -> list[list[T]]:
        """Return the parts of each stack, in its order, from those of keys and values per layer."""
        every = list(zip(self._stack_of, keys, values, strict=True))
        return [[x for at, *pair in every if at == stack for x in pair] for stack in range(len(self.sizes))]
