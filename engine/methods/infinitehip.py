"""`infinitehip`: everything is kept in host memory; each block of queries prunes it, stage by stage, to a few chunks.

InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 1 to 4. Sinks and the most recent tokens (stream) are always
seen. What lies between is pruned (`pruning.py`), and what the last stage leaves is attended to beside sinks and stream
in one softmax.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.footprint import Footprint, Task
from engine.host.cache import POLICIES, cache_bytes
from engine.host.pruning import LayerRule, PrunedMemory, Pruning, compared, parse_stages
from engine.host.retrieving import RetrievingMemory
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
from engine.memories.memory import UNLIMITED, Memory
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.methods.static_pruned import StaticPruned
from engine.models.spec import ModelSpec
from engine.positions import ATTENTION_RULES, PRUNING_RULES, TRUE, QueryBlocks, require_between
from engine.records import HOST


def _published(stages: str, most: int, **others: int) -> Mapping[str, Any]:
    """Appendix F: 256 sinks, a stream of 1024, query blocks of 64; most: far entries that any layer sees."""
    return {"budget": 256 + 1024 + most + 63, "sinks": 256, "stages": stages, "first_layers": 3, "looks": 1, **others}


_3K = "64:256:32768:{} 64:32:8192:{} 64:8:2048:{}"


@dataclass(frozen=True, kw_only=True)
class InfiniteHiP(Method):
    """budget: what one query sees at most: sinks, stream, what pruning leaves, and the rest of its block.

    stages: "query_block:chunk:keep:refresh" for each; first_layers: layers with other rules, of whose last stage
    first_keep is left (None: half of the budget, 512 at most), or which see the first_recent newest far entries instead
    of pruning, if that is not 0; pruning, first_pruning: position rule while pruning (relative, chunk, infllm, dynamic,
    true); attention: rule for far keys (streaming, infllm, dynamic); extend_always: use these rules also where true
    positions fit the model's window; looks: see `LOOKS`; store: a key of `DTYPES`; tier: host, or disk for full slabs;
    cache: chunks that the device holds, None for what suits it; policy: which are given up (cache.POLICIES). What is
    left of the budget is the stream.
    """

    name: ClassVar[str] = "infinitehip"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "Keeps everything in host memory; each block of tokens prunes it to what matters to it."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},
        "pocket-far": {"stages": "64:256:16384:16 32:32:4096:8 32:4:256:4"},
        "3k": _published(_3K.format(16, 8, 4), 4096, first_keep=4096),
        "3k-fast": _published(_3K.format(32, 16, 8), 4096, first_keep=4096),
        "3k-flash": _published(_3K.format(96, 24, 8), 4096, first_keep=4096),
        "5k": _published("64:64:32768:16 64:32:16384:8 64:16:4096:4", 4096, first_keep=4096),
        # Appendix E.2: a window of 128K in the first layers, less sinks, stream and a block, which stand in it as well.
        "16k-shallow": _published("64:32:16384:16", 129729, first_keep=16384, first_recent=129729),
    }
    long_window: ClassVar[str | None] = "3k-flash"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        "pruning": PRUNING_RULES,
        "first_pruning": PRUNING_RULES,
        "attention": ATTENTION_RULES,
        "looks": LOOKS,
        "store": DTYPES,
        "tier": TIERS,
        "policy": POLICIES,
    }

    budget: int | None = 1024
    sinks: int = 4
    stages: str = "32:16:1024:8 32:4:256:4"
    first_layers: int = 1
    first_keep: int | None = None
    first_recent: int = 0
    pruning: str = "relative"
    first_pruning: str = "chunk"
    attention: str = "streaming"
    extend_always: bool = False
    looks: int = 2
    store: str = "bfloat16"
    tier: str = HOST
    cache: int | None = None
    policy: str = "lru"

    def __post_init__(self) -> None:
        """Stages must nest, and a stream be left that holds a block of queries."""
        super().__post_init__()
        stages = parse_stages(self.stages)
        for name in ("sinks", "first_layers", "first_recent"):
            require(getattr(self, name) >= 0, f"{name} cannot be negative ({getattr(self, name)}).")
        last = stages[-1]
        before = stages[-2].keep if len(stages) > 1 else UNLIMITED
        first = self.first_keep
        if first is None:
            first = max(min(512, before, (self.budget or UNLIMITED) // 2) // last.chunk, 1) * last.chunk
            object.__setattr__(self, "first_keep", first)
        require(
            first >= 1 and first % last.chunk == 0,
            f"first_keep is a multiple of the last stage's chunk of {last.chunk}, not {first}.",
        )
        require(first <= before, f"first_keep is at most the {before} of the stage before, not {first}.")
        check_cache(self.cache, self.cached_at_once())
        block = stages[0].query_block
        least = self._beside_stream() + least_window(self.store, block)
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no stream beside {self.sinks} sinks and the {self._most()} entries "
            f"that pruning leaves: give at least {least}, or let the last stage keep less.",
        )

    @property
    def kept_first(self) -> int:
        """What is left in the first layers."""
        assert self.first_keep is not None, "it was made with one"
        return self.first_keep

    def _most(self) -> int:
        """Far entries that a query of any layer sees at most."""
        first = self.first_recent or self.kept_first
        return max(parse_stages(self.stages)[-1].keep, first if self.first_layers else 0)

    def cached_at_once(self) -> int:
        """Chunks of the last stage that a block of queries is left with; first_recent goes past the cache."""
        last = parse_stages(self.stages)[-1]
        first = self.kept_first if self.first_layers and not self.first_recent else 0
        return max(last.keep, first) // last.chunk

    def _beside_stream(self) -> int:
        return self.sinks + self._most() + self.pass_multiple() - 1

    def pass_multiple(self) -> int:
        """Blocks of queries prune together."""
        return 1 if self.budget is None else parse_stages(self.stages)[0].query_block

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """An empty memory; without a budget the stream holds everything and nothing is ever pruned.

        Raises:
            SettingsError: the stream leaves the model's window no room for the rule `dynamic`.
        """
        if self.budget is None:
            return SlotMemory(spec)
        stream = self.budget - self._beside_stream()
        rules = self.pruning, self.first_pruning, self.attention
        require_between(rules, "the stream", stream, self._beside_stream(), spec.window)
        return InfiniteHiPMemory(spec, self, stream)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Sinks and stream on the device, everything behind the sinks in the host tier, which is pruned."""
        if self.budget is None:
            return super().plan(spec, task)
        stages = parse_stages(self.stages)
        units = cache_units(spec, self.cache, self.cached_at_once(), self.tier)
        cached = cache_bytes(spec.looking_far, units, stages[-1].chunk)
        plain = plan_retrieving(
            spec,
            task,
            self.sinks,
            self.budget - self._beside_stream(),
            self.store,
            self._most(),
            compared(stages),
            reading=True,
            tier=self.tier,
            cached=cached,
            looks=self.looks,
            block=stages[-1].query_block,
            in_place=self.tier == HOST,
            search_every=stages[0].refresh,
            recorded=self._recorded(spec, task) and units == 0,
        )
        original = 0 if self.extend_always else min(task.total, spec.window)  # where the text fits the model's window
        return dataclasses.replace(plain, positions=original)

    def _recorded(self, spec: ModelSpec, task: Task) -> bool:
        """As `InfiniteHiPMemory.static_kind`, without the cache."""
        in_place = self.looks == 1 and self.tier == HOST and TRUE not in (self.pruning, self.first_pruning)
        return in_place and (self.extend_always or task.total > spec.window)


class InfiniteHiPMemory(PrunedMemory, RetrievingMemory):
    """Sinks and stream on the device, everything behind the sinks in the host tier, pruned for each query block."""

    def __init__(self, spec: ModelSpec, settings: InfiniteHiP, stream: int) -> None:
        """stream: n_stream, in tokens."""
        self.stages = parse_stages(settings.stages)
        dtype, block = DTYPES[settings.store], self.stages[0].query_block
        super().__init__(spec, settings.sinks, stream, dtype, block, settings.tier, settings.looks)
        self.settings = settings
        first = LayerRule(settings.first_pruning, settings.kept_first)
        other = LayerRule(settings.pruning, self.stages[-1].keep)
        rules = [first if layer < settings.first_layers else other for layer in range(len(spec.layers))]
        self.pruning = Pruning(spec, self.stages, rules)
        units = cache_units(spec, settings.cache, settings.cached_at_once(), settings.tier)
        self.use_cache(units, self.stages[-1].chunk, settings.policy)

    def picks(self) -> int:
        """At a second look, as many as the last stage leaves."""
        return 0 if self.focused is None else self.stages[-1].keep

    def _looking_far(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """At what the last stage leaves."""
        count, size = q.shape[1], self.stages[-1].query_block
        blocks = self.query_blocks(count, size, self.settings.extend_always, q.device)
        if not self.prunes(layer):
            return self._chosen(layer, q, blocks, self.recent(blocks), self.settings.attention, cached=False)
        always, keys = self.settings.extend_always, self.host.keys(layer)
        index = self.pruning.choose(layer, q, lambda size: self.query_blocks(count, size, always, q.device), keys)
        return self._chosen(layer, q, blocks, index, self.settings.attention)

    def prunes(self, layer: int) -> bool:
        """Whether a layer prunes what is far."""
        newest = self.settings.first_recent > 0 and layer < self.settings.first_layers
        return not newest and self.layers[layer].layer.sliding_window is None

    def recent(self, blocks: QueryBlocks, *, static: bool = False) -> Tensor:
        """The newest far entries of each block, int64 [NB, most]: what the first layers see instead.

        most: first_recent, or what is far where that is less; static: first_recent, whatever is far.
        """
        most = self.settings.first_recent if static else min(self.settings.first_recent, blocks.last)
        first = (blocks.evicted - most).clamp_min(0)
        return first[:, None] + torch.arange(most, device=first.device)

    def static_kind(self) -> int | None:
        """The stage with which choosing begins anew, but for the first; None at a second look, or with true places."""
        rules = self.settings.pruning, self.settings.first_pruning
        if self.cache is not None or self.looked_at is not None or TRUE in rules or not self.read_in_place():
            return None
        block = self.stages[0].query_block
        if self.query_blocks(1, block, self.settings.extend_always, self.spec.device).fitting:
            return None
        return self.pruning.restart()

    def static_pass(self, kind: int) -> StaticPruned:
        """Over buffers and slabs as they are now."""
        return StaticPruned(self, kind)
