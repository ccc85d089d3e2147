"""The static pass over sinks and a window: the whole buffer is shown, and what no window holds is masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from engine.memories.attention import Segment, Shown, VisibleRange, attend
from engine.memories.static_pass import StaticPass
from engine.models.spec import Scoring
from kernels.rows import StableSlabs

if TYPE_CHECKING:
    from engine.memories.window import WindowMemory

M = TypeVar("M", bound="WindowMemory")


class StaticWindow(StaticPass[M]):
    """`WindowMemory.attend` for one token that comes behind all sinks."""

    def __init__(self, memory: M) -> None:
        """Over its buffers as they are now."""
        super().__init__(memory)
        self.number = torch.zeros_like(self.length)  # of the token, from the very first
        self.shown = []
        for held in memory.layers:
            held.rotated[:, memory.length :], held.values[:, memory.length :] = 0.0, 0.0  # masked, but must be numbers
            self.shown.append([[StableSlabs([(bank, bank.shape[1])]) for bank in pair] for pair in held.shown()])

    def move_to(self, memory: M) -> None:
        """The next token stands behind what is in the buffer."""
        super().move_to(memory)
        self.number.fill_(memory.seen)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention output [HQ, 1, D] for q [HQ, 1, D] and k, v [H, 1, D], all before RoPE."""
        self._arrive(layer, k, v)
        mass = self.memory.mass
        segments, sources = self._segments(layer, q)
        output, given = attend(segments, scoring, mass is not None)
        if mass is not None:
            for source, piece in zip(sources, given, strict=True):
                mass.add(source, piece)
        return output

    def _arrive(self, layer: int, k: Tensor, v: Tensor) -> None:
        held, sinks = self.memory.layers[layer], self.memory.sinks
        held.keys.index_copy_(1, self.length, k)
        held.values.index_copy_(1, self.length, v[: held.layer.value_heads])
        turned = held.layer.rope.rotate(k, self.length + sinks, sinks + held.keys.shape[1])
        held.rotated.index_copy_(1, self.length, turned)

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """What the token sees, and the source positions of it."""
        return self.near(layer, q)

    def near(self, layer: int, q: Tensor, with_sinks: bool = True) -> tuple[list[Segment], list[Tensor]]:
        """Sinks, if they are wanted here, and window."""
        memory, held = self.memory, self.memory.layers[layer]
        sliding, rope, sinks = held.layer.sliding_window, held.layer.rope, memory.sinks
        (keys, values), (sink_keys, sink_values) = self.shown[layer]
        segments: list[Segment] = []
        sources = []
        if sinks and with_sinks:
            end = torch.full_like(self.number, sinks)
            first = torch.zeros_like(end) if sliding is None else (self.number - sliding + 1).clamp_min(0)
            turned = rope.rotate(q, self.number.clamp_max(sinks + memory.window - 1), sinks + memory.window)
            segments.append(Shown(turned, sink_keys, sink_values, VisibleRange(first, end, changing=True)))
            sources.append(memory.source[:sinks])
        reach = min(memory.window, sliding or memory.window)
        span = VisibleRange((self.length - reach + 1).clamp_min(0), self.length + 1, changing=True)
        turned = rope.rotate(q, self.length + sinks, sinks + held.keys.shape[1])
        segments.append(Shown(turned, keys, values, span))
        sources.append(memory.source[sinks:])
        return segments, sources
