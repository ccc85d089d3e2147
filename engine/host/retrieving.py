"""What the retrieving methods share: sinks and a window on the device, everything behind the sinks in the host tier.

`exact` searches every entry for each query; `infllm` and `infinitehip` choose blocks of entries for each block of
queries, and attend to sinks, chosen entries and window in one softmax. Sizes: HQ query heads, H KV heads, T queries,
NB blocks of queries, N entries chosen for a block, D head size.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from engine.host.cache import DeviceCache
from engine.host.host_tier import HostTier
from engine.host.search import Found
from engine.host.tiered import TieredMemory
from engine.host.transfers import on_host
from engine.memories.attention import BlockTable, Picked, Segment, Shown
from engine.memories.coded import check_codes
from engine.memories.window import LayerWindow, WindowMemory, parted
from engine.models.spec import LayerSpec, ModelSpec, Scoring
from engine.positions import FarPlaces, QueryBlocks, far_query_position
from engine.records import DEVICE, HOST, LoadedParts, Parts, Usage
from kernels.gathering import gather_rows
from kernels.rows import Slabs

EMPTY = 1 << 60  # stands where there is no entry
WIDE = "wide-window"  # the part of longer windows
PICKED_BYTES = 256 << 20  # of what is picked for the queries of a pass, each by itself
ON_GPU = 4  # times as much of it there, where each pass of a question has all keys sent once more


def pickable(spec: ModelSpec, top: int) -> int:
    """Queries of a pass for each of which `top` entries may be picked, so that PICKED_BYTES hold them."""
    room = PICKED_BYTES * (ON_GPU if spec.device.type == "cuda" else 1)
    return max(1, room // picked_bytes(spec, top))


def picked_bytes(spec: ModelSpec, top: int) -> int:
    """What `top` entries take that a query of each head picks by itself: keys as kept, turned and, where they are not,
    in float32; values, logits.
    """
    number = 3 * spec.dtype.itemsize + (4 if spec.dtype.itemsize < 4 else 0)
    each = max(layer.query_heads * (layer.head_size * number + 24) for layer in spec.layers)
    return max(1, top) * each


def picked_in_pass(spec: ModelSpec, top: int, chunk: int) -> int:
    """What is picked for the queries of a pass of up to `chunk` tokens."""
    return min(chunk, pickable(spec, top)) * picked_bytes(spec, top)


def picked(
    host: HostTier, layer: int, q: Tensor, distance: int, limits: Tensor, top: int, among: Tensor | None
) -> tuple[Picked, Tensor]:
    """The `top` best entries of the host tier for each query [HQ, T, D] of each head, all at one distance.

    limits, among: see `HostTier.search`.

    Returns:
        What the queries see, and the numbers of the entries int64 [HQ, T, K], where the queries are.
    """
    spec = host.spec.layers[layer]
    turned = spec.rope.to_constant(q, distance)
    found = host.search(layer, spec.rope.towards_kept(turned), limits, top, among)
    return fetched(spec, turned, host.keys(layer), host.values(layer), found), found.entries


def fetched(layer: LayerSpec, q: Tensor, keys: Slabs, values: Slabs, found: Found) -> Picked:
    """What queries [HQ, T, D], turned to where they stand, see of the entries that each found for itself."""
    rows, shape = found.entries.reshape(keys[0][0].shape[0], -1), (*found.entries.shape, q.shape[2])
    k = gather_rows(keys, rows, q.device, q.dtype).view(shape) if found.keys is None else found.keys
    v = k if layer.latent else gather_rows(values, rows, q.device, q.dtype).view(shape)
    # Keys stand at position 0, where rotation is the identity (or a scale).
    return Picked(q, layer.rope.to_constant(k, 0), v, found.held)


class RetrievingMemory(TieredMemory, WindowMemory):
    """Sinks and window on the device, everything behind the sinks in the host tier.

    Layers with a sliding window longer than W keep that instead, and see it as the model would.
    """

    def __init__(
        self,
        spec: ModelSpec,
        sinks: int,
        window: int,
        dtype: torch.dtype,
        query_block: int = 1,
        tier: str = HOST,
        looks: int = 1,
        sketch: torch.dtype | None = None,
    ) -> None:
        """dtype: of the host tier; query_block: queries of a pass that choose together; tier: where full slabs go;
        looks: how often a question is asked at most; sketch: kind of sketches by which the host tier is searched.

        Raises:
            SettingsError: codes that this model or its device cannot have.
        """
        others, wide, longest = parted(spec, window)
        super().__init__(others, sinks, window, query_block)
        self.spec = spec
        self.wide = [WindowMemory(wide, 0, longest)] if longest else []  # of layers with a longer window, if any
        check_codes(spec, dtype)
        self.keep_on_host(dtype, looks, tier, sketch)
        self.cache: DeviceCache | None = None
        # Of this pass, by layer: what the cache was asked for, and what it was given [NB, N]
        self._looked: dict[int, Tensor] = {}
        self._given: dict[int, Tensor] = {}
        self._blocks: dict[tuple[int, bool], QueryBlocks] = {}  # of this pass

    def use_cache(self, units: int, size: int, policy: str) -> None:
        """Keep so many units of `size` entries on the device; 0 for none."""
        if units:
            self.cache, self.watching = DeviceCache(self.host.spec, units, size, policy), policy == "frequency"

    def picks(self) -> int:
        """Entries that each query of the next pass picks by itself, in each head."""
        return 0

    def pass_limit(self) -> int:
        """No more than the window: what a pass carries is not in the host tier yet, nor a page that is not whole. And
        no more than what its queries pick has room for. Whole blocks of queries, if there is room for one.
        """
        most = min(super().pass_limit(), self.window - self.host.together + 1)
        if picks := self.picks():
            most = min(most, pickable(self.spec, picks))
        return max(most // self.query_block * self.query_block, min(most, self.query_block))

    def begin(self, source: Tensor) -> None:
        """What the queries of the last pass were is over; what leaves their windows must be in the host tier."""
        super().begin(source)
        for each in self.wide:
            each.mass = self.mass
            each.begin(source)
        self.reach(max(0, self.seen + len(source) - self.sinks - self.window))
        self._blocks, self._looked, self._given = {}, {}, {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """In layers with a longer window, over that."""
        for each in self.wide:
            if each.spec.layers[layer].kv_heads:
                return each.attend(layer, q, k, v, scoring)
        return super().attend(layer, q, k, v, scoring)

    def arrive(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """In layers with a longer window, into that."""
        for each in self.wide:
            if each.spec.layers[layer].kv_heads:
                return each.arrive(layer, q, k, v)
        return super().arrive(layer, q, k, v)

    def reserve(self, tokens: int) -> None:
        """For longer windows too."""
        super().reserve(tokens)
        for each in self.wide:
            each.reserve(tokens)

    @property
    def far(self) -> int:
        """Entries of the host tier that the next token's window does not show."""
        return int(self.evicted(1)[0])

    def evicted(self, count: int) -> Tensor:
        """Entries of the host tier that have left the window of each block of the pass's queries: int64 [NB], on the
        host.
        """
        first = torch.arange(self.seen, self.seen + count, self.query_block)
        return (first - self.sinks - self.window + 1).clamp_min(0)

    def query_blocks(self, count: int, size: int, extend: bool, device: torch.device) -> QueryBlocks:
        """The pass's queries in blocks of `size`, a divisor of query_block; extend: no true distances for far keys.

        Made once per pass.
        """
        if (size, extend) not in self._blocks:
            evicted = self.evicted(count).repeat_interleave(self.query_block // size)[: -(-count // size)]
            # Where a block ends is asked of the whole block that it is part of, however long the pass.
            ahead = self.sinks + self.window + self.query_block - 2
            blocks = QueryBlocks(
                number=torch.arange(self.seen, self.seen + count),
                size=size,
                evicted=evicted,
                ahead=ahead,
                fits=(evicted + ahead < self.spec.window) & (not extend),
                sinks=self.sinks,
                window=self.window,
                trained=self.spec.window,
            )
            self._blocks[size, extend] = blocks.to(device)
        return self._blocks[size, extend]

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """Sinks and window; beside them, where something has left the window, what the method chooses of that, or the
        best of what a second look is for. Layers with a window of their own see nothing else.
        """
        if self.layers[layer].layer.sliding_window is not None or int(self.evicted(q.shape[1])[-1]) == 0:
            return self._near(layer, q)
        return self._looking_far(layer, q) if self.looked_at is None else self._searched(layer, q)

    @abstractmethod
    def _looking_far(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """Segments and source positions for queries [HQ, T, D], before RoPE, at a first look."""

    def _chosen(
        self, layer: int, q: Tensor, blocks: QueryBlocks, index: Tensor, rule: str, cached: bool = True
    ) -> tuple[list[Segment], list[Tensor]]:
        """Segments and source positions for queries that see chosen entries beside sinks and window.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], before RoPE.
            blocks: of the queries.
            index: int64 [NB, N], entries of the host tier in order, empty places (`EMPTY`) behind them.
            rule: of ATTENTION_RULES.
            cached: whether the device's cache is asked, if there is one.
        """
        segments, sources = self._near(layer, q, blocks.near)
        held, rows = self.layers[layer], None
        keys, values = self.host.keys(layer), self.host.values(layer)
        if self.cache is not None and cached:
            looked = index.masked_fill(index >= blocks.evicted[:, None], -1).cpu()
            found = self.cache.gather(layer, self.host, looked)
            keys, values = ([(each.flatten(1, 2).contiguous(), index.numel())] for each in found)
            rows = torch.arange(index.numel(), device=q.device).view_as(index)
            self._looked[layer] = looked
        sinks = held.sinks_as_kept
        keys, values = [(sinks[0], self.sinks), *keys], [(sinks[1], self.sinks), *values]
        far, source = self.listed(layer, q, blocks, index, rule, keys, values, rows)
        return [*segments, far], [*sources, source]

    def listed(
        self,
        layer: int,
        q: Tensor,
        blocks: QueryBlocks,
        index: Tensor,
        rule: str,
        keys: Slabs,
        values: Slabs,
        rows: Tensor | None = None,
    ) -> tuple[Shown, Tensor]:
        """Sinks and chosen entries as queries see them, and their source positions [NB, N] (empty if nobody asks).

        Args:
            layer, q, blocks, index, rule: as of `_chosen`.
            keys, values: banks in which they lie, sinks first.
            rows: int64 [NB, N], the entries' rows behind the sinks; None where an entry's number is its row.
        """
        rope = self.layers[layer].layer.rope
        valid = index < blocks.evicted[:, None]
        index = torch.where(valid, index, 0)
        first = torch.arange(self.sinks, device=q.device).expand(len(index), -1)
        original = torch.cat([first, index + self.sinks], dim=1)
        # Blocks without far entries see nothing here; where their keys would stand is of no interest.
        places = FarPlaces.of(rule, blocks, original, valid.sum(dim=1))
        behind = torch.where(valid, (index if rows is None else rows) + self.sinks, EMPTY)
        cos, sin = rope.table(places.limit)
        shown = Shown(
            q=rope.rotate(q, places.queries, places.limit),
            keys=keys,
            values=values,
            span=blocks.span(sum(length for _, length in keys)),
            lists=BlockTable(torch.cat([first, behind], dim=1), places.keys, min(blocks.size, q.shape[1]), cos, sin),
        )
        if self.mass is None:
            return shown, index[:, :0]
        return shown, torch.cat([self.source[: self.sinks].expand(len(index), -1), self.host.source_of(index)], dim=1)

    def _searched(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """Segments and source positions for queries that see sinks, window and the best entries of the host tier, or of
        those to look at, as many as each query of each head `picks`, all at one distance.
        """
        segments, sources = self._near(layer, q)
        limits = self.evicted(q.shape[1]).repeat_interleave(self.query_block)[: q.shape[1]]
        distance = far_query_position(self.sinks, self.window)
        best, index = picked(self.host, layer, q, distance, limits, self.picks(), self.looked_at)
        segments.append(best)
        if self.mass is not None:
            sources = [*sources, self.host.source_of(index)]
        return segments, sources

    def static_kind(self) -> int | None:
        """What is chosen changes from token to token."""
        return None

    def static_addresses(self) -> tuple[int, ...]:
        """Of slabs too."""
        wide = (address for each in self.wide for address in each.static_addresses())
        return (*super().static_addresses(), *wide, *self.host.addresses())

    def static_widths(self) -> tuple[int, ...]:
        """Where on the device the source positions are, beside what else there is."""
        device = self.spec.device
        known: tuple[int, ...] = ()
        if self.mass is not None and device.type != "cpu":
            known = (self.host.mirrored(device).data_ptr(),)  # brought up to date, so that the pass fetches nothing
        return (*known, *super().static_widths())

    def _attended(self, layer: int, given: list[Tensor]) -> None:
        """What the cache wants to know, once the pass is over."""
        if layer in self._looked:
            self._given[layer] = given[-1][..., self.sinks :].sum(dim=0)

    def commit(self, novelty: Tensor | None = None) -> None:
        """Send the tokens of the pass to the host tier as well, before they count: memory may run out there."""
        if self.cache is not None and self._given:
            for layer, given in zip(self._given, on_host(list(self._given.values())), strict=True):
                self.cache.attended(layer, self._looked[layer], given)
        fresh = self._to_sinks
        there = slice(self.length, self.length + len(self._incoming) - fresh)
        self.host.append(
            [held.keys[:, there] for held in self.layers],
            [held.values[:, there] for held in self.layers],
            self._incoming_here[fresh:],
        )
        super().commit(novelty)
        for each in self.wide:
            each.commit()

    def fork(self) -> Self:
        """With a cache of its own."""
        child = super().fork()
        child.wide = [each.fork() for each in self.wide]
        child.cache = self.cache and self.cache.fresh()
        return child

    def snapshot(self) -> Self:
        """With a cache of its own."""
        child = super().snapshot()
        child.wide = [each.snapshot() for each in self.wide]
        child.cache = self.cache and self.cache.fresh(self.cache.traffic)
        return child

    def remembered(self, tokens: int) -> Tensor:
        """The sinks, and what the host tier holds."""
        held, sinks = super().remembered(tokens), self.source[: min(self.sinks, self.seen)].cpu()
        held[sinks[sinks >= 0].long()] = 1.0
        return held

    def positions(self, layer: int) -> Tensor:
        """int32 [H, N]: sinks, then everything in the host tier."""
        row = torch.cat([self.source[: min(self.sinks, self.seen)].cpu(), self.host.source()])
        return row.expand(self.spec.layers[layer].kv_heads, -1)

    def usage(self) -> Usage:
        """With the cache, and longer windows."""
        usage = super().usage()
        on_device = usage.bytes[DEVICE] + sum(each.usage().bytes[DEVICE] for each in self.wide)
        if self.cache is None:
            return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: on_device})
        on_device += self.cache.nbytes()
        return Usage(usage.entries, {**usage.bytes, DEVICE: on_device}, dataclasses.asdict(self.cache.traffic))

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """With longer windows."""
        parts, meta = super().state()
        for each in self.wide:
            wide, meta[WIDE] = each.state()
            parts[WIDE] = wide["window"]
        return parts, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """With longer windows; where they were none when it was saved, as much of them as there is."""
        if self.wide and WIDE not in parts:
            parts, meta = dict(parts), dict(meta)
            parts[WIDE], meta[WIDE] = (
                _behind(parts["window"], self.sinks),
                {"length": meta["length"], "seen": meta["seen"]},
            )
            parts["window"] = _of_heads(parts["window"], self.layers)
        super().restore(parts, meta)
        for each in self.wide:
            each.restore({"window": _of_heads(parts[WIDE], each.layers)}, meta[WIDE])


def _of_heads(window: Mapping[str, Tensor], layers: list[LayerWindow]) -> dict[str, Tensor]:
    """What was saved of a window, without layers that have no heads there."""
    heads = {str(number): held.layer.kv_heads for number, held in enumerate(layers)}
    return {name: x[: heads.get(name.split(".")[0], len(x))] for name, x in window.items()}


def _behind(window: Mapping[str, Tensor], sinks: int) -> dict[str, Tensor]:
    """What was saved of sinks and a window, without the sinks."""
    return {**window, "source": window["source"][sinks:]}
