"""Entries in slots: a memory whose entry in slot s has position s, for every KV head by itself.

`full`, `truncate` and the condensing methods keep their entries so. Reading appends; condensing keeps some slots per
head, closes the gaps and rotates what is left to 0, 1, 2, ... (InfiniPot's CR-RoPE). A fork sees the context's slots
first and its own behind them; condensing a fork gathers from both into slots of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import Shown, Span, attend, causal_span
from engine.errors import ContextMismatch
from engine.measure import require_memory
from engine.memory import NOT_IN_SOURCE, Memory
from engine.records import DEVICE, LoadedParts, Part, Parts, Usage
from engine.seam import LayerSpec, ModelSpec
from kernels.gathering import Room, gather
from kernels.rows import Slabs

FIRST_CAPACITY = 256


class Slots:
    """The entries of one layer: keys before and after RoPE and values [H, capacity, D], source and score [H, capacity].

    score is what an entry was given when it was read, for methods that judge by that: its novelty, its importance.
    """

    def __init__(self, layer: LayerSpec, spec: ModelSpec, first_slot: int, capacity: int) -> None:
        """Empty slots that begin at position first_slot."""
        self.layer = layer
        self.first_slot = first_slot
        shape = (layer.kv_heads, capacity)
        self.keys = torch.empty(*shape, layer.head_size, dtype=spec.dtype, device=spec.device)
        self.rotated = torch.empty_like(self.keys)
        self.values = torch.empty_like(self.keys)
        self.source = torch.full(shape, NOT_IN_SOURCE, dtype=torch.int32, device=spec.device)
        self.score = torch.zeros(shape, dtype=torch.float32, device=spec.device)

    @property
    def capacity(self) -> int:
        """Entries per head that fit."""
        return self.keys.shape[1]

    def write(self, at: int, keys: Tensor, values: Tensor) -> None:
        """Put keys and values [H, T, D] behind the first `at` entries, growing by doubling where there is no room.

        Their scores are 0 until they are given others.
        """
        end = at + keys.shape[1]
        if end > self.capacity:
            self._grow(max(end, 2 * self.capacity), at)
        self.keys[:, at:end] = keys
        self.values[:, at:end] = values
        self.rotated[:, at:end] = self.layer.rope.rotate(keys, self.first_slot + at)
        self.score[:, at:end] = 0.0

    def _grow(self, capacity: int, length: int) -> None:
        for name in ("keys", "rotated", "values", "source", "score"):
            old: Tensor = getattr(self, name)
            new = old.new_empty(old.shape[0], capacity, *old.shape[2:])
            new[:, :length] = old[:, :length]
            setattr(self, name, new)

    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(t.nbytes for t in (self.keys, self.rotated, self.values, self.source, self.score))


def slot_bytes(spec: ModelSpec, capacity: int) -> int:
    """Bytes of the slots of all layers: keys before and after RoPE, values, source and score."""
    heads = sum(layer.kv_heads for layer in spec.layers)
    return capacity * (spec.entry_bytes * 3 // 2 + 8 * heads)


class SlotMemory(Memory):
    """Entries in slots, without any limit of its own; condensing methods build upon it."""

    def __init__(self, spec: ModelSpec, capacity: int | None = None) -> None:
        """capacity: entries to allocate at once, where the budget is known."""
        super().__init__(spec)
        self.capacity = capacity
        self.length = 0  # own entries, not counting the base
        self.base: list[Slots] = []
        self.base_length = 0
        self.own = self._new_slots(0, capacity or FIRST_CAPACITY)
        self._spans: dict[int | None, Span] = {}
        self.observed: list[Tensor] | None = None  # per layer [HQ, N]: what a catalyst's tokens looked at

    def _new_slots(self, first_slot: int, capacity: int) -> list[Slots]:
        return [Slots(layer, self.spec, first_slot, capacity) for layer in self.spec.layers]

    @property
    def entries(self) -> int:
        """Entries per KV head now, base included."""
        return self.base_length + self.length

    def reserve(self, tokens: int) -> None:
        """Allocate for the whole reading where there is no budget."""
        if self.capacity is None and self.entries == 0:
            needed = slot_bytes(self.spec, tokens)
            require_memory(needed, self.spec.device, f"Keeping {tokens:,} tokens on the device")
            self.own = self._new_slots(0, max(tokens, FIRST_CAPACITY))

    def begin(self, source: Tensor) -> None:
        """What the queries of the last pass saw is over."""
        super().begin(source)
        self._spans = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """Causal attention over all slots."""
        slots = self.own[layer]
        slots.write(self.length, k, v)
        new = q.shape[1]
        end = self.length + new
        rotated = slots.layer.rope.rotate(q, self.entries)
        span = self._span(new, slots.layer.sliding_window)
        keys, values = self._bank(layer, "rotated", end), self._bank(layer, "values", end)
        watched = self.mass is not None or self.observed is not None
        output, given = attend([Shown(rotated, keys, values, span)], scaling, softcap, watched)
        if watched:
            self._watch(layer, given[0][:, 0, : self.entries])
        return output

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Sum up what the tokens of a pass give to each entry, in `observed`, until left."""
        self.observed = []
        try:
            yield
        finally:
            self.observed = None

    def _span(self, new: int, sliding_window: int | None) -> Span:
        """What the queries of this pass see in layers with that sliding window; worked out once per pass."""
        if sliding_window not in self._spans:
            self._spans[sliding_window] = causal_span(new, self.entries + new, sliding_window, self.spec.device)
        return self._spans[sliding_window]

    def _watch(self, layer: int, given: Tensor) -> None:
        """given: [HQ, N], what the queries of this pass gave to the entries remembered before it."""
        if self.observed is not None:
            self.observed.append(given)
        if self.mass is not None:
            per_head = given.view(self.spec.layers[layer].kv_heads, -1, given.shape[-1])
            self.mass.add(self.positions(layer), per_head.sum(dim=1))

    def commit(self, novelty: Tensor | None = None) -> None:
        """Keep the tokens of the pass."""
        end = self.length + len(self._incoming)
        for slots in self.own:
            slots.source[:, self.length : end] = self._incoming
            if novelty is not None:
                slots.score[:, self.length : end] = novelty
        self.length = end
        self.seen += len(self._incoming)

    def keep(self, kept: list[Tensor]) -> None:
        """Keep only the given slots and close the gaps; kept: per layer int64 [H, M], ascending."""
        fresh: list[Slots] = []
        for layer, (slots, index) in enumerate(zip(self.own, kept, strict=True)):
            size = index.shape[1]
            new = Slots(slots.layer, self.spec, 0, max(self.capacity or FIRST_CAPACITY, size))
            cos, sin = slots.layer.rope.table(size)
            keys, values = self._bank(layer, "keys", self.length), self._bank(layer, "values", self.length)
            gather(keys, values, index, cos, sin, Room(new.keys, new.rotated, new.values))
            new.source[:, :size] = self._column(layer, "source").gather(1, index)
            new.score[:, :size] = self._column(layer, "score").gather(1, index)
            fresh.append(new)
        self.own, self.base, self.base_length = fresh, [], 0
        self.length = kept[0].shape[1]

    def _bank(self, layer: int, name: str, length: int) -> Slabs:
        """Keys or values of a layer, base first, then so many of its own."""
        base = [(getattr(self.base[layer], name), self.base_length)] if self.base else []
        return [*base, (getattr(self.own[layer], name), length)]

    def _column(self, layer: int, name: str) -> Tensor:
        """All entries of a layer, base first: [H, entries, ...]."""
        own: Tensor = getattr(self.own[layer], name)[:, : self.length]
        if not self.base:
            return own
        base: Tensor = getattr(self.base[layer], name)[:, : self.base_length]
        return torch.cat([base, own], dim=1)

    def fork(self) -> Self:
        """Shares the slots so far; only a memory that is not itself a fork can be forked."""
        assert not self.base, "a conversation is a fork of a context, not of another conversation"
        child = copy.copy(self)
        child.base, child.base_length = self.own, self.length
        child.own, child.length = self._new_slots(self.length, FIRST_CAPACITY), 0
        return child

    def snapshot(self) -> Self:
        """Appending leaves the old entries alone and condensing makes new slots, so lists and lengths suffice."""
        return copy.copy(self)

    def positions(self, layer: int) -> Tensor:
        """int32 [H, entries]."""
        return self._column(layer, "source")

    def usage(self) -> Usage:
        """All slots are on the device; of a fork, the shared ones are counted too."""
        return Usage({DEVICE: self.entries}, {DEVICE: sum(slots.nbytes() for slots in [*self.base, *self.own])})

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Own entries of each layer in one part."""
        tensors = {}
        for layer, slots in enumerate(self.own):
            for name in ("keys", "values", "source", "score"):
                tensors[f"{layer}.{name}"] = getattr(slots, name)[:, : self.length].contiguous()
        if self.last_hidden is not None:
            tensors["last_hidden"] = self.last_hidden.contiguous()
        meta = {"length": self.length, "base_length": self.base_length, "seen": self.seen}
        return {"slots": Part(tensors)}, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """On a fresh fork, base_length says whether the saved tail stood on the context or had replaced it."""
        tensors = parts["slots"]
        if meta["base_length"] not in (0, self.base_length):
            raise ContextMismatch(
                f"The saved conversation continues a context of {meta['base_length']} entries, this one has "
                f"{self.base_length}. Start a new session."
            )
        if meta["base_length"] == 0:
            self.base, self.base_length = [], 0
            self.own = self._new_slots(0, max(self.capacity or 0, int(meta["length"]), FIRST_CAPACITY))
        for layer, slots in enumerate(self.own):
            slots.write(0, tensors[f"{layer}.keys"].to(slots.keys), tensors[f"{layer}.values"].to(slots.values))
            slots.source[:, : meta["length"]] = tensors[f"{layer}.source"].to(slots.source.device)
            slots.score[:, : meta["length"]] = tensors[f"{layer}.score"].to(slots.score.device)
        self.length, self.seen = int(meta["length"]), int(meta["seen"])
        hidden = tensors.get("last_hidden")
        self.last_hidden = None if hidden is None else hidden.to(self.spec.device)


def pooled(score: Tensor, kernel: int) -> Tensor:
    """The largest of the scores [H, N] within kernel // 2 slots of each entry; kernel: odd, 1 for none.

    An answer of several tokens is kept or lost as a whole only if neighbours are judged together.
    """
    return F.max_pool1d(score[None], kernel, stride=1, padding=kernel // 2)[0]


def highest(score: Tensor, count: int) -> Tensor:
    """The slots of the `count` highest scores of [H, N], int64 [H, count], ascending; of equals the earlier slots.

    The rule for equals matters because pooling makes many.
    """
    order = score.sort(dim=1, descending=True, stable=True).indices
    return order[:, :count].sort(dim=1).values
