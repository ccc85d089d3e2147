"""InfiniteHiP's pruning: entries of the host tier cut down, stage by stage, to a few chunks for each block of queries.

https://arxiv.org/abs/2502.08910, Algorithms 1, 2 and 4. Entries go through stages (b_q, l_c, k): they are cut into
chunks of l_c, of each chunk the best key is estimated by hierarchical top-1, a chunk's score is that key's highest over
all heads and all queries of the block, and the best k / l_c chunks go on to the next stage, which cuts them finer.
While answering, token by token, a stage runs only every n_refresh steps; in between what it chose last is used again.
Sizes: HQ query heads, T queries, NB blocks of queries, C chunks, D head size.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from engine.host.retrieving import EMPTY
from engine.host.tiered import TieredMemory
from engine.method import require
from engine.models.spec import ModelSpec
from engine.positions import QueryBlocks, pruning_places
from engine.records import Usage
from kernels.pruning import chunk_scores
from kernels.rows import Slabs


@dataclass(frozen=True)
class Stage:
    """One pruning stage: query_block b_q, chunk l_c, keep k, refresh n_refresh; all in tokens."""

    query_block: int
    chunk: int
    keep: int
    refresh: int


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Stages written as "b_q:l_c:k:n_refresh", separated by spaces, coarse to fine.

    Raises:
        SettingsError: what cannot be read, or stages that do not nest.
    """
    try:
        stages = tuple(Stage(*(int(number) for number in word.split(":"))) for word in text.split())
    except (ValueError, TypeError):
        stages = ()
    require(
        bool(stages) and all(min(dataclasses.astuple(stage)) >= 1 for stage in stages),
        f"A stage is written query_block:chunk:keep:refresh, a space between two: '64:32:8192:8', not '{text}'.",
    )
    for stage in stages:
        require(
            stage.keep % stage.chunk == 0,
            f"A stage keeps whole chunks: {stage.keep} tokens are no multiple of its chunk of {stage.chunk}. Keep "
            f"{-(-stage.keep // stage.chunk) * stage.chunk}.",
        )
    for before, after in pairwise(stages):
        require(
            after.keep <= before.keep,
            f"Each stage keeps at most what the one before it kept: {after.keep} is more than {before.keep}.",
        )
        for what in ("chunk", "query_block", "refresh"):
            coarse, fine = getattr(before, what), getattr(after, what)
            fitting = next(size for size in range(min(coarse, fine), 0, -1) if coarse % size == 0)
            require(
                coarse % fine == 0,
                f"Stages nest: a {what} of {fine} does not divide the {coarse} of the stage before; {fitting} does.",
            )
    return stages


def compared(stages: tuple[Stage, ...]) -> float:
    """Keys that a query is compared with, per entry of the host tier: two for each halving of each of the first stage's
    chunks. What comes after does not grow with the text.
    """
    chunk = stages[0].chunk
    return 2 * math.log2(max(chunk, 2)) / chunk


@dataclass(frozen=True)
class LayerRule:
    """How one layer prunes. places: a rule of PRUNING_RULES; keep: entries that its last stage leaves."""

    places: str
    keep: int


class Pruning:
    """The stages of one memory, and what each has chosen last while answering."""

    def __init__(self, spec: ModelSpec, stages: tuple[Stage, ...], rules: list[LayerRule]) -> None:
        """rules: one for each layer."""
        self.spec, self.stages, self.rules = spec, stages, rules
        self.runs = [0] * len(stages)  # how often each stage has run, over layers and committed passes
        self.steps = 0  # of decoding since the last longer pass
        # Of each layer, what every stage chose last while decoding: chunk starts [1, k / l_c]
        self.chosen: list[list[Tensor]] = [[] for _ in spec.layers]
        self._decoding = False
        self._ran = [0] * len(stages)

    @property
    def sizes(self) -> set[int]:
        """Of the blocks of queries that the stages work on."""
        return {stage.query_block for stage in self.stages}

    def begin(self, decoding: bool) -> None:
        """A pass begins; one that is not a step of decoding ends the decoding before it."""
        self._decoding = decoding
        self._ran = [0] * len(self.stages)
        if not decoding:
            self.steps = 0
            self.chosen = [[] for _ in self.spec.layers]

    def commit(self) -> None:
        """Count the step and the stages that ran."""
        self.steps = self.steps + 1 if self._decoding else 0
        self.runs = [before + ran for before, ran in zip(self.runs, self._ran, strict=True)]

    def snapshot(self) -> Self:
        """What was chosen is replaced, never changed."""
        child = copy.copy(self)
        child.chosen = list(self.chosen)
        return child

    def fork(self) -> Self:
        """Of a conversation, whose runs are counted by themselves."""
        child = self.snapshot()
        child.runs = [0] * len(self.stages)
        return child

    def choose(self, layer: int, q: Tensor, blocks: Callable[[int], QueryBlocks], keys: Slabs) -> Tensor:
        """Entries int64 [NB, k] that each query block is left with, in order (Algorithm 1; Algorithm 4 in decoding).

        Args:
            layer: its number.
            q: [HQ, T, D], before RoPE.
            blocks: the queries in blocks of a given size.
            keys: of the host tier, before RoPE.
        """
        begin = self.due(layer)
        before = self.chosen[layer][begin - 1] if begin else None
        starts = self.run(layer, begin, before, q, blocks, keys)
        self.keep(layer, begin, starts)
        last = starts[-1] if starts else before
        assert last is not None
        return self.entries(last)

    def run(
        self,
        layer: int,
        begin: int,
        before: Tensor | None,
        q: Tensor,
        blocks: Callable[[int], QueryBlocks],
        keys: Slabs,
    ) -> list[Tensor]:
        """Chunk starts [NB, k / l_c] that each stage from `begin` on chooses; before: those of the stage before it."""
        starts: list[Tensor] = []
        for number in range(begin, len(self.stages)):
            own = blocks(self.stages[number].query_block)
            before = self._run_stage(layer, number, q, own, keys, before)
            starts.append(before)
        return starts

    def keep(self, layer: int, begin: int, starts: list[Tensor]) -> None:
        """The stages from `begin` on have run: count them, and while answering use again what they have chosen."""
        for number in range(begin, len(self.stages)):
            self._ran[number] += 1
        if self._decoding:
            self.chosen[layer] = [*self.chosen[layer][:begin], *starts]

    def entries(self, starts: Tensor) -> Tensor:
        """The entries int64 [NB, k] of chunks of the last stage."""
        return (starts[..., None] + torch.arange(self.stages[-1].chunk, device=starts.device)).flatten(1)

    def widths(self) -> tuple[int, ...]:
        """How many chunks each stage chose last while answering, layer by layer."""
        return tuple(starts.shape[1] for each in self.chosen for starts in each)

    def restart(self) -> int | None:
        """The stage with which the next token's choosing begins anew, the number of stages where none does; None where
        it is the first one, or nothing has been chosen.
        """
        return next((self.due(layer) for layer, chosen in enumerate(self.chosen) if chosen), 0) or None

    def due(self, layer: int) -> int:
        """The first stage that is due; the ones behind it work on what it chooses, so they are due as well."""
        if not self._decoding or not self.chosen[layer]:
            return 0
        due = (number for number, stage in enumerate(self.stages) if self.steps % stage.refresh == 0)
        return next(due, len(self.stages))

    def _run_stage(
        self, layer: int, number: int, q: Tensor, blocks: QueryBlocks, keys: Slabs, before: Tensor | None
    ) -> Tensor:
        """Starts of the chunks that a stage keeps, int64 [NB, k / l_c], in order, `EMPTY` behind (Algorithm 2).

        before: [NB, ...], starts of the chunks that the stage before it kept; None for the first.
        """
        stage = self.stages[number]
        if before is None:
            starts = torch.arange(0, blocks.last, stage.chunk, device=q.device)
            starts = starts.expand(len(blocks.evicted), -1)
        else:
            coarse = self.stages[number - 1]
            own = before.repeat_interleave(coarse.query_block // stage.query_block, dim=0)[: len(blocks.evicted)]
            parts = torch.arange(0, coarse.chunk, stage.chunk, device=q.device)
            starts = (own[..., None] + parts).flatten(1)
        last = number == len(self.stages) - 1
        keep = (self.rules[layer].keep if last else stage.keep) // stage.chunk
        if starts.shape[1] <= keep:
            return starts
        scores = self._score(layer, q, blocks, keys, starts, stage.chunk)
        best, place = scores.topk(keep, dim=1)
        return starts.gather(1, place).masked_fill(best == float("-inf"), EMPTY).sort(dim=1).values

    def _score(self, layer: int, q: Tensor, blocks: QueryBlocks, keys: Slabs, starts: Tensor, chunk: int) -> Tensor:
        """Chunk scores float32 [NB, C]."""
        rope = self.spec.layers[layer].rope
        chunks = (starts < blocks.evicted[:, None]).sum(dim=1)
        queries, limit, places = pruning_places(self.rules[layer].places, blocks, chunks, starts.shape[1], rope)
        # A block that is not full repeats its last query, which changes no maximum.
        full = torch.arange(len(chunks) * blocks.size, device=q.device).clamp_max(q.shape[1] - 1)
        folded = rope.rotate(q, queries, limit)[:, full].view(q.shape[0], len(chunks), blocks.size, -1)
        return chunk_scores(folded, keys, starts, blocks.evicted, chunk, places)


class PrunedMemory(TieredMemory):
    """Laid over a memory: queries see what the stages of a pruning leave of the host tier."""

    pruning: Pruning

    def begin(self, source: Tensor) -> None:
        """A longer pass ends the decoding before it."""
        super().begin(source)
        self.pruning.begin(self.answering and len(source) == 1)

    def commit(self, novelty: Tensor | None = None) -> None:
        """Count the step and the stages that ran."""
        super().commit(novelty)
        self.pruning.commit()

    def static_widths(self) -> tuple[int, ...]:
        """How much the stages chose."""
        return (*self.pruning.widths(), *super().static_widths())

    def fork(self) -> Self:
        """With runs of its own."""
        child = super().fork()
        child.pruning = self.pruning.fork()
        return child

    def snapshot(self) -> Self:
        """What was chosen is replaced, never changed."""
        child = super().snapshot()
        child.pruning = self.pruning.snapshot()
        return child

    def usage(self) -> Usage:
        """With the stages that ran."""
        return dataclasses.replace(super().usage(), stages=tuple(self.pruning.runs))
