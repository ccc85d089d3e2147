"""InfiniteHiP's selection beside a window: each block of queries prunes the archive to a few chunks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.attention import Segment
from engine.parts.positions import TRUE, QueryBlocks
from engine.parts.selectors.asked import Asked
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.selectors.key_stream import KeyStream, streamed_bytes
from engine.parts.selectors.pass_units import gathered_units, pass_units, pass_units_bytes
from engine.parts.selectors.stages import LayerRule, Listing, Pruning, Stage
from engine.parts.store import Store
from engine.parts.window import WindowStore
from engine.records import DISK
from kernels.pruning import Copies
from kernels.rows import Slabs


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

    @property
    def seen(self) -> int:
        """Most far entries that a query of these layers sees."""
        return self.recent or self.rule.keep

    def mean_seen(self, layers: int, keep: int) -> float:
        """Return how many far entries a query sees, on average over a model's layers.

        layers: of the model. keep: entries that pruning leaves in those behind the first.
        """
        count = min(self.count, layers)
        return (count * self.seen + (layers - count) * keep) / layers


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
        grouped: bool = False,
    ) -> None:
        """Start without a choice.

        attention: position rule of far keys. extend_always: see `WindowSelector`. grouped: see `Pruning`.
        """
        super().__init__(spec, store, archive, extend_always)
        self.first, self.attention = first, attention
        rules = [first.rule if layer < first.count else rule for layer in range(len(spec.layers))]
        self.pruning: Pruning = Pruning(spec, stages, rules, grouped)
        self._true = TRUE in (rule.places, first.rule.places)
        self._stream: KeyStream | None = None  # in a pass that brings all keys to the device

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
        if self._stream is not None:
            self._stream.stop()
        self._stream = KeyStream(self.archive, self.choosing_layers()) if self._streams() else None
        self._begin_pruning(self._looks_far)
        if self.bank is not None and self.pruning.restart() == len(self.stages) and self.bank.stale:
            self._bring_again()

    def _streams(self) -> bool:
        """Tell whether all keys come to the device for this pass of text, because stages would ask for more of them."""
        archive, tokens = self.archive, self.store.tokens
        host, far = archive.host, int(self.evicted(tokens)[-1])
        if far <= 0 or archive.answering or archive.tier == DISK:
            return False
        there = {bank.device.type for slab in host.slabs for bank in slab.keys} == {self.spec.device.type}
        if there or not streamed_bytes(host.spec, host.dtype, host.stored):
            return False
        block = self.stages[-1].query_block
        grouped = self.pruning.grouped
        return Asked(self.spec, far, 0, block=block, stages=self.stages, grouped=grouped, together=tokens).streams()

    def _bring_again(self) -> None:
        """Look up again what was chosen for the tokens until a stage is due, because it may have left its slots."""
        assert self.bank is not None
        limits = torch.full((1,), self.num_evicted(), device=self.spec.device)
        with self.bank.tried():
            for layer, listing in self.pruning.listings.items():
                starts = listing.index[:, :: self.bank.bank.size]
                self.bank.prepare(layer)
                rows = self.bank.bring(layer, self.archive.slabs(layer), starts, limits)
                listing.rows[:, self.store.sinks :] = rows

    def choosing_layers(self) -> list[int]:
        """Return the layers that prune, and do not see the newest far entries instead."""
        return [layer for layer in super().choosing_layers() if not self._sees_newest(layer)]

    def _sees_newest(self, layer: int) -> bool:
        return self.first.recent > 0 and layer < self.first.count

    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return window, sinks and the entries that the last stage leaves."""
        blocks = self.query_blocks(self.stages[-1].query_block)
        if self._sees_newest(layer):
            return self.beside_window(layer, q, blocks, self.newest(blocks), self.attention, banked=False)
        listing, slabs = self.pruning.listing(layer, self.store.counted), None
        if listing is None:
            keys, values = self.slabs(layer)
            if self._stream is not None:
                keys = self._stream.keys(layer)
                if self.spec.layers[layer].latent:
                    values = keys
            copies = functools.partial(self._copies, layer) if self._probed else None
            index = self.pruning.choose(layer, q, self.query_blocks, keys, self.store.fixed, copies)
            if self.bank is not None:
                listing, slabs = self.brought(layer, blocks, index)
            elif self._stream is not None and self.archive.readable_in_place():
                listing, slabs = self._gathered(layer, blocks, index, (keys, values))
            else:
                listing = self.listing(index)
            listing = self.pruning.keep(layer, listing)
        elif self.bank is not None:
            slabs = self.bank.slabs(layer, self._sinks(layer))
            self.store.pass_cache["banked", layer] = listing.index, listing.rows[:, self.store.sinks :]
        near = self.store.segments(layer, q, sinks_for=blocks.near)
        return [*near, self.listed(layer, q, blocks, listing, self.attention, slabs)]

    def _copies(self, layer: int, number: int, starts: Tensor, limits: Tensor) -> Copies:
        """Return copies of keys for a stage. Chunks of the last stage come to the bank, if it has room for them all.

        They serve until an earlier stage is due, and the chunks that the last one chooses are among them.
        """
        probes = self.archive.probes
        assert probes is not None
        near, bank = probes.layers[layer], self.bank
        if bank is None or near.every == 1 or not 0 < number == len(self.stages) - 1:
            return near
        if starts.numel() > bank.bank.units:
            return near
        if not self.store.fixed:
            bank.prepare(layer)
        places = bank.bring(layer, self.slabs(layer), starts, limits)[:, :: bank.bank.size] - bank.sinks
        return dataclasses.replace(near, units=bank.bank.layers[layer].keys, places=places)

    def _gathered(
        self, layer: int, blocks: QueryBlocks, index: Tensor, slabs: tuple[Slabs, Slabs]
    ) -> tuple[Listing, tuple[Slabs, Slabs]]:
        """Bring the entries that all blocks of a pass have chosen to the device once, if they are few enough.

        Returns:
            Sinks and chosen entries as rows, and the slabs of these rows.
        """
        spec, size, rows = self.spec.layers[layer], self.stages[-1].chunk, None
        starts = index[:, ::size]
        units = pass_units(starts.numel(), self.archive.readable, size)
        if not spec.latent and pass_units_bytes(spec, self.archive.host.dtype, units, size):
            slabs, rows = gathered_units(slabs, starts, blocks.evicted, units, size, self.store.sinks)
        keys, values = ([(sink, self.store.sinks), *rest] for sink, rest in zip(self._sinks(layer), slabs, strict=True))
        return self.listing(index, rows), (keys, values)

    def newest(self, blocks: QueryBlocks) -> Tensor:
        """Return the newest far entries of each block, int64 [NB, N]; the first layers see them instead of pruning."""
        most = self.first.recent if self.store.fixed else min(self.first.recent, blocks.last)
        first = (blocks.evicted - most).clamp_min(0)
        return first[:, None] + torch.arange(most, device=first.device)

    def _far_kinds(self) -> Sequence[int]:
        """Return the stages where choices restart; none where all positions are true distances."""
        return () if self._true else self.pruning.restarts()

    @contextmanager
    def as_if(self, kind: int) -> Iterator[None]:
        """Let choices inside the block restart at this stage, and not be kept."""
        with super().as_if(kind):
            try:
                with self.pruning.restarting_at(kind):
                    yield
            finally:
                if self.bank is not None:
                    self._bring_again()

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now."""
        child = super().snapshot(store, archive)
        child._stream = None
        return child
