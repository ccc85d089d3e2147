"""Every n-th key of a text on the device, for pruning: the keys that halving a chunk always begins with.

Pruning compares the first key of a chunk with the one in its middle, then halves the half that has the better one. So
the rows that it compares first are the same for every query, and lie at multiples of a power of two. Keys between them
are read where the archive has them, as are all keys of a conversation.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from engine.models.spec import LayerSpec, ModelSpec
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.slabs import group_size_of
from kernels import quantise
from kernels.pruning import Copies
from kernels.rows import Bank, Slabs, to_device, used
from kernels.slab_facts import tensors_of


class Probes:
    """Every `every`-th key of a context. Conversations share them; the first that needs them has them made."""

    def __init__(self, spec: ModelSpec, every: int) -> None:
        """Start without any keys. every: a power of two, at most the entries of a quantisation group."""
        self.spec, self.every = spec, every
        self.layers: dict[int, Copies] = {}
        self._count = 0  # entries of the context that the keys were copied from

    def prepare(self, host: HostTier) -> None:
        """Copy the keys of the context of a conversation, unless that many entries have been copied already.

        Raises:
            torch.OutOfMemoryError: nothing is changed.
        """
        count = sum(slab.length for slab in host.slabs[: host.shared])
        if count == self._count:
            return
        self.layers = {
            number: every_nth(self._slabs(host, number), self.every, self.spec.device)
            for number, layer in enumerate(self.spec.layers)
            if layer.kv_heads
        }
        self._count = count

    def _slabs(self, host: HostTier, layer: int) -> Slabs:
        """Return the keys of the context, slab by slab."""
        return [(slab.keys[layer], slab.length) for slab in host.slabs[: host.shared] if slab.length]

    def addresses(self) -> tuple[int, ...]:
        """Return the addresses that a recording depends on."""
        return tuple(copies.keys.data_ptr() for copies in self.layers.values())

    def nbytes(self, host: HostTier) -> int:
        """Return the bytes of the keys, or those that they will take if they have not been made yet."""
        if not self.layers:
            return probe_bytes(self.spec, host.dtype, host.stored, self.every)
        return sum(part.nbytes for copies in self.layers.values() for part in tensors_of(copies.keys))


def every_nth(slabs: Slabs, every: int, device: torch.device) -> Copies:
    """Copy every `every`-th row of slabs, as they are stored, to a device."""
    first, count = slabs[0][0], sum(length for _, length in slabs)
    rows = -(-count // every)
    if isinstance(first, Tensor):
        bank: Bank = first.new_empty(first.shape[0], rows, first.shape[2], device=device)
    else:
        heads, _, width = first.quantized.shape
        bank = dataclasses.replace(
            first,
            quantized=first.quantized.new_empty(heads, rows, width, device=device),
            scale=first.scale.new_empty(heads, -(-count // first.group_size), device=device),
        )
    there, at = tensors_of(bank), 0
    for slab, length in slabs:
        here, begin, end = tensors_of(slab), -at % every, -(-(at + length) // every)
        there[0][:, (at + begin) // every : end] = to_device(here[0][:, begin:length:every], device)
        for to, scale in zip(there[1:], here[1:], strict=True):
            group, groups = slab.shape[1] // scale.shape[1], used(scale, length, slab.shape[1])
            to[:, at // group : at // group + groups] = to_device(scale[:, :groups], device)
        at += length
    return Copies(every, count, bank)


def probe_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int, every: int) -> int:
    """Return the bytes of every `every`-th key of so many entries, in all layers."""
    group = group_size_of(dtype)
    entries = entries // group * group
    return sum(_layer_bytes(layer, dtype, -(-entries // every), entries // group) for layer in spec.layers)


def _layer_bytes(layer: LayerSpec, dtype: torch.dtype, rows: int, groups: int) -> int:
    if dtype not in quantise.KINDS:
        return layer.kv_heads * rows * layer.head_size * dtype.itemsize
    return layer.kv_heads * (rows * quantise.width(dtype, layer.head_size) + 4 * groups)
