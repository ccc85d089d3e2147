"""Static passes over sinks, a window and what is chosen of the host tier: what they have in common, see `graphs.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from engine.memories.static_window import StaticWindow
from engine.memories.window import WindowMemory
from engine.models.spec import Scoring
from kernels.rows import Slabs, StableSlabs

if TYPE_CHECKING:
    from engine.host.retrieving import RetrievingMemory

M = TypeVar("M", bound="RetrievingMemory")


class StaticRetrieving(StaticWindow[M]):
    """`RetrievingMemory.attend` for one token before which something has left the window."""

    def __init__(self, memory: M) -> None:
        """Over buffers and slabs as they are now."""
        super().__init__(memory)
        self.evicted = torch.zeros_like(self.number)  # entries of the host tier that the window does not show
        host, layers = memory.host, range(len(memory.layers))
        self.far = [(_growing(host.keys(layer)), _growing(host.values(layer))) for layer in layers]
        self.wide: list[StaticWindow[WindowMemory]] = [StaticWindow(each) for each in memory.wide]

    def move_to(self, memory: M) -> None:
        """The next token may see what has left its window by now, of the host tier as it is now."""
        super().move_to(memory)
        for mine, each in zip(self.wide, memory.wide, strict=True):
            mine.move_to(each)
        self.evicted.fill_(memory.far)
        self.memory.host = memory.host

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """In layers with a longer window, over that."""
        for each in self.wide:
            if each.memory.spec.layers[layer].kv_heads:
                return each.attend(layer, q, k, v, scoring)
        return super().attend(layer, q, k, v, scoring)


def _growing(slabs: Slabs) -> StableSlabs:
    """The last slab counts whole, as what comes next goes there. Fixed, so that what a kernel has been told of them is
    held by who repeats it.
    """
    *others, (last, _) = slabs
    return StableSlabs([*others, (last, last.shape[1])])
