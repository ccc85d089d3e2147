"""Selectors beside a window: sinks and window on the device, everything behind the sinks in the archive.

`exact` searches every entry for each query; `infllm` and `infinitehip` choose entries for each block of queries, and
attend to sinks, chosen entries and window in one softmax. Sizes: HQ query heads, H KV heads, T queries, NB blocks of
queries, N entries chosen for a block, D head size.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from engine.models.rope import Rope
from engine.models.spec import ModelSpec
from engine.parts.archive.archive import Archive
from engine.parts.archive.bank import DeviceBank
from engine.parts.archive.transfers import copy_to_host
from engine.parts.attention import BlockTable, Segment, SharedKeys, VisibleRange
from engine.parts.mass import mass_rows
from engine.parts.positions import FarPlaces, QueryBlocks, far_query_position
from engine.parts.selectors.base import EMPTY, NOTHING_FAR, Selector, searched, selecting_queries
from engine.parts.selectors.stages import Listing
from engine.parts.store import Store
from engine.parts.window import WindowStore
from engine.records import DEVICE, Usage
from kernels.rows import Slabs, StableSlabs


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

    def __init__(self, spec: ModelSpec, store: WindowStore, archive: Archive) -> None:
        """Select from this archive, beside this window; `store.query_block` queries of a pass choose together."""
        super().__init__(spec, store, archive)
        self.bank: DeviceBank | None = None
        # Of this pass, by layer: the entries requested from the bank, and their attention [NB, N]
        self._asked: dict[int, Tensor] = {}
        self._attention: dict[int, Tensor] = {}
        self._blocks: dict[tuple[int, bool], QueryBlocks] = {}  # of this pass
        self._limits: Tensor | None = None  # of this pass: entries that each query may see [T], on the host
        self._looks_far = False  # whether something has left the window of a query of this pass
        # Of a fixed pass: number of its token [1] and entries that it does not see [1]
        self._number = torch.zeros(1, dtype=torch.int64, device=spec.device)
        self._evicted = torch.zeros_like(self._number)
        self._fits = torch.zeros(1, dtype=torch.bool, device=spec.device)  # whether it ends inside the model's window
        self._may_fit = False  # whether that has been so since the conversation began; only then may it be again
        self._fixed_blocks: dict[tuple[int, bool], QueryBlocks] = {}
        self._range: VisibleRange | None = None
        self._turned: tuple[Tensor, Tensor] | None = None  # queries of a layer, and the same at a constant distance
        self._behind_sinks: tuple[tuple[int, ...], dict[int, tuple[StableSlabs, StableSlabs]]] = ((), {})

    def use_bank(self, units: int, size: int, policy: str) -> None:
        """Keep `units` units of `size` entries on the device; 0 for none."""
        if units:
            self.bank = DeviceBank(self.archive.host.spec, units, size, policy)

    def picks(self) -> int:
        """Return how many entries each query of the next pass selects by itself, in each head."""
        return 0

    def pass_limit(self) -> int:
        """Return how many tokens the next pass may carry: whole blocks of queries, if there is room for one.

        A pass is no longer than the window, because its own tokens are not in the archive yet, nor is a quantisation
        group that is not whole. And it has no more queries than there is room for selected entries.
        """
        picks = self.picks()
        most = selecting_queries(self.spec, picks) if picks else None
        return window_pass_limit(self.store.window, self.archive.host.together, self.store.query_block, most)

    def begin_pass(self) -> None:
        """Make the entries readable that leave the windows of the pass."""
        store = self.store
        self.archive.prepare_lookup(max(0, store.seen + store.tokens - store.sinks - store.window))
        self._blocks, self._asked, self._attention, self._turned = {}, {}, {}, None
        self._limits, self._looks_far = None, int(self.evicted(store.tokens)[-1]) > 0

    def num_evicted(self) -> int:
        """Return how many entries of the archive the next token's window does not show."""
        return int(self.evicted(1)[0])

    def evicted(self, count: int) -> Tensor:
        """Return how many entries have left the window of each block of `count` queries, int64 [NB] on the host."""
        store = self.store
        first = torch.arange(store.seen, store.seen + count, store.query_block)
        return (first - store.sinks - store.window + 1).clamp_min(0)

    def query_blocks(self, size: int, extend: bool = True) -> QueryBlocks:
        """Return the pass's queries in blocks of `size`, a divisor of query_block; computed once a pass.

        extend: whether far keys never stand at true distances.
        """
        may_fit = self._may_fit and not extend
        known, key = (self._fixed_blocks, (size, may_fit)) if self.store.fixed else (self._blocks, (size, extend))
        if key not in known:
            store, count = self.store, self.store.tokens
            evicted = self.evicted(count).repeat_interleave(store.query_block // size)[: -(-count // size)]
            blocks = QueryBlocks(
                number=torch.arange(store.seen, store.seen + count),
                size=size,
                evicted=evicted,
                ahead=self._ahead,
                fits=(evicted + self._ahead < self.spec.window) & (not extend),
                sinks=store.sinks,
                window=store.window,
                trained=self.spec.window,
            )
            if store.fixed:
                known[key] = blocks.changing(self._number, self._evicted, self._fits if may_fit else None)
            else:
                known[key] = blocks.to(self.spec.device)
        return known[key]

    @property
    def _ahead(self) -> int:
        """Greatest difference between a query's number and what its block has evicted.

        Where a block ends is asked of the whole block that it is part of, however long the pass.
        """
        return self.store.sinks + self.store.window + self.store.query_block - 2

    @property
    def fits_window(self) -> bool:
        """True if the block of the next token ends inside the model's window."""
        return self.num_evicted() + self._ahead < self.spec.window

    def segments(self, layer: int, q: Tensor, catalyst: bool = False) -> list[Segment]:
        """Return sinks and window, and the entries that the method selects or a second look searches."""
        if self.spec.layers[layer].sliding_window is not None or not self._looks_far:
            return self.store.segments(layer, q)
        return self.select(layer, q) if self.archive.lookup is None else self.search(layer, q)

    def at_distance(self, rope: Rope, q: Tensor, distance: int) -> Tensor:
        """Return the queries of a layer at the distance at which all that is far lies for them; computed once."""
        if self._turned is None or self._turned[0] is not q:
            self._turned = q, rope.to_constant(q, distance)
        return self._turned[1]

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
        hidden = index >= blocks.evicted[:, None]
        asked = index.masked_fill(hidden, -1).cpu()
        found = self.bank.gather(layer, self.archive.host, asked)
        slabs = ([(each.flatten(1, 2).contiguous(), index.numel())] for each in found)
        keys, values = ([(sink, self.store.sinks), *bank] for sink, bank in zip(self._sinks(layer), slabs, strict=True))
        self._asked[layer] = asked
        # Rows of the bank's answer are in the order of the index; those that are not there must not be seen.
        rows = torch.arange(index.numel(), device=q.device).view_as(index)
        listing = self.listing(index)
        listing.rows[:, self.store.sinks :] = torch.where(hidden, EMPTY, rows + self.store.sinks)
        return [*near, self.listed(layer, q, blocks, listing, rule, (keys, values))]

    def _sinks(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.store.layers[layer].unrotated_sinks

    def _listed_slabs(self, layer: int) -> tuple[Slabs, Slabs]:
        """Return keys and values of a layer, sinks first; of a fixed pass, as objects that stay the same."""
        sinks, count = self._sinks(layer), self.store.sinks
        if not self.store.fixed:
            keys, values = self.archive.slabs(layer)
            return [(sinks[0], count), *keys], [(sinks[1], count), *values]
        addresses = self.archive.host.addresses()
        if self._behind_sinks[0] != addresses:
            self._behind_sinks = addresses, {}
        known = self._behind_sinks[1]
        if layer not in known:
            keys, values = self.archive.stable_slabs(layer)
            known[layer] = StableSlabs([(sinks[0], count), *keys]), StableSlabs([(sinks[1], count), *values])
        return known[layer]

    def listing(self, index: Tensor) -> Listing:
        """Return sinks and chosen entries, int64 [NB, N], as rows of the slabs of a layer."""
        sinks = self.store.sinks
        first = torch.arange(sinks, device=index.device).expand(len(index), -1)
        rows = torch.cat([first, index + sinks], dim=1)
        if not self.store.counted:
            return Listing(index, rows)
        known = mass_rows(self.store.source[:sinks]).expand(len(index), -1)
        chosen = mass_rows(self.archive.host.source_of(index.clamp_max(self.archive.host.stored - 1)))
        return Listing(index, rows, torch.cat([known, chosen], dim=1))

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
            turned = places.turned(rope, q)
        cos, sin = rope.table(places.limit)
        keys, values = self._listed_slabs(layer) if slabs is None else slabs
        visible = blocks.span(sum(length for _, length in keys)) if slabs else self._far_range(blocks)
        return SharedKeys(
            q=turned,
            keys=keys,
            values=values,
            visible=visible,
            table=BlockTable(listing.rows, places.keys, min(blocks.size, q.shape[1]), cos, sin),
            mass_rows=listing.mass_rows,
        )

    def _far_range(self, blocks: QueryBlocks) -> VisibleRange:
        """Return the rows of sinks and archive that queries see: none in blocks that have evicted nothing."""
        if not self.store.fixed:
            return blocks.span_behind(self.store.sinks)
        if self._range is None:
            end = self._evicted + self.store.sinks
            self._range = VisibleRange(torch.zeros_like(end), end, changing=True)
        return self._range

    def search(self, layer: int, q: Tensor) -> list[Segment]:
        """Return sinks, window and the `picks` best entries of each query of each head, all at one distance."""
        store = self.store
        if self._limits is None:
            self._limits = self.evicted(q.shape[1]).repeat_interleave(store.query_block)[: q.shape[1]]
        distance = far_query_position(store.sinks, store.window)
        best, index = searched(self.archive, layer, q, distance, self._limits, self.picks(), self.archive.lookup)
        if store.counted:
            best = dataclasses.replace(best, mass_rows=mass_rows(self.archive.host.source_of(index)))
        return [*store.segments(layer, q), best]

    def graph_kind(self) -> int | None:
        """Return `NOTHING_FAR`, or what `far_kind` says; None at a second look or where the host reads the archive."""
        if not self._looks_far:
            return NOTHING_FAR
        in_place = self.bank is None and self.archive.lookup is None and self.archive.readable_in_place()
        return self.far_kind() if in_place else None

    def far_kind(self) -> int | None:
        """Return which kind of recording a token needs that looks far, not negative; None if it cannot be recorded."""
        return None

    def fix(self) -> None:
        """Write the token's number and the number of evicted entries into tensors at fixed addresses."""
        self._number.fill_(self.store.seen)
        self._evicted.fill_(self.num_evicted())
        self._fits.fill_(self.fits_window)

    def start_layers(self) -> None:
        """Forget tensors of a fixed pass, which a recording computes itself."""
        self._range = self._turned = None

    def watches(self, layer: int) -> bool:
        """Tell whether the bank gives up the entries with the least attention."""
        return layer in self._asked and self.bank is not None and self.bank.policy == "frequency"

    def attended(self, layer: int, attention: list[Tensor]) -> None:
        """Keep the attention to selected entries for the bank, until the pass is over."""
        self._attention[layer] = attention[-1][..., self.store.sinks :].sum(dim=0)

    def unarchived(self, source: Tensor) -> int:
        """Return how many tokens of the pass become sinks."""
        return self.store.new_sinks

    def positions(self) -> Tensor:
        """Return int32 [N] on the host: sinks, then everything in the archive."""
        return torch.cat([self.store.known_sinks().cpu(), self.archive.host.source()])

    def before_end(self) -> None:
        """Tell the bank how much attention its units got."""
        if self.bank is not None and self._attention:
            on_host = copy_to_host(list(self._attention.values()))
            for layer, attention in zip(self._attention, on_host, strict=True):
                self.bank.attended(layer, self._asked[layer], attention)

    def fork(self, store: Store, archive: Archive) -> Self:
        """Return a selector with tensors and a bank of its own."""
        child = self.snapshot(store, archive)
        child.bank = self.bank and self.bank.fresh()
        child._number, child._evicted, child._fits = (
            torch.zeros_like(x) for x in (self._number, self._evicted, self._fits)
        )
        child._fixed_blocks, child._may_fit, child._behind_sinks = {}, False, ((), {})
        return child

    def snapshot(self, store: Store, archive: Archive) -> Self:
        """Return the selector as it is now, with an empty bank of its own."""
        child = super().snapshot(store, archive)
        child.bank = self.bank and self.bank.fresh(self.bank.traffic)
        return child

    def usage(self, usage: Usage) -> Usage:
        """Add the bank's bytes and traffic."""
        if self.bank is None:
            return usage
        on_device = usage.bytes[DEVICE] + self.bank.nbytes()
        traffic: dict[str, Any] = dataclasses.asdict(self.bank.traffic)
        return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: on_device}, traffic=traffic)
