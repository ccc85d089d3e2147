"""The static pass of `exact` by sketches: all of them are compared in every pass, and those that count not yet masked.

See `graphs.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.host.retrieving import fetched
from engine.host.search import best_by_all_sketches
from engine.host.static_retrieving import StaticRetrieving
from engine.memories.attention import Segment
from engine.positions import far_query_position

if TYPE_CHECKING:
    from engine.methods.exact import ExactMemory


class StaticSketched(StaticRetrieving["ExactMemory"]):
    """`ExactMemory.attend` for one token of an answer, at a first look."""

    def __init__(self, memory: ExactMemory) -> None:
        """Over buffers, slabs and sketches as they are now."""
        super().__init__(memory)
        assert memory.host.sketch is not None
        self.sketch = memory.host.sketch.snapshot()
        # Every conversation sees what had left the window when it began
        first = max(0, self.sketch.before - memory.window)
        self.last = torch.arange(first, self.sketch.capacity, device=memory.spec.device)

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        memory, spec = self.memory, self.memory.layers[layer].layer
        if spec.sliding_window is not None:
            return self.near(layer, q)
        if memory.settings.logn:
            q = q * memory.growth(self.number + 1)
        segments, sources = self.near(layer, q)
        turned = spec.rope.to_constant(q, far_query_position(memory.sinks, memory.window))
        keys, values = self.far[layer]
        found = best_by_all_sketches(
            self.sketch, layer, keys, spec.rope.towards_kept(turned), self.last >= self.evicted, memory.settings.top_k
        )
        segments.append(fetched(spec, turned, keys, values, found))
        return segments, sources if memory.mass is None else [*sources, memory.host.source_of(found.entries)]
