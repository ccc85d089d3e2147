"""`truncate`'s evictor: a long conversation is cut in the middle, as the text was."""

from __future__ import annotations

import torch

from engine.parts.evictors.base import UNLIMITED, Evictor
from engine.parts.slots import SlotStore


class MiddleEvictor(Evictor):
    """Drops entries from the middle."""

    store: SlotStore

    def __init__(self, store: SlotStore, tail: int) -> None:
        """tail: entries that are evicted at a time."""
        super().__init__(store)
        self.tail = tail

    def room(self) -> int:
        """Return how many entries the budget still takes."""
        return UNLIMITED if self.store.capacity is None else self.store.capacity - self.store.entries

    def evict(self) -> None:
        """Drop the `tail` entries in the middle."""
        middle = (self.store.entries - self.tail) // 2
        slots = torch.arange(self.store.entries)
        self.store.keep_same(slots[(slots < middle) | (slots >= middle + self.tail)])
