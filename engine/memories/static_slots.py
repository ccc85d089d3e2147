"""The static pass over slots: all of them are shown, and those that are not filled yet are masked. See `graphs.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from engine.memories.attention import Segment, Shown, VisibleRange, attend
from engine.memories.memory import NOT_IN_SOURCE
from engine.memories.static_pass import StaticPass
from engine.models.spec import Scoring
from kernels.rows import StableSlabs

if TYPE_CHECKING:
    from engine.memories.slots import SlotMemory

M = TypeVar("M", bound="SlotMemory")


class StaticSlots(StaticPass[M]):
    """`SlotMemory.attend` for one token."""

    def __init__(self, memory: M) -> None:
        """Over the slots as they are now."""
        super().__init__(memory)
        self.shown = []
        for number, slots in enumerate(memory.own):
            filled = memory.length + slots.surplus  # what is behind is masked, but must be numbers
            slots.rotated[:, filled:], slots.values[:, filled:] = 0.0, 0.0
            slots.source[:, filled:] = NOT_IN_SOURCE
            base = memory.base[number] if memory.base else None
            keys, values, _ = slots.shown(base, slots.capacity, 1)
            self.shown.append((StableSlabs(keys), StableSlabs(values)))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention output [HQ, 1, D] for q [HQ, 1, D] and k, v [H, 1, D], all before RoPE."""
        memory = self.memory
        output = memory.by_slots(layer, self._attend, scoring, q, k, v)
        for slots, score in memory.scored(layer, q, k, v):
            slots.score.index_copy_(1, self.length + slots.surplus, score)
        return output

    def _attend(self, number: int, scoring: Scoring, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        memory, slots = self.memory, self.memory.own[number]
        rope, place = slots.layer.rope, self.length + slots.surplus
        position, limit = place + slots.first_slot, slots.first_slot + slots.capacity
        slots.keys.index_copy_(1, place, k)
        slots.values.index_copy_(1, place, v[: slots.layer.value_heads])
        slots.score.index_fill_(1, place, 0.0)
        slots.source.index_fill_(1, place, NOT_IN_SOURCE)  # where what has been rolled back may have left another
        slots.rotated.index_copy_(1, place, rope.rotate(k, position, limit))
        end, window = position + 1, slots.layer.sliding_window
        first = torch.zeros_like(end) if window is None else (end - window).clamp_min(0)
        keys, values = self.shown[number]
        own = Shown(rope.rotate(q, position, limit), keys, values, VisibleRange(first, end, changing=True))
        beside, sources = self._beside(number, q)
        output, given = attend([own, *beside], scoring, memory.mass is not None)
        if memory.mass is not None:
            for source, piece in zip(sources, given[1:], strict=True):
                memory.mass.add(source, piece)
            per_head = given[0][:, 0].view(slots.layer.kv_heads, -1, limit).sum(dim=1)
            memory.mass.add(slots.source, per_head[:, slots.first_slot :])
            if memory.base:
                memory.mass.add(memory.base[number].source[:, : slots.first_slot], per_head[:, : slots.first_slot])
        return output

    def _beside(self, number: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """What the token sees beside slots `number`, and where it comes from."""
        return [], []
