"""Selection beside a gist (`recall`): selected archive entries that the gist already holds are hidden, per head.

The archive holds the text and nothing of a conversation. All tokens read since the last eviction are in the gist, and
so are entries that wait for their quantisation group to fill.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.search import in_blocks
from engine.parts.attention import BlockTable, PerQueryKeys, Segment, SharedKeys
from engine.parts.mass import mass_rows
from engine.parts.positions import TRUE, FarPlaces, QueryBlocks
from engine.parts.selectors.base import NOTHING_FAR, Selector, searched, selecting_queries
from engine.parts.selectors.stages import EMPTY, Listing, Pruning
from engine.parts.slots import SlotStore
from engine.parts.store import Store
from engine.records import LoadedParts, Parts


class GistSelector(Selector):
    """Selects by InfiniteHiP's pruning, or by exact search, beside entries in slots."""

    store: SlotStore

    def __init__(
        self,
        spec: ModelSpec,
        store: SlotStore,
        archive: Archive,
        pruning: Pruning | None,
        selected: int,
        distance: int,
        attention: str,
    ) -> None:
        """Select beside these slots.

        Args:
            spec: of the model.
            store: the gist.
            archive: the text.
            pruning: the stages; None to search exactly.
            selected: entries that a query sees of the archive at most.
            distance: entries of the gist, at most: how far away the archive lies.
            attention: position rule of selected keys.
        """
        super().__init__(spec, store, archive)
        self.pruning, self.selected, self.distance, self.attention = pruning, selected, distance, attention
        self._evicted = 0  # entries of the archive that may be missing from the gist
        self._lookup: Tensor | None = None  # `Archive.lookup` on the device
        self._held: dict[int, Tensor] = {}  # by layer, see `held_by_heads`; replaced when the gist holds other text
        self._number = torch.zeros(1, dtype=torch.int64, device=spec.device)  # of a fixed pass's token
        self._fixed_blocks: dict[tuple[int, ...], QueryBlocks] = {}

    def num_evicted(self) -> int:
        """Return how many entries of the archive may be selected."""
        return self._evicted

    def begin_pass(self) -> None:
        """Make the entries readable that may be selected. A second look restricts the gist too."""
        archive = self.archive
        archive.prepare_lookup(self._evicted)
        lookup = archive.lookup
        self._lookup = None if lookup is None else lookup.to(self.spec.device, torch.int32, non_blocking=True)
        self._begin_pruning(self._evicted > 0)

    def pass_limit(self) -> int | None:
        """Return how many tokens fit where queries search, because selected entries take room."""
        searching = self.pruning is None and self.archive.answering
        if self.archive.focused is None and not searching:
            return None
        return selecting_queries(self.spec, self.selected)

    def segments(self, layer: int, q: Tensor, catalyst: bool = False) -> list[Segment]:
        """Return the gist, and the selected entries beside it. Slots are shared by all heads of a layer.

        A catalyst sees the gist alone, and all of it.
        """
        mask = None if catalyst else self._gist_mask(layer)
        gist = self.store.segments(layer, q, mask=mask)
        sliding = self.spec.layers[layer].sliding_window is not None
        if catalyst or not self.archive.answering or sliding or self._evicted == 0:
            return gist
        searches = self.pruning is None or self.archive.lookup is not None
        return [*gist, self._searched(layer, q) if searches else self._pruned(layer, q)]

    def _gist_mask(self, layer: int) -> Tensor | None:
        """Return which entries of the gist each head sees at a second look, bool [H, held]; None for all.

        Those that stood out, and those that are not in the text.
        """
        if self._lookup is None or self.store.windows[layer] is not None:
            return None
        source = self.store.column(layer, "source")
        return (source < 0) | (source >= self._evicted) | torch.isin(source, self._lookup)

    def query_blocks(self, size: int) -> QueryBlocks:
        """Return the queries in blocks of `size`, where they stand behind the gist; computed once a pass."""
        store, count = self.store, self.store.tokens
        if not store.fixed:
            if ("blocks", size) not in store.pass_cache:
                blocks = self._blocks_from(self._evicted + store.entries, count, size)
                store.pass_cache["blocks", size] = blocks.to(self.spec.device)
            found: QueryBlocks = store.pass_cache["blocks", size]
            return found
        room = min(slots.capacity - slots.extra_entries for slots in store.own)
        last = self._evicted + store.base_length + room  # the number that a token may have at most
        if (size, last, self._evicted) not in self._fixed_blocks:
            evicted = torch.full_like(self._number, self._evicted)
            blocks = self._blocks_from(last, 1, size).changing(self._number, evicted)
            self._fixed_blocks[size, last, self._evicted] = blocks
        return self._fixed_blocks[size, last, self._evicted]

    def _blocks_from(self, first: int, count: int, size: int) -> QueryBlocks:
        """Return queries with numbers from `first` on, in blocks, on the host; all that is far lies before the gist."""
        blocks = -(-count // size)
        assert self.store.capacity is not None, "where there is a gist there is a budget"
        return QueryBlocks(
            number=first + torch.arange(count),
            size=size,
            evicted=torch.full((blocks,), self._evicted),
            ahead=self.store.capacity - 1,
            fits=torch.zeros(blocks, dtype=torch.bool),
            sinks=0,
            window=self.distance,
            trained=self.spec.window,
        )

    def _pruned(self, layer: int, q: Tensor) -> SharedKeys:
        """Return the archive entries that the stages leave, in order, for each block of queries."""
        assert self.pruning is not None
        keys, values = self.slabs(layer)
        listing = self.pruning.listing(layer, self.store.counted)
        if listing is None:
            probes = self.archive.probes if self._probed else None
            near = None if probes is None else (lambda *_: probes.layers[layer])
            index = self.pruning.choose(layer, q, self.query_blocks, keys, self.store.fixed, near)
            listing = self.pruning.keep(layer, self._listing(layer, index))
        blocks = self.query_blocks(self.pruning.stages[-1].query_block)
        assert listing.chosen is not None
        rope = self.spec.layers[layer].rope
        ranks = listing.ranks if self.attention == "streaming" else None
        places = FarPlaces.of(self.attention, blocks, listing.rows, listing.chosen, ranks)
        cos, sin = rope.table(places.limit)
        size = min(blocks.size, q.shape[1])
        return SharedKeys(
            q=places.rotate_queries(rope, q),
            keys=keys,
            values=values,
            visible=blocks.span(self._evicted),
            table=BlockTable(listing.rows, places.keys, size, cos, sin, listing.head_mask),
            mass_rows=listing.mass_rows,
        )

    def _listing(self, layer: int, index: Tensor) -> Listing:
        """Return chosen entries, int64 [NB, N], as rows of the slabs; those that a head has itself are masked for it.

        Entry i of the archive stands for position i of the source.
        """
        valid = index < self._evicted
        known = torch.where(valid, index, 0)
        held = self.held_by_heads(layer)
        return Listing(
            index,
            torch.where(valid, index, EMPTY),
            mass_rows(known) if self.store.counted else None,
            ~_among(held, known.expand(len(held), -1, -1)),
            valid.sum(dim=1),
        )

    def _searched(self, layer: int, q: Tensor) -> PerQueryKeys:
        """Return the best entries of the archive, or of those to look up, for each query, all at one distance."""
        limits, archive, fixed = torch.full((q.shape[1],), self._evicted), self.archive, self.store.fixed
        if fixed:
            limits = torch.arange(in_blocks(archive.room), device=q.device) >= self._evicted
        turned = self.spec.layers[layer].rope.to_constant(q, self.distance)
        best, index = searched(archive, layer, q, turned, self.selected, limits, archive.lookup, fixed=fixed)
        heads = self.spec.layers[layer].kv_heads
        by_head = index.view(heads, len(q) // heads * q.shape[1], index.shape[2])  # of none, if none is to be looked at
        known = _among(self.held_by_heads(layer), by_head).view(index.shape)
        rows = mass_rows(index) if self.store.counted else None
        return dataclasses.replace(best, seen=best.seen & ~known, mass_rows=rows)

    def held_by_heads(self, layer: int) -> Tensor:
        """Return the source positions that each head of the gist holds, ascending, int64 [H, N], -1 first.

        Computed anew only when the gist holds other tokens of the text.
        """
        if layer not in self._held:
            self._held[layer] = self.store.positions(layer).sort(dim=1).values.long()
        return self._held[layer]

    def graph_kinds(self) -> Sequence[int]:
        """Return `NOTHING_FAR`, or the stages where choices restart; 0 where it searches.

        There are none at a second look, or where positions are true distances.
        """
        if self.archive.lookup is None and self._evicted == 0:
            return (NOTHING_FAR,)
        if self.archive.lookup is not None or not self.archive.readable_in_place():
            return ()
        if self.pruning is None:
            return (0,)
        return () if self.pruning.rules[0].places == TRUE else self.pruning.restarts()

    def graph_key(self) -> tuple[int, ...]:
        """Return addresses of slabs, of the stages' choices and of the gist's entries by head."""
        addresses = self.archive.host.addresses()
        if self._evicted == 0:
            return addresses
        looking = (number for number, layer in enumerate(self.spec.layers) if layer.sliding_window is None)
        held = (self.held_by_heads(layer).data_ptr() for layer in looking)
        return (*addresses, *self._pruning_key(), *held)

    def fix(self) -> None:
        """Write the token's number into a tensor that stays where it is."""
        self._number.fill_(self._evicted + self.store.entries)

    def before_end(self) -> None:
        """Add the text to the archive, without the tokens that the chat template puts before it."""
        if not self.archive.answering:
            self._archive_pass(int((self.store.on_host < 0).sum()))

    def end_pass(self) -> None:
        """Count the step, and forget what held of the gist's entries if they have changed."""
        super().end_pass()
        self._spare_waiting()
        if bool((self.store.on_host >= 0).any()):
            self._forget_held()

    @property
    def grouped(self) -> int:
        """Entries of the archive that lie in whole quantisation groups, once the last pass is there."""
        host = self.archive.host
        return host.length // host.group_size * host.group_size

    def _spare_waiting(self) -> None:
        """Spare entries that wait for their group to fill: they can be found nowhere else."""
        waits = self.grouped < self.archive.host.length
        self.store.unarchived_from = self.grouped if waits else None

    def after_evict(self) -> None:
        """Let all that has been read so far be selected, because it may be missing from the gist."""
        self._evicted = self.grouped
        self._forget_held()

    def _forget_held(self) -> None:
        """Forget results computed from the gist's entries; snapshots keep theirs."""
        self._held = {}
        if self.pruning:
            self.pruning.listings = {}

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a conversation's selector, with tensors of its own."""
        child = super().fork(store, archive)
        child._number, child._fixed_blocks, child._held = torch.zeros_like(self._number), {}, {}
        return child

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return how much may be missing from the gist."""
        return {}, {"far": self._evicted}

    def load(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`."""
        self._evicted, self._held = int(meta["far"]), {}
        self._spare_waiting()


def _among(held: Tensor, index: Tensor) -> Tensor:
    """Return which numbers int64 [H, ...] are among a head's own, ascending [H, N]; bool of that shape."""
    flat = index.reshape(index.shape[0], -1).contiguous()
    place = torch.searchsorted(held, flat).clamp_max(held.shape[1] - 1)
    return (held.gather(1, place) == flat).view(index.shape)
