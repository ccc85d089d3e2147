"""Sketches of the host tier's keys, on the device: 2 or 4 bits a number, to find the entries worth fetching.

To compare a query with every key, a GPU would have to fetch all keys. Instead it compares their sketches, fetches a few
times as many entries as are wanted, and compares those exactly. Few of the best entries are missed: see
docs/methods/exact.md.

Keys are centred on the mean of the first group and rotated by one random matrix. No channel then varies more than the
others, as in RaBitQ (https://arxiv.org/abs/2405.12497) and TurboQuant (https://arxiv.org/abs/2504.19874). Each row is
quantised with a scale of its own. Sketches follow from the slabs alone, so they are never saved.

Sizes: HQ query heads, H KV heads, T queries, N entries, D head size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.models.spec import LayerSpec, ModelSpec
from kernels import quantise
from kernels.gathering import gather_rows
from kernels.rows import GROUP_SIZE, ChannelScale, QuantizedSlab, Slabs, covering
from kernels.slab_facts import reachable

NONE = "none"
KINDS = {"int4": torch.quint4x2, "int2": torch.quint2x4}
SKETCHES = (NONE, *KINDS)
"""Values of the setting `sketch`; larger sketches miss fewer entries."""
CANDIDATES = {torch.quint4x2: 2, torch.quint2x4: 4}  # entries fetched for each one wanted
AT_ONCE = 8192  # entries that are sketched together
SEED = 1  # of the rotations


def check_sketch(spec: ModelSpec, kind: torch.dtype) -> None:
    """Raise if a model cannot have these sketches.

    Raises:
        SettingsError: the message says which setting to use.
    """
    share = quantise.SHARING[kind]
    if uneven := [layer.head_size for layer in spec.layers if layer.head_size % share]:
        raise SettingsError(
            f"{share} numbers of a sketch share a byte, and this model's head size, {uneven[0]}, is no multiple of "
            f"that: take sketch=none."
        )


def rotation(size: int) -> Tensor:
    """Return the random rotation for a head size, float32 [D, D]; always the same one."""
    noise = torch.randn(size, size, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    turned: Tensor = torch.linalg.qr(noise).Q
    return turned.float()


def sketched(entries: int) -> int:
    """Return how many of `entries` entries have a sketch: those in whole groups."""
    return entries // GROUP_SIZE * GROUP_SIZE


def entry_sketch_bytes(spec: ModelSpec, kind: torch.dtype) -> int:
    """Return the bytes of one entry's sketch in all layers: quantised rows and their scale."""
    return sum(layer.kv_heads * (quantise.width(kind, layer.head_size) + 4) for layer in spec.layers)


def sketching_bytes(spec: ModelSpec, entries: int) -> int:
    """Return the temporary bytes of sketching: a layer's keys in float32, rotated, centred, quantised and packed."""
    return 6 * 4 * min(AT_ONCE, entries) * max(layer.kv_heads * layer.head_size for layer in spec.layers)


def sketch_bytes(spec: ModelSpec, kind: torch.dtype, entries: int) -> int:
    """Return the device bytes of sketches with capacity for `entries` entries, shared tensors included."""
    sizes = {layer.head_size for layer in spec.layers if layer.kv_heads}
    channel_scales = sum(2 * 4 * layer.kv_heads * layer.head_size for layer in spec.layers)
    shared = channel_scales + sum(4 * size * size for size in sizes)
    return sketched(entries) * entry_sketch_bytes(spec, kind) + (shared if sketched(entries) else 0)


class Sketch:
    """Sketches of all keys of one host tier, in whole groups. A fork's own follow those of its context.

    Attributes:
        channel_scales: per layer, once there is a group.
        rotations: by head size.
        shared: per layer, the context's sketches, which are never written.
        own: per layer, those of this tier.
        before: entries of the context.
        length: entries in all, the context's included.
    """

    def __init__(self, spec: ModelSpec, kind: torch.dtype) -> None:
        """Start without any sketches.

        Args:
            spec: sizes of the host tier.
            kind: one of `KINDS`.
        """
        check_sketch(spec, kind)
        self.spec, self.kind = spec, kind
        self.channel_scales: list[ChannelScale] = []
        self.rotations: dict[int, Tensor] = {}
        self.shared: list[QuantizedSlab] = []
        self.own: list[QuantizedSlab] = []
        self.before = 0
        self.length = 0

    def extend(self, keys: Callable[[int], Slabs], stored: int, room: int) -> None:
        """Sketch the entries that were stored since the last call.

        Args:
            keys: returns the keys of a layer.
            stored: entries that are stored.
            room: entries to have capacity for.
        """
        layers, end = list(enumerate(self.spec.layers)), sketched(stored)
        if not end:
            return
        if not self.channel_scales:
            sizes = {layer.head_size for layer in self.spec.layers if layer.kv_heads}
            self.rotations = {size: rotation(size).to(self.spec.device) for size in sizes}
            self.channel_scales = [self._channel_scale(layer, keys(number)) for number, layer in layers]
        self._make_room(sketched(room - self.before))
        for at in range(self.length, end, AT_ONCE):
            for number, layer in layers:
                if layer.kv_heads:
                    rows = self._turned(layer, keys(number), at, min(at + AT_ONCE, end))
                    self.own[number].write(at - self.before, rows)
        self.length = end

    def _channel_scale(self, layer: LayerSpec, keys: Slabs) -> ChannelScale:
        """Return the mean of the first group as centre, with a range of one."""
        if not layer.kv_heads:
            centre = torch.zeros(0, layer.head_size, device=self.spec.device)
        else:
            centre = self._turned(layer, keys, 0, GROUP_SIZE).mean(dim=1)
        return ChannelScale(centre, torch.ones_like(centre))

    def _turned(self, layer: LayerSpec, keys: Slabs, first: int, end: int) -> Tensor:
        """Return rotated keys [H, N, D], float32, of the entries in whole groups from `first` to `end`.

        Each group is rotated alone, since products of other shapes differ in the last bit and may be quantised
        differently.
        """
        turning = self.rotations[layer.head_size]
        some, before = covering(keys, first, end)
        # An index that is copied to the device would wait for the stream.
        where = self.spec.device if reachable(some, turning.device) else None
        index = torch.arange(first - before, end - before, device=where).expand(layer.kv_heads, -1)
        found = gather_rows(some, index, self.spec.device, torch.float32)
        groups = found.view(-1, GROUP_SIZE, layer.head_size)
        return torch.bmm(groups, turning.expand(len(groups), -1, -1)).view(found.shape)

    @property
    def _own_room(self) -> int:
        return self.own[0].shape[1] if self.own else 0

    def _make_room(self, entries: int) -> None:
        """Grow to a capacity for `entries` own entries."""
        there = self._own_room
        if entries <= there:
            return
        grown = [self._empty(number, entries) for number in range(len(self.spec.layers))]
        for old, new in zip(self.own, grown, strict=False):
            new.quantized[:, :there], new.scale[:, :there] = old.quantized, old.scale
        self.own = grown

    def _empty(self, number: int, capacity: int) -> QuantizedSlab:
        layer, device = self.spec.layers[number], self.spec.device
        shape = layer.kv_heads, capacity, quantise.width(self.kind, layer.head_size)
        return QuantizedSlab(
            torch.empty(shape, dtype=quantise.stored(self.kind), device=device),
            torch.empty(shape[:2], device=device),
            self.channel_scales[number],
            self.kind,
            self.spec.dtype,
        )

    @property
    def capacity(self) -> int:
        """Entries that fit. Of a fork's context, those that exist count."""
        return self.before + self._own_room

    def turned(self, layer: int, q: Tensor) -> Tensor:
        """Return queries [HQ, T, D] rotated like the sketches, float32."""
        return q.float() @ self.rotations[self.spec.layers[layer].head_size]

    def banks(self, layer: int, whole: bool = False) -> Slabs:
        """Return the sketches of a layer, or all up to capacity if `whole`."""
        end = self.capacity if whole else self.length
        parts = (self.shared, self.before), (self.own, end - self.before)
        return [(slabs[layer], length) for slabs, length in parts if length]

    def fork(self) -> Sketch:
        """Return a fork that sees these sketches and adds its own."""
        child = copy.copy(self)
        child.shared, child.before, child.own = self.own, self.length, []
        return child

    def snapshot(self) -> Self:
        """Return the sketches as they are now. Both copies write behind the entries that the other sees."""
        return copy.copy(self)

    def nbytes(self) -> int:
        """Return all bytes, those shared with a context included."""
        slabs = sum(bank.quantized.nbytes + bank.scale.nbytes for bank in [*self.shared, *self.own])
        return slabs + sum(x.nbytes() for x in self.channel_scales) + sum(x.nbytes for x in self.rotations.values())
