"""Exact search: each query of a conversation selects the best of all that has left its window."""

from __future__ import annotations

import dataclasses
import math
import sys

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.search import best_by_all_sketches
from engine.parts.attention import Segment
from engine.parts.mass import mass_rows
from engine.parts.positions import far_query_position
from engine.parts.selectors.base import gathered
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.window import WindowStore


class TopKSelector(WindowSelector):
    """Nothing is selected while a text is read.

    Among more entries than a model was trained for, attention spreads. Beyond the model's window scores are therefore
    multiplied by ln(tokens) / ln(window), which Qwen calls LogN-Scaling (https://arxiv.org/abs/2309.16609).
    """

    def __init__(self, spec: ModelSpec, store: WindowStore, archive: Archive, top_k: int, logn: bool) -> None:
        """top_k: entries per query and head. logn: whether scores grow beyond the model's window."""
        super().__init__(spec, store, archive)
        self.top_k, self.logn = top_k, logn
        self._factor: Tensor | None = None  # of this pass: multiplies its queries, [T, 1]
        self._hidden: Tensor | None = None  # of a fixed pass: which of the last sketches its token does not see

    def pass_limit(self) -> int:
        """Return how many tokens fit; without a search a pass may be of any length."""
        return super().pass_limit() if self.archive.searched_by_queries else sys.maxsize

    def picks(self) -> int:
        """Return top_k in a conversation."""
        return self.top_k if self.archive.searched_by_queries else 0

    def begin_pass(self) -> None:
        """Make the archive readable. Scores do not grow at a second look."""
        super().begin_pass()
        self._factor, end = None, self.store.seen + self.store.tokens
        first_look = self.archive.searched_by_queries and self.archive.lookup is None
        if self.logn and first_look and end > self.familiar:
            count = torch.arange(self.store.seen + 1, end + 1, device=self.spec.device)
            self._factor = self.growth(count)

    def start_layers(self) -> None:
        """Forget tensors of all layers, which a recording computes itself."""
        super().start_layers()
        self._factor = self._hidden = None

    @property
    def familiar(self) -> int:
        """Tokens among which the model was trained to find its way."""
        return max(self.spec.window, self.store.sinks + self.store.window)

    def growth(self, count: Tensor) -> Tensor:
        """Return the factor of scores [T, 1] where `count` tokens [T] have been read."""
        return (count.float().log() / math.log(self.familiar)).clamp_min(1).to(self.spec.dtype)[:, None]

    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return sinks, window and, in a conversation, the best of everything else."""
        if not self.archive.searched_by_queries:
            return self.store.segments(layer, q)
        if not self.store.fixed:
            return self.search(layer, q if self._factor is None else q * self._factor)
        if self.logn and self._factor is None:
            self._factor = self.growth(self._number + 1)
        return self._by_sketches(layer, q if self._factor is None else q * self._factor)

    def _by_sketches(self, layer: int, q: Tensor) -> list[Segment]:
        """Return the same for a fixed pass, which compares the query with all sketches there is room for."""
        spec, sketch = self.spec.layers[layer], self.archive.host.sketch
        assert sketch is not None, "only what is found by sketches is recorded"
        turned = spec.rope.to_constant(q, far_query_position(self.store.sinks, self.store.window))
        keys, values = self.archive.stable_slabs(layer)
        if self._hidden is None:  # a conversation sees the entries that had left the window when it began
            first = max(0, sketch.before - self.store.window)
            self._hidden = torch.arange(first, sketch.capacity, device=self.spec.device) >= self._evicted
        found = best_by_all_sketches(sketch, layer, keys, spec.rope.towards_kept(turned), self._hidden, self.top_k)
        best = gathered(spec, turned, keys, values, found)
        if self.store.counted:
            best = dataclasses.replace(best, mass_rows=mass_rows(self.archive.host.source_of(found.entries)))
        return [*self.store.segments(layer, q), best]

    def graph_kind(self) -> int | None:
        """Return the only kind, where sketches are searched at a first look."""
        archive, sketch = self.archive, self.archive.host.sketch
        searching = archive.searched_by_queries and archive.lookup is None and self.num_evicted() > 0
        return 0 if searching and sketch is not None and sketch.length and archive.readable_in_place() else None
