"""Exact search: each query of a conversation selects the best of all that has left its window."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.search import in_blocks
from engine.parts.attention import PerQueryKeys, Segment
from engine.parts.positions import SearchedPlaces
from engine.parts.selectors.base import searched
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.window import WindowStore


class TopKSelector(WindowSelector):
    """Nothing is selected while a text is read.

    Among more entries than a model was trained for, attention spreads. Beyond the model's window scores are therefore
    multiplied by ln(tokens) / ln(window), which Qwen calls LogN-Scaling (https://arxiv.org/abs/2309.16609).
    """

    counts_parts = True

    def __init__(self, spec: ModelSpec, store: WindowStore, archive: Archive, top_k: int, extend_always: bool) -> None:
        """Search this archive, beside this window.

        top_k: entries per query and head. extend_always: see `WindowSelector`.
        """
        super().__init__(spec, store, archive, extend_always)
        self.top_k = top_k

    @property
    def selects(self) -> bool:
        """True in a conversation."""
        return self.archive.answering

    def picks(self) -> int:
        """Return top_k in a conversation."""
        return self.top_k if self.archive.answering else 0

    def searched_places(self, layer: int) -> SearchedPlaces | None:
        """Return true distances for queries inside the model's window; None if there are none.

        In the first layer a key depends on its token alone, and which of equal keys is found is left to chance. So
        there all of them stay at one distance.
        """
        if layer == 0:
            return None
        if "searched" not in self.store.pass_cache:
            blocks = self.query_blocks(self.store.query_block)
            self.store.pass_cache["searched"] = SearchedPlaces.of(blocks, self.distance)
        found: SearchedPlaces | None = self.store.pass_cache["searched"]
        return found

    @property
    def familiar(self) -> int:
        """Tokens among which the model was trained to find its way."""
        return max(self.spec.window, self.store.sinks + self.store.window)

    def growth(self, count: Tensor) -> Tensor:
        """Return the factor of scores [T, 1] where `count` tokens [T] have been read."""
        return (count.float().log() / math.log(self.familiar)).clamp_min(1).to(self.spec.dtype)[:, None]

    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return sinks, window and, in a conversation, the best of everything else."""
        if not self.archive.answering:
            return self.store.segments(layer, q)
        store, end = self.store, self.store.seen + self.store.tokens
        if store.fixed or end > self.familiar:
            if "growth" not in store.pass_cache:
                count = self._number if store.fixed else torch.arange(store.seen, end, device=self.spec.device)
                store.pass_cache["growth"] = self.growth(count + 1)
            q = q * store.pass_cache["growth"]
        return self.search(layer, q)

    def _found(self, layer: int, q: Tensor) -> tuple[PerQueryKeys, Tensor]:
        """Search; in a fixed pass the query is compared with all keys or sketches there is room for."""
        if not self.store.fixed:
            return super()._found(layer, q)
        host, cache = self.archive.host, self.store.pass_cache
        if "hidden" not in cache:  # a conversation sees what had left the window when it began
            before, room = sum(slab.length for slab in host.slabs[: host.shared]), self.archive.room
            if host.sketch is not None:
                before, room = host.sketch.before, host.sketch.capacity
            there = torch.arange(max(0, before - self.store.window), in_blocks(room), device=self.spec.device)
            cache["hidden"] = there >= self._evicted
        turned, places = self.store.far_queries(layer, q), self.searched_places(layer)
        return searched(self.archive, layer, q, turned, self.top_k, cache["hidden"], places=places, fixed=True)

    def _far_kinds(self) -> Sequence[int]:
        """Return the only kind, for a token of a conversation; sketches must be there if they are searched."""
        sketch = self.archive.host.sketch
        return (0,) if self.archive.answering and (sketch is None or sketch.length > 0) else ()
