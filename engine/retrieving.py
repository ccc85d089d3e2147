"""What the retrieving methods share: sinks and a window on the device, everything behind the sinks in the host tier.

`exact` searches every entry for each query; `infllm` and `infinitehip` choose blocks of entries for each block of
queries, and attend to sinks, chosen entries and window in one softmax. Sizes: HQ query heads, H KV heads, T queries,
NB blocks of queries, N entries chosen for a block, D head size.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import torch
from torch import Tensor

from engine.attention import Lists, Segment, Shown, Span
from engine.footprint import Footprint, Task
from engine.host import HostTier, host_bytes
from engine.measure import require_memory
from engine.method import require
from engine.positions import FarPlaces, QueryBlocks
from engine.records import DEVICE, HOST, LoadedParts, Parts, Usage
from engine.seam import ModelSpec
from engine.window import WindowMemory, plan_window

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
EMPTY = 1 << 60  # stands where there is no entry


def check_store(store: str) -> None:
    """Refuse a dtype that the host tier does not keep.

    Raises:
        SettingsError: naming those it does.
    """
    require(store in DTYPES, f"store is one of {', '.join(DTYPES)}, not '{store}'.")


def plan_retrieving(
    spec: ModelSpec, task: Task, sinks: int, window: int, store: str, chosen: int, compared: float, reading: bool
) -> Footprint:
    """Sinks and window on the device, everything behind the sinks in the host tier.

    chosen: entries of the host tier that a query sees beside its window; compared: keys that a query is compared with
    to choose them, per entry of the host tier; reading: whether the text's own queries choose as well.
    """
    seen = plan_window(spec, task, sinks, window)
    far = max(0, task.total - sinks)
    usage = Usage(
        {**seen.usage.entries, HOST: far},
        {**seen.usage.bytes, HOST: host_bytes(spec, DTYPES[store], far, task.total)},
    )
    more = min(chosen, far)
    searched = math.ceil(compared * far)
    while_reading = more + searched / 2 if reading else 0.0  # half of the text is there on average
    return dataclasses.replace(
        seen,
        usage=usage,
        attended=seen.attended + while_reading,
        widest=seen.widest + (more if reading else 0),
        answering=seen.answering + more,
        searched=searched,
    )


class RetrievingMemory(WindowMemory):
    """Sinks and window on the device, everything behind the sinks in the host tier."""

    def __init__(self, spec: ModelSpec, sinks: int, window: int, dtype: torch.dtype, query_block: int = 1) -> None:
        """dtype: of the host tier; query_block: queries of a pass that choose together."""
        super().__init__(spec, sinks, window, query_block)
        self.host = HostTier(spec, dtype)

    def room(self) -> int:
        """A pass may not outgrow the window: what it carries is not in the host tier yet. Whole blocks of queries."""
        return self.window // self.query_block * self.query_block

    def reserve(self, tokens: int) -> None:
        """Refuse a text that the host's memory cannot hold; else the last slab is no larger than it must be."""
        self.host.expected = tokens
        needed = host_bytes(self.spec, self.host.dtype, tokens, tokens)
        require_memory(needed, torch.device("cpu"), f"Keeping {tokens:,} tokens")

    def evicted(self, count: int) -> Tensor:
        """Entries of the host tier that have left the window of each block of the pass's queries, int64 [NB]."""
        first = torch.arange(self.seen, self.seen + count, self.query_block)
        return (first - self.sinks - self.window + 1).clamp_min(0)

    def query_blocks(self, count: int, size: int, extend: bool, device: torch.device) -> QueryBlocks:
        """The pass's queries in blocks of `size`, a divisor of query_block; extend: no true distances for far keys."""
        evicted = self.evicted(count).repeat_interleave(self.query_block // size)[: -(-count // size)].to(device)
        # Whether a block fits is asked of the whole block that it is part of, however long the pass.
        last = evicted + self.sinks + self.window + self.query_block - 2
        return QueryBlocks(
            number=torch.arange(self.seen, self.seen + count, device=device),
            size=size,
            evicted=evicted,
            fits=(last < self.spec.window) & (not extend),
            sinks=self.sinks,
            window=self.window,
            trained=self.spec.window,
        )

    def _chosen(
        self, layer: int, q: Tensor, blocks: QueryBlocks, index: Tensor, rule: str
    ) -> tuple[list[Segment], list[Tensor]]:
        """Segments and source positions for queries that see chosen entries beside sinks and window.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], before RoPE.
            blocks: of the queries.
            index: int64 [NB, N], entries of the host tier in order, empty places (`EMPTY`) behind them.
            rule: of ATTENTION_RULES.
        """
        held = self.layers[layer]
        rope = held.layer.rope
        far = blocks.evicted > 0
        segments, sources = self._near(layer, q, far[blocks.of_query])
        valid = index.to(q.device) < blocks.evicted[:, None]
        index = torch.where(valid, index.to(q.device), 0)
        first = torch.arange(self.sinks, device=q.device).expand(len(far), -1)
        original = torch.cat([first, index + self.sinks], dim=1)
        # Blocks without far entries see nothing here; where their keys would stand is of no interest.
        places = FarPlaces.of(rule, blocks, original, valid.sum(dim=1))
        end = torch.where(far, blocks.evicted + self.sinks, 0)[blocks.of_query]
        rows = torch.cat([first, torch.where(valid, index + self.sinks, EMPTY)], dim=1)
        cos, sin = rope.table(int(places.keys.max()) + 1)
        segments.append(
            Shown(
                q=rope.rotate(q, places.queries),
                keys=[(held.sink_keys, self.sinks), *self.host.keys(layer)],
                values=[(held.sink_values, self.sinks), *self.host.values(layer)],
                span=Span(torch.zeros_like(end), end),
                lists=Lists(rows, places.keys, blocks.size, cos, sin),
            )
        )
        known = self.host.source_of(index.cpu()).to(q.device)
        sources.append(torch.cat([self.source[: self.sinks].expand(len(far), -1), known], dim=1))
        return segments, sources

    def commit(self, novelty: Tensor | None = None) -> None:
        """Send the tokens of the pass to the host tier as well."""
        begin, fresh = self.length, self._to_sinks
        super().commit(novelty)
        self.host.append(
            [held.keys[:, begin : self.length] for held in self.layers],
            [held.values[:, begin : self.length] for held in self.layers],
            self._incoming[fresh:],
        )

    def fork(self) -> Self:
        """The host tier is shared."""
        child = super().fork()
        child.host = self.host.fork()
        return child

    def snapshot(self) -> Self:
        """The host tier's slabs are only ever appended to."""
        child = super().snapshot()
        child.host = self.host.snapshot()
        return child

    def positions(self, layer: int) -> Tensor:
        """int32 [H, N]: sinks, then everything in the host tier."""
        row = torch.cat([self.source[: min(self.sinks, self.seen)].cpu(), self.host.source()])
        return row.expand(self.spec.layers[layer].kv_heads, -1)

    def usage(self) -> Usage:
        """On the device sinks and window; on the host everything."""
        device = super().usage()
        return Usage(
            {DEVICE: device.entries[DEVICE], HOST: self.host.length},
            {DEVICE: device.bytes[DEVICE], HOST: self.host.nbytes()},
        )

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Window and own slabs."""
        parts, meta = super().state()
        return {**parts, **self.host.state()}, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Window and own slabs."""
        super().restore(parts, meta)
        self.host.restore(parts)
