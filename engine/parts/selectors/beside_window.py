"""Selectors beside a window: sinks and window on the device, everything behind the sinks in the archive.

`exact` searches every entry for each query; `infllm` and `infinitehip` choose entries for each block of queries, and
attend to sinks, chosen entries and window in one softmax. Sizes: HQ query heads, H KV heads, T queries, NB blocks of
queries, N entries chosen for a block, D head size.
"""

from __future__ import annotations

import dataclasses
import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor

from engine.models.rope import Rope
from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.bank import DeviceBank
from engine.parts.attention import BlockTable, PerQueryKeys, Segment, SharedKeys, VisibleRange
from engine.parts.mass import mass_rows
from engine.parts.positions import FarPlaces, QueryBlocks, SearchedPlaces, far_query_position
from engine.parts.selectors.banked import BankUse
from engine.parts.selectors.base import NOTHING_FAR, Selector, searched, selecting_queries
from engine.parts.selectors.stages import EMPTY, Listing
from engine.parts.store import Store
from engine.parts.window import WindowStore
from engine.records import Usage
from kernels.rows import Slabs


def window_pass_limit(window: int, together: int, block: int, most: int | None = None) -> int:
    """Return how many tokens a pass beside a window may carry: whole blocks of queries, if there is room for one.

    Args:
        window: its entries.
        together: entries of the archive that become visible together.
        block: queries that choose together.
        most: queries that there is room for otherwise, or None.
    """
    room = window - together + 1
    room = room if most is None else min(room, most)
    return max(room // block * block, min(room, block))


class WindowSelector(Selector):
    """Selects from entries that have left a window. Layers with their own sliding window see no others."""

    store: WindowStore

    def __init__(self, spec: ModelSpec, store: WindowStore, archive: Archive, extend_always: bool) -> None:
        """Select from this archive, beside this window; `store.query_block` queries of a pass choose together.

        extend_always: whether far keys are never at true distances.
        """
        super().__init__(spec, store, archive)
        self.extend_always = extend_always
        # At which queries search, and see what they find unless `searched_places` says otherwise
        self.distance = far_query_position(store.sinks, store.window)
        self.bank: BankUse | None = None
        self._looks_far = False  # whether something has left the window of a query of this pass
        # Of a fixed pass: number of its token [1] and entries that it does not see [1]
        self._number = torch.zeros(1, dtype=torch.int64, device=spec.device)
        self._evicted = torch.zeros_like(self._number)
        self._fits = torch.zeros(1, dtype=torch.bool, device=spec.device)  # whether it ends inside the model's window
        self._may_fit = False  # whether that has been so since the conversation began; only then may it be again
        self._fixed_blocks: dict[Any, QueryBlocks] = {}  # of fixed passes, by size and `_may_fit`
        self._whole: dict[int, VisibleRange] = {}  # by the number of rows

    def use_bank(self, units: int, size: int, by_attention: bool = False) -> None:
        """Keep `units` units of `size` entries on the device; 0 for none. by_attention: see `DeviceBank`."""
        if units:
            bank = DeviceBank(self.archive.host.spec, units, size, by_attention)
            self.bank = BankUse(bank, self.archive, self.store.sinks)

    def picks(self) -> int:
        """Return how many entries each query of the next pass selects by itself, in each head."""
        return 0

    def pass_limit(self) -> int:
        """Return how many tokens the next pass may carry: whole blocks of queries, if there is room for one.

        Blocks of queries look up entries of their own pass too (`Archive.look_ahead`), so it may be of any length.
        Queries that search by themselves search slabs alone. So their pass is no longer than the window, with a
        quantisation group that is not whole, and has no more of them than there is room for selected entries.
        """
        picks = self.picks()
        if not picks:
            return sys.maxsize
        most = selecting_queries(self.spec, picks)
        return window_pass_limit(self.store.window, self.archive.host.together, self.store.query_block, most)

    def begin_pass(self) -> None:
        """Make the entries readable that leave the windows of the pass."""
        store = self.store
        self.archive.prepare_lookup(max(0, store.seen + store.tokens - store.sinks - store.window))
        evicted = int(self.evicted(store.tokens)[-1])
        self._looks_far = evicted > 0
        if evicted > self.archive.host.stored and self.selects:
            self.archive.look_ahead(store.on_host[store.new_sinks :])
        if self.bank is not None:
            self.bank.begin_pass(evicted)

    @property
    def selects(self) -> bool:
        """True if queries select anything now."""
        return True

    def observe(self, layer: int, q: Tensor) -> None:
        """Show the entries of the pass to its own queries, if some of them have to be looked up."""
        if self.archive.passing is not None:
            self.archive.show(layer, *self.store.rows_of(self.store.layers[layer]))

    def num_evicted(self) -> int:
        """Return how many entries of the archive the next token's window does not show."""
        return int(self.evicted(1)[0])

    def evicted(self, count: int) -> Tensor:
        """Return how many entries have left the window of each block of `count` queries, int64 [NB] on the host."""
        store = self.store
        first = torch.arange(store.seen, store.seen + count, store.query_block)
        return (first - store.sinks - store.window + 1).clamp_min(0)

    def query_blocks(self, size: int) -> QueryBlocks:
        """Return the pass's queries in blocks of `size`, a divisor of query_block; computed once a pass."""
        known = self._fixed_blocks if self.store.fixed else self.store.pass_cache
        key = "blocks", size, self.store.fixed and self._may_fit
        if key not in known:
            store, count = self.store, self.store.tokens
            evicted = self.evicted(count).repeat_interleave(store.query_block // size)[: -(-count // size)]
            blocks = QueryBlocks(
                number=torch.arange(store.seen, store.seen + count),
                size=size,
                evicted=evicted,
                ahead=self._ahead,
                fits=(evicted + self._ahead < self.spec.window) & (not self.extend_always),
                sinks=store.sinks,
                window=store.window,
                trained=self.spec.window,
            )
            if store.fixed:
                known[key] = blocks.changing(self._number, self._evicted, self._fits if self._may_fit else None)
            else:
                known[key] = blocks.to(self.spec.device)
        found: QueryBlocks = known[key]
        return found

    @property
    def _ahead(self) -> int:
        """Greatest difference between a query's number and what its block has evicted.

        Where a block ends is asked of the whole block that it is part of, however long the pass.
        """
        return self.store.sinks + self.store.window + self.store.query_block - 2

    @property
    def fits_window(self) -> bool:
        """True if the next token sees far keys at true distances, as its block ends inside the model's window."""
        return not self.extend_always and self.num_evicted() + self._ahead < self.spec.window

    def segments(self, layer: int, q: Tensor, catalyst: bool = False) -> list[Segment]:
        """Return sinks and window, and the entries that the method selects or a second look searches."""
        if not self._looks_far or self.spec.layers[layer].sliding_window is not None:
            return self.store.segments(layer, q)
        return self.select(layer, q) if self.archive.lookup is None else self.search(layer, q)

    def at_distance(self, rope: Rope, q: Tensor, distance: int) -> Tensor:
        """Return the queries of a layer at the distance at which all that is far lies for them; computed once."""
        turned: Tensor
        given, turned = self.store.pass_cache.get("at distance", (None, q))
        if given is not q:
            turned = rope.to_constant(q, distance)
            self.store.pass_cache["at distance"] = q, turned
        return turned

    @abstractmethod
    def select(self, layer: int, q: Tensor) -> list[Segment]:
        """Return all segments at a first look, for queries [HQ, T, D], before RoPE."""

    def beside_window(
        self, layer: int, q: Tensor, blocks: QueryBlocks, index: Tensor, rule: str, banked: bool = True
    ) -> list[Segment]:
        """Return window, sinks and chosen entries.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], before RoPE.
            blocks: of the queries.
            index: int64 [NB, N], entries of the archive in order, `EMPTY` behind them.
            rule: of ATTENTION_RULES.
            banked: whether the bank is asked, if there is one.
        """
        near = self.store.segments(layer, q, sinks_for=blocks.near)
        if self.bank is None or not banked:
            return [*near, self.listed(layer, q, blocks, self.listing(index), rule)]
        listing, slabs = self.brought(layer, blocks, index)
        return [*near, self.listed(layer, q, blocks, listing, rule, slabs)]

    def brought(self, layer: int, blocks: QueryBlocks, index: Tensor) -> tuple[Listing, tuple[Slabs, Slabs]]:
        """Bring chosen entries, whole units one after another, to the bank.

        Returns:
            Sinks and chosen entries as rows of the bank behind the sinks, and the slabs of these rows.
        """
        assert self.bank is not None
        sinks = self._sinks(layer)
        starts, slabs = index[:, :: self.bank.bank.size], self.slabs(layer)
        if not self.store.fixed:
            self.bank.prepare(layer)
        if starts.numel() <= self.bank.bank.units:
            rows = self.bank.bring(layer, slabs, starts, blocks.evicted)[:, : index.shape[1]]
            self.store.pass_cache["banked", layer] = index, rows
            return self.listing(index, rows), self.bank.slabs(layer, sinks)
        rows, *copies = self.bank.gathered(layer, slabs, starts, blocks.evicted)
        self.store.pass_cache["banked", layer] = index, rows[:, : index.shape[1]]
        keys, values = (
            [(sink, self.store.sinks), (copy, copy.shape[1])] for sink, copy in zip(sinks, copies, strict=True)
        )
        rows = torch.arange(rows.numel(), device=rows.device).view_as(rows) + self.store.sinks
        return self.listing(index, rows[:, : index.shape[1]]), (keys, values)

    def _sinks(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.store.layers[layer].unrotated_sinks

    def _listed_slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return keys and values of a layer, sinks first."""
        (keys, values), sinks, count = self.slabs(layer), self._sinks(layer), self.store.sinks
        return [(sinks[0], count), *keys], [(sinks[1], count), *values]

    def listing(self, index: Tensor, rows: Tensor | None = None) -> Listing:
        """Return sinks and chosen entries, int64 [NB, N], as rows of the slabs of a layer.

        rows: of the bank, where the entries are; None for those of the archive.
        """
        sinks, entries = self.store.sinks, None
        first = torch.arange(sinks, device=index.device).expand(len(index), -1)
        if rows is not None:
            entries = torch.cat([torch.full_like(first, -1), index], dim=1)
        rows = torch.cat([first, index + sinks if rows is None else rows], dim=1)
        if not self.store.counted:
            return Listing(index, rows, entries=entries)
        known = mass_rows(self.store.source[:sinks]).expand(len(index), -1)
        chosen = mass_rows(self.archive.source_of(index.clamp_max(self.archive.readable - 1)))
        return Listing(index, rows, torch.cat([known, chosen], dim=1), entries=entries)

    def listed(
        self,
        layer: int,
        q: Tensor,
        blocks: QueryBlocks,
        listing: Listing,
        rule: str,
        slabs: tuple[Slabs, Slabs] | None = None,
    ) -> SharedKeys:
        """Return a listing as queries see it: of the entries, those that have left the window of their block.

        slabs: keys and values that the listing's rows index, sinks first; None for those of the archive.
        """
        rope, sinks = self.spec.layers[layer].rope, self.store.sinks
        original, evicted = listing.rows, blocks.evicted[:, None]
        if rule == "dynamic" or blocks.fitting:  # keys stand where their tokens do; unseen ones stand anywhere
            index = torch.where(listing.index < evicted, listing.index, 0)
            original = torch.cat([original[:, :sinks], index + sinks], dim=1)
        # The rule counts the entries before the end of each block's, which are in order for it.
        chosen = torch.searchsorted(listing.index, evicted)[:, 0] if rule == "streaming" else None
        places = FarPlaces.of(rule, blocks, original, chosen, listing.ranks if rule == "streaming" else None)
        if isinstance(places.queries, int):
            turned = self.at_distance(rope, q, places.queries)
        else:
            turned = places.rotate_queries(rope, q)
        cos, sin = rope.table(places.limit)
        keys, values = self._listed_slabs(layer) if slabs is None else slabs
        if listing.entries is None:
            rows, visible = listing.rows, self._far_range(blocks)
        else:  # rows of a bank are not in the order of entries
            rows = torch.where(listing.entries < evicted, listing.rows, EMPTY)
            visible = self._whole_range if self.store.fixed else blocks.span(sum(length for _, length in keys))
        return SharedKeys(
            q=turned,
            keys=keys,
            values=values,
            visible=visible,
            table=BlockTable(rows, places.keys, min(blocks.size, q.shape[1]), cos, sin),
            mass_rows=listing.mass_rows,
        )

    def _far_range(self, blocks: QueryBlocks) -> VisibleRange:
        """Return the rows of sinks and archive that queries see: none in blocks that have evicted nothing."""
        if not self.store.fixed:
            return blocks.span_behind(self.store.sinks)
        if "far" not in self.store.pass_cache:
            end = self._evicted + self.store.sinks
            self.store.pass_cache["far"] = VisibleRange(torch.zeros_like(end), end, changing=True)
        found: VisibleRange = self.store.pass_cache["far"]
        return found

    @property
    def _whole_range(self) -> VisibleRange:
        """All rows of sinks and bank, which the query of a fixed pass sees as far as they are listed."""
        assert self.bank is not None
        key = self.bank.rows
        if key not in self._whole:
            end = torch.full_like(self._evicted, key)
            self._whole[key] = VisibleRange(torch.zeros_like(end), end, changing=True)
        return self._whole[key]

    def search(self, layer: int, q: Tensor) -> list[Segment]:
        """Return sinks, window and the `picks` best entries of each query of each head."""
        best, index = self._found(layer, q)
        if self.store.counted:
            best = dataclasses.replace(best, mass_rows=mass_rows(self.archive.host.source_of(index)))
        return [*self.store.segments(layer, q), best]

    def _found(self, layer: int, q: Tensor) -> tuple[PerQueryKeys, Tensor]:
        """Search the entries that a second look is restricted to, or all."""
        cache, block, archive = self.store.pass_cache, self.store.query_block, self.archive
        if "limits" not in cache:
            cache["limits"] = self.evicted(q.shape[1]).repeat_interleave(block)[: q.shape[1]]
        turned, places = self.spec.layers[layer].rope.to_constant(q, self.distance), self.searched_places(layer)
        return searched(archive, layer, q, turned, self.picks(), cache["limits"], archive.lookup, places)

    def searched_places(self, layer: int) -> SearchedPlaces | None:
        """Return the positions of the pass's queries and of the entries that they find; None for `distance`."""
        return None

    def make_room(self, tokens: int) -> None:
        """Make room in the archive."""
        self.archive.host.make_room(tokens)

    def graph_kinds(self) -> Sequence[int]:
        """Return `NOTHING_FAR`, or `_far_kinds`; none at a second look or where the host reads the archive."""
        if not self._looks_far:
            return (NOTHING_FAR,)
        self._may_fit = self._may_fit or self.fits_window
        in_place = self.archive.lookup is None and self.archive.readable_in_place()
        return self._far_kinds() if in_place else ()

    def _far_kinds(self) -> Sequence[int]:
        """Return the kinds for tokens that look far, not negative, as `graph_kinds` does. By default there are none."""
        return ()

    def choosing_layers(self) -> list[int]:
        """Return the layers whose queries choose entries."""
        return [number for number, layer in enumerate(self.spec.layers) if layer.sliding_window is None]

    def graph_key(self) -> tuple[int, ...]:
        """Return addresses of slabs and of the bank, and whether far keys may be at true distances."""
        key = (*super().graph_key(), self._may_fit, *self._pruning_key())
        if self.bank is None or not self._looks_far:
            return key
        for layer in self.choosing_layers():
            self.bank.prepare(layer)
        return (*key, *self.bank.bank.addresses())

    def as_if(self, kind: int) -> AbstractContextManager[None]:
        """Let passes inside the block be of this kind, and not be counted."""
        return nullcontext() if self.bank is None else self.bank.tried()

    def fix(self) -> None:
        """Write the token's number and the number of evicted entries into tensors at fixed addresses."""
        due = self.pruning is None or self.pruning.restart() != len(self.pruning.stages)
        if self.bank is not None and self._looks_far and due:
            self.bank.note()
        self._number.fill_(self.store.seen)
        self._evicted.fill_(self.num_evicted())
        self._fits.fill_(self.fits_window)

    def watches(self, layer: int) -> bool:
        """Tell whether the bank gives up the entries with the least attention."""
        banked = ("banked", layer) in self.store.pass_cache
        return banked and self.bank is not None and self.bank.bank.by_attention

    def attended(self, layer: int, attention: list[Tensor]) -> None:
        """Tell the bank how much attention its units got."""
        assert self.bank is not None
        entries, rows = self.store.pass_cache["banked", layer]
        self.bank.attended(layer, rows, entries, attention[-1][..., self.store.sinks :].sum(dim=0))

    def positions(self) -> Tensor:
        """Return int32 [N] on the host: sinks, then everything in the archive."""
        return torch.cat([self.store.known_sinks().cpu(), self.archive.host.source()])

    def before_end(self) -> None:
        """Add all but sinks to the archive, and send the bank's counts to the host."""
        self._archive_pass(self.store.new_sinks)
        if self.bank is not None:
            self.bank.traffic.send()

    def end_pass(self) -> None:
        """Learn that what the pass has brought to the bank is kept."""
        super().end_pass()
        if self.bank is not None:
            self.bank.end_pass()

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a selector with tensors of its own; the bank is shared."""
        child = super().fork(store, archive)
        child.bank = self.bank and self.bank.fork(archive)
        child._number, child._evicted, child._fits = (
            torch.zeros_like(x) for x in (self._number, self._evicted, self._fits)
        )
        child._fixed_blocks, child._may_fit = {}, False
        return child

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now; the bank is shared."""
        child = super().snapshot(store, archive)
        child.bank = self.bank and self.bank.snapshot(archive)
        return child

    def usage(self, usage: Usage) -> Usage:
        """Add the bank's bytes and traffic."""
        usage = super().usage(usage)
        return usage if self.bank is None else self.bank.usage(usage)
