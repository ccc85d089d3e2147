"""Sketches of the host tier's keys, on the device: 2 or 4 bits a number, by which it is found what is worth fetching.

To compare a query with every key a GPU would have to fetch all of them. Compared with their sketches instead, those few
times as many as are wanted that score best are fetched, and compared as they are. Of what is found so, little is not
the best: see docs/methods/exact.md.

Keys are centred on the mean of the first page and turned by one random rotation, after which no channel varies more
than the others, as in RaBitQ (https://arxiv.org/abs/2405.12497) and TurboQuant (https://arxiv.org/abs/2504.19874); then
each is coded with a scale of its own. A sketch depends on nothing but what slabs hold, so it is never saved.

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
from kernels.rows import GROUP_SIZE, ChannelScale, QuantizedSlab, Slabs, covering, reachable

NONE = "none"
KINDS = {"int4": torch.quint4x2, "int2": torch.quint2x4}
SKETCHES = (NONE, *KINDS)
"""Of a host tier's keys; the larger ones find more."""
CANDIDATES = {torch.quint4x2: 2, torch.quint2x4: 4}  # times as many are fetched as are wanted
AT_ONCE = 8192  # entries that are sketched together
SEED = 1  # of the rotations


def check_sketch(spec: ModelSpec, kind: torch.dtype) -> None:
    """Refuse sketches that a model cannot have.

    Raises:
        SettingsError: naming the way out.
    """
    share = quantise.SHARING[kind]
    if uneven := [layer.head_size for layer in spec.layers if layer.head_size % share]:
        raise SettingsError(
            f"{share} numbers of a sketch share a byte, and this model's head size, {uneven[0]}, is no multiple of "
            f"that: take sketch=none."
        )


def rotation(size: int) -> Tensor:
    """Float32 [D, D]: always the same one, drawn at random."""
    noise = torch.randn(size, size, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    turned: Tensor = torch.linalg.qr(noise).Q
    return turned.float()


def sketched(entries: int) -> int:
    """Of so many entries, those that have a sketch: whole pages."""
    return entries // GROUP_SIZE * GROUP_SIZE


def entry_sketch_bytes(spec: ModelSpec, kind: torch.dtype) -> int:
    """Bytes of one entry's in all layers: codes and their scale."""
    return sum(layer.kv_heads * (quantise.width(kind, layer.head_size) + 4) for layer in spec.layers)


def sketching_bytes(spec: ModelSpec, entries: int) -> int:
    """What becomes a sketch, while it does: a layer's keys in float32, turned, centred, in codes and packed."""
    return 6 * 4 * min(AT_ONCE, entries) * max(layer.kv_heads * layer.head_size for layer in spec.layers)


def sketch_bytes(spec: ModelSpec, kind: torch.dtype, entries: int) -> int:
    """Bytes on the device of sketches with room for so many entries, and of what all of them share."""
    sizes = {layer.head_size for layer in spec.layers if layer.kv_heads}
    channel_scales = sum(2 * 4 * layer.kv_heads * layer.head_size for layer in spec.layers)
    shared = channel_scales + sum(4 * size * size for size in sizes)
    return sketched(entries) * entry_sketch_bytes(spec, kind) + (shared if sketched(entries) else 0)


class Sketch:
    """Of all keys of one host tier, in whole pages; a fork's own lie behind those of its context."""

    def __init__(self, spec: ModelSpec, kind: torch.dtype) -> None:
        """spec: of the host tier; kind: one of `KINDS`."""
        check_sketch(spec, kind)
        self.spec, self.kind = spec, kind
        self.channel_scales: list[ChannelScale] = []  # per layer, once there is a page
        self.rotations: dict[int, Tensor] = {}  # by head size
        self.shared: list[QuantizedSlab] = []  # per layer, of a context, never written
        self.own: list[QuantizedSlab] = []
        self.before = 0  # entries of the context
        self.length = 0  # entries, those included

    def extend(self, keys: Callable[[int], Slabs], stored: int, room: int) -> None:
        """Sketch what has been stored since, if anything has.

        keys: of a layer, of which the first `stored` entries are there; room: entries for which there is to be room.
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
        """The mean of the first page, and nothing to divide by."""
        if not layer.kv_heads:
            centre = torch.zeros(0, layer.head_size, device=self.spec.device)
        else:
            centre = self._turned(layer, keys, 0, GROUP_SIZE).mean(dim=1)
        return ChannelScale(centre, torch.ones_like(centre))

    def _turned(self, layer: LayerSpec, keys: Slabs, first: int, end: int) -> Tensor:
        """Keys [H, N, D] of the entries from `first` on, whole pages, turned, float32.

        Page by page, since products of other shapes differ in the last bit, which may decide between two codes.
        """
        turning = self.rotations[layer.head_size]
        some, before = covering(keys, first, end)
        where = (
            self.spec.device if reachable(some, turning.device) else None
        )  # an index that is sent waits for the stream
        index = torch.arange(first - before, end - before, device=where).expand(layer.kv_heads, -1)
        found = gather_rows(some, index, self.spec.device, torch.float32)
        pages = found.view(-1, GROUP_SIZE, layer.head_size)
        return torch.bmm(pages, turning.expand(len(pages), -1, -1)).view(found.shape)

    @property
    def _own_room(self) -> int:
        return self.own[0].shape[1] if self.own else 0

    def _make_room(self, entries: int) -> None:
        """For so many own ones."""
        there = self._own_room
        if entries <= there:
            return
        grown = [self._empty(number, entries) for number in range(len(self.spec.layers))]
        for old, new in zip(self.own, grown, strict=False):
            new.quantized[:, :there], new.scale[:, :there] = old.quantized, old.scale
        self.own = grown

    def _empty(self, number: int, capacity: int) -> QuantizedSlab:
        layer, device = self.spec.layers[number], self.spec.device
        codes = layer.kv_heads, capacity, quantise.width(self.kind, layer.head_size)
        return QuantizedSlab(
            torch.empty(codes, dtype=quantise.stored(self.kind), device=device),
            torch.empty(codes[:2], device=device),
            self.channel_scales[number],
            self.kind,
            self.spec.dtype,
        )

    @property
    def capacity(self) -> int:
        """Entries that there is room for; a context's that are not a fork's own count as far as they are there."""
        return self.before + self._own_room

    def turned(self, layer: int, q: Tensor) -> Tensor:
        """Queries [HQ, T, D] as they are compared with the sketches, float32."""
        return q.float() @ self.rotations[self.spec.layers[layer].head_size]

    def banks(self, layer: int, whole: bool = False) -> Slabs:
        """The sketches of a layer, and if wanted the room behind them."""
        end = self.capacity if whole else self.length
        parts = (self.shared, self.before), (self.own, end - self.before)
        return [(pages[layer], length) for pages, length in parts if length]

    def fork(self) -> Sketch:
        """Sees what there is; sketches what comes on its own."""
        child = copy.copy(self)
        child.shared, child.before, child.own = self.own, self.length, []
        return child

    def snapshot(self) -> Self:
        """As it is now; what comes to either is written behind what the other sees."""
        return copy.copy(self)

    def nbytes(self) -> int:
        """Bytes of all of it, what a fork shares included."""
        pages = sum(bank.quantized.nbytes + bank.scale.nbytes for bank in [*self.shared, *self.own])
        return pages + sum(x.nbytes() for x in self.channel_scales) + sum(x.nbytes for x in self.rotations.values())
