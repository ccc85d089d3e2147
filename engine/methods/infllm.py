"""`infllm`: everything is kept in host memory; each block of queries attends to its most relevant units of it.

InfLLM (https://arxiv.org/abs/2402.04617): what leaves the local window is cut into memory units of l_bs tokens. Of
each unit the r_k tokens that mattered most to the queries of their own local window stand for it (section 2.2); a
block of queries looks up the k_m units whose representatives fit it best, and attends to initial tokens, those units
and its window in one softmax. All that lies beyond the window stands at one constant distance, l_L. Reading and
answering look up alike.

Queries and keys are read as the paper writes them, as vectors of all heads together: representatives and units are
the same for all heads of a layer. Both scores are sums of dot products, so of a unit only the sum of its
representatives' keys is kept, and a block of queries is looked up by its sum.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.footprint import Footprint, Task
from engine.host.cache import POLICIES, cache_bytes
from engine.host.retrieving import EMPTY, RetrievingMemory
from engine.host.settings import (
    DTYPES,
    LOOKS,
    TIERS,
    cache_units,
    check_cache,
    least_window,
    plan_retrieving,
)
from engine.memories.attention import Segment
from engine.memories.memory import Memory
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.models.spec import ModelSpec
from engine.positions import QueryBlocks
from engine.records import DEVICE, HOST, LoadedParts, Part, Parts, Usage
from kernels.gathering import gather_rows

FIT_BYTES = 64 << 20  # of units' keys in float32, which are there at a time


def _published(window: int, units: int, query_block: int = 512, representatives: int = 4) -> Mapping[str, Any]:
    """The settings of the authors' published runs: 128 initial tokens, units of 128.

    The paper's tables have larger windows (Llama-3 8K, Mistral 16K on its longest task), for which there is no file.
    """
    sizes = {"sinks": 128, "block": 128, "units": units, "representatives": representatives, "looks": 1}
    return {"budget": 128 + window + 128 * (units + 1) + query_block - 2, "query_block": query_block, **sizes}


@dataclass(frozen=True, kw_only=True)
class InfLLM(Method):
    """budget: what one query sees at most: sinks, window, units, and tokens that do not fill a unit or block yet.

    sinks: initial tokens l_I; block: l_bs, tokens per memory unit; representatives: r_k; units: k_m, looked up for
    each block of query_block queries (l_X); looks: see `LOOKS`; store: a key of `DTYPES`; tier: host, or disk
    for full slabs; cache: units that the device holds, None for what suits it; policy: which are given up
    (cache.POLICIES).
    What is left of the budget is the window.
    """

    name: ClassVar[str] = "infllm"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "Keeps everything in host memory; each block of tokens looks up its most relevant units."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},
        "mistral": _published(4096, 16),
        "mistral-12k": _published(4096, 64),
        "llama-3": _published(4096, 16),
        "qwen-1.5": _published(4096, 16),
        "vicuna": _published(2048, 16),
        "minicpm": _published(2048, 16),
        "million": _published(4096, 16, query_block=2048, representatives=1),  # appendix F.1
    }
    long_window: ClassVar[str | None] = "llama-3"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        "looks": LOOKS,
        "store": DTYPES,
        "tier": TIERS,
        "policy": POLICIES,
    }

    budget: int | None = 1024
    sinks: int = 4
    block: int = 8
    representatives: int = 8
    units: int = 64
    query_block: int = 32
    looks: int = 3
    store: str = "bfloat16"
    tier: str = HOST
    cache: int | None = None
    policy: str = "frequency"

    def __post_init__(self) -> None:
        """There must be a window that holds a block of queries."""
        super().__post_init__()
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(self.block >= 1, f"A memory unit (block) has at least 1 token, not {self.block}.")
        require(self.units >= 1, f"units is at least 1, not {self.units}.")
        require(self.query_block >= 1, f"query_block is at least 1, not {self.query_block}.")
        require(
            1 <= self.representatives <= self.block,
            f"A unit of {self.block} tokens has 1 to {self.block} representatives, not {self.representatives}.",
        )
        check_cache(self.cache, self.units + 1)
        least = self._beside_window() + least_window(self.store, self.query_block)
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no window beside {self.sinks} sinks and {self.units} units of "
            f"{self.block}: give at least {least}, or fewer units.",
        )

    def _beside_window(self) -> int:
        """Entries that a query may see outside l_L: the remainder is less than a unit, its block grows the window."""
        return self.sinks + (self.units + 1) * self.block - 1 + self.query_block - 1

    def pass_multiple(self) -> int:
        """Blocks of queries are looked up together."""
        return 1 if self.budget is None else self.query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """An empty memory; without a budget the window holds everything and nothing is ever looked up."""
        if self.budget is None:
            return SlotMemory(spec)
        return InfLLMMemory(spec, self, self.budget - self._beside_window())

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Queries are compared with one key for each unit, those of a block of the text by their sum."""
        if self.budget is None:
            return super().plan(spec, task)
        cached = cache_bytes(spec.looking_far, cache_units(spec, self.cache, self.units + 1, self.tier), self.block)
        window, chosen = self.budget - self._beside_window(), (self.units + 1) * self.block
        plain = plan_retrieving(
            spec,
            task,
            self.sinks,
            window,
            self.store,
            chosen,
            1 / self.block,
            reading=True,
            tier=self.tier,
            cached=cached,
            looks=self.looks,
            together=self.query_block,
            block=self.query_block,
        )
        units = task.total // self.block * spec.looking_far.key_bytes  # a key each
        usage = Usage(plain.usage.entries, {**plain.usage.bytes, DEVICE: plain.usage.bytes[DEVICE] + units})
        return dataclasses.replace(plain, usage=usage, saved_bytes=plain.saved_bytes + units)


class Units:
    """What stands for each memory unit of one layer: its representatives' keys before RoPE, summed, [U, H * D]."""

    def __init__(self, shared: Tensor) -> None:
        """shared: [U, H * D], units of a context, never written."""
        self.shared = shared
        self.own = shared.new_empty(0, shared.shape[1])
        self.count = 0  # own units

    @property
    def total(self) -> int:
        """Units, shared ones included."""
        return len(self.shared) + self.count

    def reserve(self, units: int) -> None:
        """Room for so many, those that are there included."""
        grown = self.own.new_empty(units, self.own.shape[1])
        grown[: self.count] = self.own[: self.count]
        self.own = grown

    def append(self, rows: Tensor) -> None:
        """More units [N, H * D]; room grows by doubling."""
        end = self.count + len(rows)
        if end > len(self.own):
            self.reserve(max(end, 2 * len(self.own), 64))
        self.own[self.count : end] = rows
        self.count = end

    def fit(self, queries: Tensor, fresh: Tensor) -> Tensor:
        """Dot products float32 [NB, U + N] of queries [NB, H * D] with all units and N that are to be appended."""
        step = max(1, FIT_BYTES // (4 * queries.shape[1]))
        every = [part for rows in (self.shared, self.own[: self.count], fresh) for part in torch.split(rows, step)]
        return torch.cat([queries.float() @ rows.float().T for rows in every], dim=1)

    def fork(self) -> Units:
        """Units of a conversation's own behind these."""
        assert len(self.shared) == 0, "a conversation is a fork of a context, not of another conversation"
        return Units(self.own[: self.count])


class InfLLMMemory(RetrievingMemory):
    """Initial tokens and local window on the device, memory units in the host tier."""

    def __init__(self, spec: ModelSpec, settings: InfLLM, window: int) -> None:
        """window: l_L."""
        dtype, block = DTYPES[settings.store], settings.query_block
        super().__init__(spec, settings.sinks, window, dtype, block, settings.tier, settings.looks)
        self.settings = settings
        cached = cache_units(spec, settings.cache, settings.units + 1, settings.tier)
        self.use_cache(cached, settings.block, settings.policy)
        like = torch.empty(0, dtype=spec.dtype, device=spec.device)
        self.units = [Units(like.new_empty(0, layer.kv_heads * layer.head_size)) for layer in self.host.spec.layers]
        # r_m of the entries behind the last unit, as far as their window has passed; per layer float32 [entries]
        self.scores = [torch.zeros(0, device=spec.device) for _ in spec.layers]
        self._coming: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> units and scores after this pass

    def reserve(self, tokens: int) -> None:
        """Units' room is allocated at once."""
        super().reserve(tokens)
        for units in self.units:
            units.reserve(tokens // self.settings.block)

    def begin(self, source: Tensor) -> None:
        """Nothing of a pass that failed is left."""
        super().begin(source)
        self._coming = {}

    def picks(self) -> int:
        """At a second look, as many as all units together."""
        return 0 if self.focused is None else self.settings.units * self.settings.block

    def arrive(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Judge the entries behind the last unit by these queries, and make the units that fill up."""
        super().arrive(layer, q, k, v)
        if self.layers[layer].layer.sliding_window is None:
            scores = self._representative_scores(layer, self._summed(layer, q))
            self._coming[layer] = self._new_units(layer, scores, self._lookers(q).last // self.settings.block)

    def _summed(self, layer: int, q: Tensor) -> Tensor:
        """Queries [H, T, D], summed over the heads of a group."""
        return q.view(self.layers[layer].layer.kv_heads, -1, *q.shape[1:]).sum(dim=1)

    def _lookers(self, q: Tensor) -> QueryBlocks:
        """The queries in the blocks that look units up together."""
        return self.query_blocks(q.shape[1], self.query_block, True, q.device)

    def _looking_far(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """At looked-up units, with the tokens that do not fill one yet."""
        blocks = self._lookers(q)
        complete = blocks.evicted // self.settings.block  # units that each block of queries may look up
        summed, (fresh, _) = self._summed(layer, q), self._coming[layer]
        index = torch.cat([self._look_up(layer, summed, fresh, complete), self._remainder(complete)], dim=1)
        return self._chosen(layer, q, blocks, index, "infllm")

    def _representative_scores(self, layer: int, summed: Tensor) -> Tensor:
        """r_m of all entries behind the last unit, the queries of this pass counted in; float32 [entries].

        r_m is the mean of q_{m+j} . k_m over j = 1 .. l_L at true distances (section 2.2), so what a pass adds is one
        dot product of k_m with a difference of running sums of the queries.

        summed: [H, T, D], queries before RoPE, summed over the heads of a group.
        """
        held = self.layers[layer]
        count, fresh = summed.shape[1], self._to_sinks
        end, start = self.length + count - fresh, max(0, self.length - self.window)
        view = self._view(None, count, end, summed.device)
        turned = held.layer.rope.rotate(summed, view.places, view.limit).float()
        running = F.pad(turned.cumsum(dim=1), (0, 0, 1, 0))
        after = torch.arange(start, end, device=summed.device) - self.length + fresh + 1  # the query after each entry
        reach = running[:, (after + self.window).clamp(0, count)] - running[:, after.clamp(0, count)]
        added = (reach * held.rotated[:, start:end].float()).sum(dim=(0, 2)) / self.window
        scores = F.pad(self.scores[layer], (0, count - fresh))
        scores[len(scores) - (end - start) :] += added
        return scores

    def _new_units(self, layer: int, scores: Tensor, complete: int) -> tuple[Tensor, Tensor]:
        """Rows [N, H * D] of the units that fill up in this pass, and the scores behind them."""
        layer_spec, known, size = self.spec.layers[layer], self.units[layer].total, self.settings.block
        new = complete - known
        if new <= 0:
            return scores.new_empty(0, layer_spec.kv_heads * layer_spec.head_size, dtype=self.spec.dtype), scores
        best = scores[: new * size].view(new, size).topk(self.settings.representatives, dim=1).indices
        first = torch.arange(known, complete, device=scores.device) * size
        index = (first[:, None] + best).view(1, -1).expand(layer_spec.kv_heads, -1)
        keys = gather_rows(self.host.keys(layer), index, self.spec.device, self.spec.dtype)
        grouped = keys.view(layer_spec.kv_heads, new, -1, layer_spec.head_size).sum(dim=2)
        return grouped.transpose(0, 1).reshape(new, -1), scores[new * size :]

    def _look_up(self, layer: int, summed: Tensor, fresh: Tensor, complete: Tensor) -> Tensor:
        """Entries int64 [NB, k_m * l_bs] of each block's units with the highest sim(X, B) (section 2.2)."""
        heads, count, width = summed.shape
        padded = F.pad(summed, (0, 0, 0, -count % self.query_block))
        # Sums over a block and its heads outgrow float16, and bfloat16 cannot tell them apart.
        total = padded.view(heads, -1, self.query_block, width).float().sum(dim=2)
        rope = self.layers[layer].layer.rope
        turned = rope.towards_kept(rope.to_constant(total, self.window))
        fit = self.units[layer].fit(turned.transpose(0, 1).reshape(len(complete), -1), fresh)
        number = torch.arange(fit.shape[1], device=fit.device)
        fit = fit.masked_fill(number >= complete[:, None], float("-inf"))
        best, unit = fit.topk(min(self.settings.units, fit.shape[1]), dim=1)
        start = (unit * self.settings.block).masked_fill(best == float("-inf"), EMPTY)
        return (start[..., None] + torch.arange(self.settings.block, device=fit.device)).flatten(1)

    def _remainder(self, complete: Tensor) -> Tensor:
        """Entries int64 [NB, l_bs - 1] behind the last unit; those still in the window are left out by `_chosen`."""
        size = self.settings.block
        return complete[:, None] * size + torch.arange(size - 1, device=complete.device)

    def commit(self, novelty: Tensor | None = None) -> None:
        """The units that filled up are now known."""
        super().commit(novelty)
        for layer, (fresh, scores) in self._coming.items():
            self.units[layer].append(fresh)
            self.scores[layer] = scores

    def usage(self) -> Usage:
        """The units' keys are on the device as well."""
        usage = super().usage()
        units = sum(rows.nbytes for units in self.units for rows in (units.shared, units.own))
        return dataclasses.replace(usage, bytes={**usage.bytes, DEVICE: usage.bytes[DEVICE] + units})

    def fork(self) -> Self:
        """Units are shared; scores are replaced, never changed."""
        child = super().fork()
        child.units = [units.fork() for units in self.units]
        return child

    def snapshot(self) -> Self:
        """Units are only ever appended to."""
        child = super().snapshot()
        child.units = [copy.copy(units) for units in self.units]
        child.scores = list(self.scores)
        return child

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Own units and the scores behind them, beside window and slabs."""
        parts, meta = super().state()
        tensors = {}
        for layer, units in enumerate(self.units):
            tensors[f"{layer}.units"] = units.own[: units.count]
            tensors[f"{layer}.scores"] = self.scores[layer]
        return {**parts, "units": Part(tensors)}, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Own units and scores."""
        super().restore(parts, meta)
        tensors = parts["units"]
        for layer, units in enumerate(self.units):
            units.append(tensors[f"{layer}.units"][:, : units.own.shape[1]].to(units.own))
            self.scores[layer] = tensors[f"{layer}.scores"].to(self.spec.device)
