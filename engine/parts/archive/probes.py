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
from kernels.rows import Bank, QuantizedSlab, tensors_of, to_device, used


class Probes:
    """Every `every`-th key of a context. Conversations share them; the first that needs them has them made."""

    def __init__(self, spec: ModelSpec, every: int) -> None:
        """Start without any keys. every: a power of two, at most the entries of a quantisation group."""
        self.spec, self.every = spec, every
        self.layers: dict[int, Copies] = {}
        self._count = 0  # entries that they were made of

    def prepare(self, host: HostTier) -> None:
        """Copy the keys of the context of a conversation, if there are not as many already.

        Raises:
            torch.OutOfMemoryError: nothing is changed.
        """
        count = sum(slab.length for slab in host.slabs[: host.shared])
        if count == self._count:
            return
        looking = (number for number, layer in enumerate(self.spec.layers) if layer.kv_heads)
        made = {number: Copies(self.every, count, self._copied(host, number, count)) for number in looking}
        self.layers, self._count = made, count

    def addresses(self) -> tuple[int, ...]:
        """Return the addresses that a recording depends on."""
        return tuple(copies.keys.data_ptr() for copies in self.layers.values())

    def nbytes(self, host: HostTier) -> int:
        """Return the bytes of the keys once they were asked for."""
        if not self.layers:
            return probe_bytes(self.spec, host.dtype, host.stored, self.every)
        return sum(part.nbytes for copies in self.layers.values() for part in tensors_of(copies.keys))

    def _copied(self, host: HostTier, layer: int, count: int) -> Bank:
        """Return every `every`-th of the first `count` keys of a layer, as they are stored, on the device."""
        slabs = [(slab.keys[layer], slab.length) for slab in host.slabs[: host.shared] if slab.length]
        first, device = slabs[0][0], self.spec.device
        rows = -(-count // self.every)
        if isinstance(first, Tensor):
            found = first.new_empty(first.shape[0], rows, first.shape[2], device=device)
            bank: Bank = found
        else:
            codes, groups = first.quantized, count // first.group_size
            found = codes.new_empty(codes.shape[0], rows, codes.shape[2], device=device)
            bank = dataclasses.replace(
                first, quantized=found, scale=first.scale.new_empty(len(codes), groups, device=device)
            )
        at = 0
        for slab, length in slabs:
            begin, end = -at % self.every, -(-(at + length) // self.every)
            here = slab if isinstance(slab, Tensor) else slab.quantized
            found[:, (at + begin) // self.every : end] = to_device(here[:, begin : length : self.every], device)
            if isinstance(bank, QuantizedSlab) and isinstance(slab, QuantizedSlab):
                first_group, of_slab = at // slab.group_size, used(slab.scale, length, slab.shape[1])
                bank.scale[:, first_group : first_group + of_slab] = to_device(slab.scale[:, :of_slab], device)
            at += length
        return bank


def probe_bytes(spec: ModelSpec, dtype: torch.dtype, entries: int, every: int) -> int:
    """Return the bytes of every `every`-th key of so many entries, in all layers."""
    group = group_size_of(dtype)
    entries = entries // group * group
    return sum(_layer_bytes(layer, dtype, -(-entries // every), entries // group) for layer in spec.layers)


def _layer_bytes(layer: LayerSpec, dtype: torch.dtype, rows: int, groups: int) -> int:
    if dtype not in quantise.KINDS:
        return layer.kv_heads * rows * layer.head_size * dtype.itemsize
    return layer.kv_heads * (rows * quantise.width(dtype, layer.head_size) + 4 * groups)
