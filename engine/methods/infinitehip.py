"""`infinitehip`: everything is kept in host memory; each block of queries prunes it, stage by stage, to a few chunks.

InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 1 to 4. Sinks and the most recent tokens (stream) are always
seen. What lies between goes through stages (b_q, l_c, k): it is cut into chunks of l_c, of each chunk the best key is
estimated by hierarchical top-1, a chunk's score is that key's highest over all heads and all queries of the block, and
the best k / l_c chunks go on to the next stage, which cuts them finer. What the last stage leaves is attended to
beside sinks and stream in one softmax. While answering, token by token, a stage runs only every n_refresh steps; in
between what it chose last is used again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from engine.attention import Segment
from engine.cache import cache_bytes
from engine.errors import SettingsError
from engine.footprint import Footprint, Task
from engine.memory import Memory
from engine.method import Method, TurnTokens, require
from engine.positions import ATTENTION_RULES, PRUNING_RULES, QueryBlocks, pruning_places
from engine.records import HOST
from engine.retrieving import (
    DTYPES,
    EMPTY,
    RetrievingMemory,
    cache_units,
    check_cache,
    check_store,
    least_window,
    plan_retrieving,
)
from engine.seam import ModelSpec
from engine.slots import SlotMemory
from kernels.pruning import chunk_scores


@dataclass(frozen=True)
class Stage:
    """One pruning stage: query_block b_q, chunk l_c, keep k, refresh n_refresh; all in tokens."""

    query_block: int
    chunk: int
    keep: int
    refresh: int


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Stages written as "b_q:l_c:k:n_refresh", parted by blanks, coarse to fine.

    Raises:
        SettingsError: what cannot be read, or stages that do not nest.
    """
    try:
        stages = tuple(Stage(*(int(number) for number in word.split(":"))) for word in text.split())
    except (ValueError, TypeError):
        stages = ()
    require(
        bool(stages) and all(min(dataclasses.astuple(stage)) >= 1 for stage in stages),
        f"A stage is written query_block:chunk:keep:refresh, several parted by blanks: '64:32:8192:8', not '{text}'.",
    )
    for stage in stages:
        require(
            stage.keep % stage.chunk == 0,
            f"A stage keeps whole chunks: {stage.keep} tokens are no multiple of its chunk of {stage.chunk}.",
        )
    for before, after in pairwise(stages):
        require(
            after.keep <= before.keep,
            f"Each stage keeps at most what the one before it kept: {after.keep} is more than {before.keep}.",
        )
        for what in ("chunk", "query_block", "refresh"):
            coarse, fine = getattr(before, what), getattr(after, what)
            require(
                coarse % fine == 0, f"Stages nest: a {what} of {fine} does not divide the {coarse} of the stage before."
            )
    return stages


def _published(stages: str, most: int, **others: int) -> Mapping[str, Any]:
    """Appendix F: 256 sinks, a stream of 1024, query blocks of 64; most: far entries that any layer sees."""
    return {"budget": 256 + 1024 + most + 63, "sinks": 256, "stages": stages, "first_layers": 3, **others}


_3K = "64:256:32768:{} 64:32:8192:{} 64:8:2048:{}"


@dataclass(frozen=True, kw_only=True)
class InfiniteHiP(Method):
    """budget: what one query sees at most: sinks, stream, what pruning leaves, and the rest of its block.

    stages: "query_block:chunk:keep:refresh" for each; first_layers: layers with other rules, of whose last stage
    first_keep is left, or which see the first_recent newest far entries instead of pruning, if that is not 0;
    pruning, first_pruning: position rule while pruning (relative, chunk, infllm, dynamic, true); attention: rule for
    far keys (streaming, infllm, dynamic); extend_always: use these rules also where true positions fit the model's
    window; store: a key of `DTYPES`; tier: host, or disk for full slabs; cache: chunks that
    the device holds, None for what suits it; policy: which are given up (cache.POLICIES).
    What is left of the budget is the stream.
    """

    name: ClassVar[str] = "infinitehip"
    family: ClassVar[str] = "retrieving"
    summary: ClassVar[str] = "Keeps everything in host memory; each block of tokens prunes it to what matters to it."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},
        "pocket-fast": {"stages": "32:64:1024:32 32:8:256:8"},
        "3k": _published(_3K.format(16, 8, 4), 4096, first_keep=4096),
        "3k-fast": _published(_3K.format(32, 16, 8), 4096, first_keep=4096),
        "3k-flash": _published(_3K.format(96, 24, 8), 4096, first_keep=4096),
        "5k": _published("64:64:32768:16 64:32:16384:8 64:16:4096:4", 4096, first_keep=4096),
        # Appendix E.2: a window of 128K in the first layers, 1024 of it the stream.
        "16k-shallow": _published("64:32:16384:16", 130048, first_keep=16384, first_recent=130048),
    }

    budget: int | None = 1024
    sinks: int = 4
    stages: str = "32:64:1024:8 32:8:256:4"
    first_layers: int = 1
    first_keep: int = 512
    first_recent: int = 0
    pruning: str = "relative"
    first_pruning: str = "chunk"
    attention: str = "streaming"
    extend_always: bool = False
    store: str = "bfloat16"
    tier: str = HOST
    cache: int | None = None
    policy: str = "lru"

    def __post_init__(self) -> None:
        """Stages must nest, rules be known, and a stream be left that holds a block of queries."""
        stages = parse_stages(self.stages)
        for name in ("sinks", "first_layers", "first_recent"):
            require(getattr(self, name) >= 0, f"{name} cannot be negative ({getattr(self, name)}).")
        require(
            self.first_keep >= 1 and self.first_keep % stages[-1].chunk == 0,
            f"first_keep is a multiple of the last stage's chunk of {stages[-1].chunk}, not {self.first_keep}.",
        )
        require(
            len(stages) == 1 or self.first_keep <= stages[-2].keep,
            f"first_keep is at most the {stages[-2 % len(stages)].keep} of the stage before, not {self.first_keep}.",
        )
        for name in ("pruning", "first_pruning"):
            known = ", ".join(PRUNING_RULES)
            require(getattr(self, name) in PRUNING_RULES, f"{name} is one of {known}, not '{getattr(self, name)}'.")
        known = ", ".join(ATTENTION_RULES)
        require(self.attention in ATTENTION_RULES, f"attention is one of {known}, not '{self.attention}'.")
        check_store(self.store, self.tier)
        check_cache(self.cache, self.policy, self.cached_at_once())
        block = stages[0].query_block
        least = self._beside_stream() + least_window(self.store, block)
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no stream beside {self.sinks} sinks and the {self._most()} entries "
            f"that pruning leaves: give at least {least}, or let the last stage keep less.",
        )

    def _most(self) -> int:
        """Far entries that a query of any layer sees at most."""
        first = self.first_recent or self.first_keep
        return max(parse_stages(self.stages)[-1].keep, first if self.first_layers else 0)

    def cached_at_once(self) -> int:
        """Chunks of the last stage that a block of queries is left with; first_recent goes past the cache."""
        last = parse_stages(self.stages)[-1]
        first = self.first_keep if self.first_layers and not self.first_recent else 0
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
        if "dynamic" in (self.pruning, self.first_pruning, self.attention) and stream > spec.window - 16:
            raise SettingsError(
                f"The rule 'dynamic' puts far keys between the stream of {stream} and the model's window of "
                f"{spec.window}: give a budget of at most {self._beside_stream() + spec.window - 16}."
            )
        return InfiniteHiPMemory(spec, self, stream)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """The first stage looks at two keys for each halving of each chunk; what comes after does not grow."""
        if self.budget is None:
            return super().plan(spec, task)
        units = cache_units(spec, self.cache, self.cached_at_once())
        cached = cache_bytes(spec, units, parse_stages(self.stages)[-1].chunk)
        stream, chunk = self.budget - self._beside_stream(), parse_stages(self.stages)[0].chunk
        compared = 2 * math.log2(max(chunk, 2)) / chunk
        return plan_retrieving(
            spec,
            task,
            self.sinks,
            stream,
            self.store,
            self._most(),
            compared,
            reading=True,
            tier=self.tier,
            cached=cached,
        )


class InfiniteHiPMemory(RetrievingMemory):
    """Sinks and stream on the device, everything behind the sinks in the host tier, pruned for each query block."""

    def __init__(self, spec: ModelSpec, settings: InfiniteHiP, stream: int) -> None:
        """stream: n_stream, in tokens."""
        self.stages = parse_stages(settings.stages)
        super().__init__(
            spec, settings.sinks, stream, DTYPES[settings.store], self.stages[0].query_block, settings.tier
        )
        self.settings = settings
        units = cache_units(spec, settings.cache, settings.cached_at_once())
        self.use_cache(units, self.stages[-1].chunk, settings.policy)
        self.stage_runs = [0] * len(self.stages)  # how often each stage has run, over layers and committed passes
        self.answering = False  # in a conversation, where a pass of one token is a step of decoding
        self.steps = 0  # of decoding since the last longer pass
        # Of each layer, what every stage chose last while decoding: chunk starts [1, k / l_c]
        self.chosen: list[list[Tensor]] = [[] for _ in spec.layers]
        self._ran = [0] * len(self.stages)

    def begin(self, source: Tensor) -> None:
        """A longer pass ends the decoding before it."""
        super().begin(source)
        self._ran = [0] * len(self.stages)
        if not self._decoding:
            self.steps = 0
            self.chosen = [[] for _ in self.spec.layers]

    @property
    def _decoding(self) -> bool:
        return self.answering and len(self._incoming) == 1

    def _segments(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """Sinks, what the last stage leaves, and the stream."""
        count = q.shape[1]
        if self.layers[layer].layer.sliding_window is not None or int(self.evicted(count)[-1]) == 0:
            return super()._segments(layer, q)
        size = self.stages[-1].query_block
        blocks = self.query_blocks(count, size, self.settings.extend_always, q.device)
        recent = self.settings.first_recent if layer < self.settings.first_layers else 0
        if recent:
            first = (blocks.evicted - recent).clamp_min(0)
            index = first[:, None] + torch.arange(recent, device=q.device)
        else:
            index = self._prune(layer, q)
        return self._chosen(layer, q, blocks, index, self.settings.attention, cached=not recent)

    def _prune(self, layer: int, q: Tensor) -> Tensor:
        """Entries int64 [NB, k] that each query block is left with, in order (Algorithm 1; Algorithm 4 in decoding)."""
        begin = self._first_stage_to_run(layer)
        starts = self.chosen[layer][begin - 1] if begin else None
        chosen = self.chosen[layer][:begin]
        for number in range(begin, len(self.stages)):
            starts = self._run_stage(layer, number, q, starts)
            self._ran[number] += 1
            chosen.append(starts)
        if self._decoding:
            self.chosen[layer] = chosen
        assert starts is not None
        return (starts[..., None] + torch.arange(self.stages[-1].chunk, device=q.device)).flatten(1)

    def _first_stage_to_run(self, layer: int) -> int:
        """The first stage that is due; the ones behind it work on what it chooses, so they are due as well."""
        if not self._decoding or not self.chosen[layer]:
            return 0
        due = (number for number, stage in enumerate(self.stages) if self.steps % stage.refresh == 0)
        return next(due, len(self.stages))

    def _run_stage(self, layer: int, number: int, q: Tensor, before: Tensor | None) -> Tensor:
        """Starts of the chunks that a stage keeps, int64 [NB, k / l_c], in order, `EMPTY` behind (Algorithm 2).

        before: [NB, ...], starts of the chunks that the stage before it kept; None for the first.
        """
        stage, first = self.stages[number], layer < self.settings.first_layers
        blocks = self.query_blocks(q.shape[1], stage.query_block, self.settings.extend_always, q.device)
        if before is None:
            starts = torch.arange(0, int(blocks.evicted[-1]), stage.chunk, device=q.device)
            starts = starts.expand(len(blocks.evicted), -1)
        else:
            coarse = self.stages[number - 1]
            own = before.repeat_interleave(coarse.query_block // stage.query_block, dim=0)[: len(blocks.evicted)]
            parts = torch.arange(0, coarse.chunk, stage.chunk, device=q.device)
            starts = (own[..., None] + parts).flatten(1)
        last = number == len(self.stages) - 1
        keep = (self.settings.first_keep if first and last else stage.keep) // stage.chunk
        if starts.shape[1] <= keep:
            return starts
        scores = self._score(layer, q, blocks, starts, stage.chunk)
        best, place = scores.topk(keep, dim=1)
        return starts.gather(1, place).masked_fill(best == float("-inf"), EMPTY).sort(dim=1).values

    def _score(self, layer: int, q: Tensor, blocks: QueryBlocks, starts: Tensor, chunk: int) -> Tensor:
        """Chunk scores float32 [NB, C]."""
        rule = self.settings.first_pruning if layer < self.settings.first_layers else self.settings.pruning
        rope = self.layers[layer].layer.rope
        chunks = (starts < blocks.evicted[:, None]).sum(dim=1)
        queries, places = pruning_places(rule, blocks, chunks, rope)
        # A block that is not full repeats its last query, which changes no maximum.
        full = torch.arange(len(chunks) * blocks.size, device=q.device).clamp_max(q.shape[1] - 1)
        folded = rope.rotate(q, queries)[:, full].view(q.shape[0], len(chunks), blocks.size, -1)
        return chunk_scores(folded, self.host.keys(layer), starts, blocks.evicted, chunk, places)

    def commit(self, novelty: Tensor | None = None) -> None:
        """Count the step and the stages that ran."""
        steps = self.steps + 1 if self._decoding else 0
        super().commit(novelty)
        self.steps = steps
        self.stage_runs = [before + ran for before, ran in zip(self.stage_runs, self._ran, strict=True)]

    def fork(self) -> Self:
        """From here on a single token is a step of decoding."""
        child = super().fork()
        child.answering = True
        return child

    def snapshot(self) -> Self:
        """What was chosen is replaced, never changed."""
        child = super().snapshot()
        child.chosen = list(self.chosen)
        return child
