"""Exact search: each query of a conversation selects the best of all that has left its window."""

from __future__ import annotations

import dataclasses
import math

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

    def __init__(
        self, spec: ModelSpec, store: WindowStore, archive: Archive, top_k: int, logn: bool, extend_always: bool
    ) -> None:
        """Search this archive, beside this window.

        top_k: entries per query and head. logn: whether scores grow beyond the model's window. extend_always: see
        `WindowSelector`.
        """
        super().__init__(spec, store, archive, extend_always)
        self.top_k, self.logn = top_k, logn
        self._places: SearchedPlaces | None = None  # of this pass
        self._factor: Tensor | None = None  # of this pass: multiplies its queries, [T, 1]
        self._hidden: Tensor | None = None  # of a fixed pass: which of the last sketches its token does not see

    @property
    def selects(self) -> bool:
        """True in a conversation."""
        return self.archive.answering

    def picks(self) -> int:
        """Return top_k in a conversation."""
        return self.top_k if self.archive.answering else 0

    def begin_pass(self) -> None:
        """Make the archive readable. Scores do not grow at a second look."""
        super().begin_pass()
        self._factor, self._places, end = None, None, self.store.seen + self.store.tokens
        first_look = self.archive.answering and self.archive.lookup is None
        if self.logn and first_look and end > self.familiar:
            count = torch.arange(self.store.seen + 1, end + 1, device=self.spec.device)
            self._factor = self.growth(count)

    def start_layers(self) -> None:
        """Forget tensors of all layers, which a recording computes itself."""
        super().start_layers()
        self._factor = self._hidden = self._places = None

    def searched_places(self, layer: int) -> SearchedPlaces | None:
        """Return true distances for queries inside the model's window; None if there are none.

        In the first layer a key depends on its token alone, and which of equal keys is found is left to chance. So
        there all of them stay at one distance.
        """
        if layer > 0 and self._places is None:
            self._places = SearchedPlaces.of(self.query_blocks(self.store.query_block), self.distance)
        return self._places if layer > 0 else None

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
        if not self.store.fixed:
            return self.search(layer, q if self._factor is None else q * self._factor)
        if self.logn and self._factor is None:
            self._factor = self.growth(self._number + 1)
        return self._search_room(layer, q if self._factor is None else q * self._factor)

    def _search_room(self, layer: int, q: Tensor) -> list[Segment]:
        """Return the same for a fixed pass, which compares the query with all keys or sketches there is room for."""
        spec, host = self.spec.layers[layer], self.archive.host
        turned = self.store.far_queries(layer, q)
        towards = spec.rope.towards_kept(turned)
        keys, values = self.archive.stable_slabs(layer)
        before, room = (sum(slab.length for slab in host.slabs[: host.shared]), sum(length for _, length in keys))
        if host.sketch is not None:
            before, room = host.sketch.before, host.sketch.capacity
        if self._hidden is None:  # a conversation sees the entries that had left the window when it began
            first = max(0, before - self.store.window)
            self._hidden = torch.arange(first, in_blocks(room), device=self.spec.device) >= self._evicted
        if host.sketch is None:
            found = best_of_room(keys, towards, self._hidden, self.top_k)
        else:
            found = best_by_all_sketches(host.sketch, layer, keys, towards, self._hidden, self.top_k)
        places = self.searched_places(layer)
        if places is not None:
            turned = places.rotate_queries(spec.rope, q)
        best = gathered(spec, turned, keys, values, found, places)
        if self.store.counted:
            best = dataclasses.replace(best, mass_rows=mass_rows(host.source_of(found.entries)))
        return [*self.store.segments(layer, q), best]

    def far_kind(self) -> int | None:
        """Return the only kind, for a token of a conversation; sketches must be there if they are searched."""
        sketch = self.archive.host.sketch
        searching = self.archive.answering and (sketch is None or sketch.length > 0)
        return 0 if searching else None
