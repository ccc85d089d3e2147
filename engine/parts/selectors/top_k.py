"""Exact search: each query of a conversation selects the best of all that has left its window."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.search import best_by_all_sketches, best_of_room, in_blocks
from engine.parts.attention import Segment
from engine.parts.mass import mass_rows
from engine.parts.positions import SearchedPlaces
from engine.parts.selectors.base import gathered
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
        return self._search_room(layer, q) if store.fixed else self.search(layer, q)

    def _search_room(self, layer: int, q: Tensor) -> list[Segment]:
        """Return the same for a fixed pass, which compares the query with all keys or sketches there is room for."""
        spec, host = self.spec.layers[layer], self.archive.host
        turned = self.store.far_queries(layer, q)
        towards = spec.rope.towards_kept(turned)
        keys, values = self.archive.stable_slabs(layer)
        before, room = (sum(slab.length for slab in host.slabs[: host.shared]), sum(length for _, length in keys))
        if host.sketch is not None:
            before, room = host.sketch.before, host.sketch.capacity
        if "hidden" not in self.store.pass_cache:  # a conversation sees what had left the window when it began
            there = torch.arange(max(0, before - self.store.window), in_blocks(room), device=self.spec.device)
            self.store.pass_cache["hidden"] = there >= self._evicted
        hidden = self.store.pass_cache["hidden"]
        if host.sketch is None:
            found = best_of_room(keys, towards, hidden, self.top_k)
        else:
            found = best_by_all_sketches(host.sketch, layer, keys, towards, hidden, self.top_k)
        places = self.searched_places(layer)
        if places is not None:
            turned = places.rotate_queries(spec.rope, q)
        best = gathered(spec, turned, keys, values, found, places)
        if self.store.counted:
            best = dataclasses.replace(best, mass_rows=mass_rows(host.source_of(found.entries)))
        return [*self.store.segments(layer, q), best]

    def _far_kinds(self) -> Sequence[int]:
        """Return the only kind, for a token of a conversation; sketches must be there if they are searched."""
        sketch = self.archive.host.sketch
        return (0,) if self.archive.answering and (sketch is None or sketch.length > 0) else ()
