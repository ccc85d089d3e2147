"""InfiniteHiP's selection beside a window: each block of queries prunes the archive to a few chunks."""

from __future__ import annotations

import dataclasses
import functools
from typing import Self

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.attention import Segment
from engine.parts.positions import TRUE, QueryBlocks
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.selectors.stages import LayerRule, Pruning, Stage
from engine.parts.store import Store
from engine.parts.window import WindowStore
from engine.records import Usage


@dataclasses.dataclass(frozen=True)
class FirstLayers:
    """Rules of the first layers. See the settings of `InfiniteHiP`.

    Attributes:
        count: how many layers these are.
        rule: how they prune.
        recent: newest far entries that they see instead of pruning, 0 to prune.
    """

    count: int
    rule: LayerRule
    recent: int = 0


class PruningSelector(WindowSelector):
    """Selects the entries that the last stage leaves; they and sinks are attended to beside the window."""

    def __init__(
        self,
        spec: ModelSpec,
        store: WindowStore,
        archive: Archive,
        stages: tuple[Stage, ...],
        rule: LayerRule,
        first: FirstLayers,
        attention: str,
        extend_always: bool,
    ) -> None:
        """attention: position rule of far keys. extend_always: never put them at true distances."""
        super().__init__(spec, store, archive)
        self.first, self.attention, self.extend_always = first, attention, extend_always
        rules = [first.rule if layer < first.count else rule for layer in range(len(spec.layers))]
        self.pruning = Pruning(spec, stages, rules)
        self._true = TRUE in (rule.places, first.rule.places)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, coarse to fine."""
        return self.pruning.stages

    def picks(self) -> int:
        """Return, at a second look, as many entries as the last stage leaves."""
        return 0 if self.archive.focused is None else self.stages[-1].keep

    def begin_pass(self) -> None:
        """Make the archive readable. A longer pass ends the decoding before it."""
        super().begin_pass()
        self.pruning.begin(self.archive.answering and self.store.tokens == 1)

    def prunes(self, layer: int) -> bool:
        """Tell whether a layer prunes its far entries."""
        newest = self.first.recent > 0 and layer < self.first.count
        return not newest and self.spec.layers[layer].sliding_window is None

    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return window, sinks and the entries that the last stage leaves."""
        blocks = self.query_blocks(self.stages[-1].query_block, self.extend_always)
        if not self.prunes(layer):
            return self.beside_window(layer, q, blocks, self.newest(blocks), self.attention, banked=False)
        listing = self.pruning.listing(layer, self.store.counted) if self.bank is None else None
        if listing is None:
            keys = self.archive.stable_slabs(layer)[0] if self.store.fixed else self.archive.slabs(layer)[0]
            blocks_of = functools.partial(self.query_blocks, extend=self.extend_always)
            index = self.pruning.choose(layer, q, blocks_of, keys, self.store.fixed)
            if self.bank is not None:
                return self.beside_window(layer, q, blocks, index, self.attention)
            listing = self.pruning.keep(layer, self.listing(index))
        near = self.store.segments(layer, q, sinks_for=blocks.near)
        return [*near, self.listed(layer, q, blocks, listing, self.attention)]

    def newest(self, blocks: QueryBlocks) -> Tensor:
        """Return the newest far entries of each block, int64 [NB, N]; the first layers see them instead of pruning."""
        most = self.first.recent if self.store.fixed else min(self.first.recent, blocks.last)
        first = (blocks.evicted - most).clamp_min(0)
        return first[:, None] + torch.arange(most, device=first.device)

    def far_kind(self) -> int | None:
        """Return the stage where the next token's choice restarts; None where all positions are true distances."""
        self._may_fit = self._may_fit or self.fits_window
        return None if self._true else self.pruning.restart()

    def graph_key(self) -> tuple[int, ...]:
        """Return addresses of slabs and of the stages' choices."""
        self.pruning.make_room(self.archive.room)
        return (*super().graph_key(), *self.pruning.graph_key(), self._may_fit)

    def end_pass(self) -> None:
        """Count the step and the stages that ran."""
        self.pruning.end_pass(self.store.fixed)

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a conversation's selector, with runs of its own."""
        child = super().fork(store, archive)
        child.pruning = self.pruning.fork()
        return child

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now."""
        child = super().snapshot(store, archive)
        child.pruning = self.pruning.snapshot()
        return child

    def usage(self, usage: Usage) -> Usage:
        """Add how often each stage ran."""
        return dataclasses.replace(super().usage(usage), stages=tuple(self.pruning.runs))
