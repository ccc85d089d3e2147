"""InfiniteHiP's pruning: entries of the host tier cut down, stage by stage, to a few chunks for each block of queries.

https://arxiv.org/abs/2502.08910, Algorithms 1, 2 and 4. Entries go through stages (b_q, l_c, k): they are cut into
chunks of l_c, of each chunk the best key is estimated by hierarchical top-1, a chunk's score is that key's highest over
all heads and all queries of the block, and the best k / l_c chunks go on to the next stage, which cuts them finer.
While answering, token by token, a stage runs only every n_refresh steps; in between its last choice is used again.
Sizes: HQ query heads, T queries, NB blocks of queries, C chunks, D head size.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import require
from engine.models.spec import ModelSpec
from engine.parts.positions import QueryBlocks, pruning_places
from kernels.pruning import Copies, chunk_scores
from kernels.rows import Slabs

# Finds copies of keys for a stage, from its number, the starts of its chunks [NB, C] and the ends of visible rows [NB]
FindCopies = Callable[[int, Tensor, Tensor], Copies]

EMPTY = 1 << 60  # in an index of entries: none
FEWER = 4  # where heads are grouped, all stages but the last look at every 4th query, as the authors' code does


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
        SettingsError: the text cannot be read, or its stages do not nest.
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
    """Return how many keys a query is compared with, per entry of the host tier.

    Each halving of each of the first stage's chunks takes two. Later stages do not grow with the text.
    """
    chunk = stages[0].chunk
    return 2 * math.log2(max(chunk, 2)) / chunk


@dataclass(frozen=True)
class LayerRule:
    """How one layer prunes. places: a rule of PRUNING_RULES; keep: entries that its last stage leaves."""

    places: str
    keep: int


@dataclass
class Listing:
    """The archive entries that one query sees until a stage chooses anew, at fixed addresses.

    Attributes:
        index: int64 [1, N], entries, `EMPTY` behind them.
        rows: int64 [1, N'], rows of the slabs.
        mass_rows: int [1, N'], rows of `AttentionMass`; None where nobody counts.
        head_mask: bool [H, 1, N'], rows that each head sees; None for all.
        chosen: int64 [1], how many entries are chosen, where that does not change from token to token.
        entries: int64 [1, N'], the entry in each row if rows are those of a bank; -1 for sinks.
    """

    index: Tensor
    rows: Tensor
    mass_rows: Tensor | None = None
    head_mask: Tensor | None = None
    chosen: Tensor | None = None
    entries: Tensor | None = None

    @cached_property
    def ranks(self) -> Tensor:
        """Numbers 0, 1, 2, ... of the rows, int64 [1, N']; computed once."""
        return torch.arange(self.rows.shape[1], device=self.rows.device).expand_as(self.rows)

    def tensors(self) -> list[Tensor]:
        """Return all tensors there are."""
        every = (self.index, self.rows, self.mass_rows, self.head_mask, self.chosen, self.entries)
        return [x for x in every if x is not None]

    def widened(self, more: int) -> Listing:
        """Return the same listing with `more` places behind it that stand for no entry."""
        mass_rows = None if self.mass_rows is None else F.pad(self.mass_rows, (0, more))
        head_mask = None if self.head_mask is None else F.pad(self.head_mask, (0, more))
        index, rows = (F.pad(x, (0, more), value=EMPTY) for x in (self.index, self.rows))
        entries = None if self.entries is None else F.pad(self.entries, (0, more), value=EMPTY)
        return Listing(index, rows, mass_rows, head_mask, self.chosen, entries)

    def renewed(self, new: Listing) -> Listing:
        """Copy `new` to the addresses of this listing and return it; return `new` itself if shapes differ."""
        mine, theirs = self.tensors(), new.tensors()
        if [x.shape for x in mine] != [x.shape for x in theirs]:
            return new
        for to, x in zip(mine, theirs, strict=True):
            to.copy_(x)
        return self


class Pruning:
    """The stages of one memory, and the last choice of each while answering."""

    def __init__(
        self, spec: ModelSpec, stages: tuple[Stage, ...], rules: list[LayerRule], grouped: bool = False
    ) -> None:
        """Start without choices. rules: one for each layer. grouped: query heads of a KV head compare the same keys."""
        self.spec, self.stages, self.rules, self.grouped = spec, stages, rules, grouped
        self.runs = [0] * len(stages)  # how often each stage has run, over layers and committed passes
        self.steps = 0  # of decoding since the last longer pass
        # Of each layer, chunk starts [1, k / l_c] that every stage chose last while decoding, at addresses that stay;
        # shared by snapshots; the last to write owns the values
        self.chosen: list[list[Tensor]] = [[] for _ in spec.layers]
        self._known = [False] * len(spec.layers)  # whether `chosen` is of this answer
        self.listings: dict[int, Listing] = {}  # by layer, of the last choice while decoding; shared likewise
        self._writes = [0]  # to `chosen`, counted for all snapshots together
        self._seen_writes = 0
        self._decoding = False
        self._ran = [0] * len(stages)
        self._restart: int | None = None  # of this pass, see `restart`
        self._forced: int | None = None  # the same, where a pass is only tried

    @property
    def sizes(self) -> set[int]:
        """Sizes of the blocks of queries that the stages work on."""
        return {stage.query_block for stage in self.stages}

    def begin(self, decoding: bool) -> None:
        """Begin a pass; one that is not a step of decoding ends the decoding before it."""
        self._decoding = decoding
        self._ran = [0] * len(self.stages)
        if not decoding:
            self.steps = 0
        if not decoding or self._seen_writes != self._writes[0]:  # another line of history has written there
            self._known = [False] * len(self._known)
        self._seen_writes = self._writes[0]
        self._restart = self.restart()

    def end_pass(self, replayed: bool) -> None:
        """Count the step and the stages that ran. replayed: whether the pass was a recording of `restart`'s kind."""
        if replayed and self._restart is not None:
            self._ran = [len(self.listings) * (number >= self._restart) for number in range(len(self.stages))]
            self._known = [layer in self.listings for layer in range(len(self._known))]
        if self._decoding:
            self._writes[0] += 1
            self._seen_writes = self._writes[0]
        self.steps = self.steps + 1 if self._decoding else 0
        self.runs = [before + ran for before, ran in zip(self.runs, self._ran, strict=True)]

    def snapshot(self) -> Self:
        """Return the stages as they are now. They choose at the same addresses, so that recordings serve on."""
        child = copy.copy(self)
        child._known = list(self._known)
        return child

    def fork(self) -> Self:
        """Return the stages of a conversation, whose runs are counted by themselves."""
        child = self.snapshot()
        child.runs, child._writes, child._seen_writes = [0] * len(self.stages), [0], 0
        child.chosen, child._known = [[] for _ in self.chosen], [False] * len(self._known)
        child.listings = {}
        return child

    def listing(self, layer: int, counted: bool) -> Listing | None:
        """Return the last token's listing if it serves and no stage is due; counted: whether mass is counted."""
        known = self.listings.get(layer)
        if known is None or self.first_due(layer) < len(self.stages) or (counted and known.mass_rows is None):
            return None
        return known

    def keep(self, layer: int, new: Listing) -> Listing:
        """Keep a query's listing for the tokens behind it, while decoding; return the kept one."""
        if not self._decoding:
            return new
        known = self.listings.get(layer)
        self.listings[layer] = new if known is None else known.renewed(new)
        return self.listings[layer]

    def choose(
        self,
        layer: int,
        q: Tensor,
        blocks: Callable[[int], QueryBlocks],
        keys: Slabs,
        fixed: bool = False,
        copies: FindCopies | None = None,
    ) -> Tensor:
        """Return the entries that each query block is left with, int64 [NB, k], in order.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], before RoPE.
            blocks: gives the queries in blocks of a given size.
            keys: of the archive, before RoPE.
            fixed: whether all rows of `keys` are looked at, with or without an entry, so that shapes do not change.
            copies: finds keys that are on the device as well, or None.
        Source: Algorithm 1; while answering, Algorithm 4.
        """
        first = self.first_due(layer)
        last = self.chosen[layer][first - 1] if first else None
        for number in range(first, len(self.stages)):
            own = blocks(self.stages[number].query_block)
            last = self._run_stage(layer, number, q, own, keys, last, fixed, copies)
            self._ran[number] += 1
            if self._decoding:
                last = self._remember(layer, number, last)
        self._known[layer] = self._decoding
        assert last is not None
        return (last[..., None] + torch.arange(self.stages[-1].chunk, device=last.device)).flatten(1)

    def _remember(self, layer: int, number: int, starts: Tensor) -> Tensor:
        """Keep a stage's choice, at the address of the last one if there is room; return the kept one."""
        chosen, count = self.chosen[layer], starts.shape[1]
        if number < len(chosen) and chosen[number].shape[1] >= count:
            chosen[number][:, :count] = starts
            if chosen[number].shape[1] > count:
                chosen[number][:, count:] = EMPTY
            return chosen[number]
        self.chosen[layer] = [*chosen[:number], starts.clone()]
        return self.chosen[layer][number]

    def make_room(self, room: int) -> None:
        """Make room for as many chunks as stages choose of `room` entries, so that no later choice moves."""
        for layer, chosen in enumerate(self.chosen):
            most, known = -(-room // self.stages[0].chunk), self.listings.get(layer)
            for number, starts in enumerate(chosen):
                coarse = self.stages[max(0, number - 1)].chunk
                most = min(most * (coarse // self.stages[number].chunk), self._kept(layer, number))
                if starts.shape[1] < most:
                    chosen[number] = F.pad(starts, (0, most - starts.shape[1]), value=EMPTY)
            if known is not None and chosen and (more := most * self.stages[-1].chunk - known.index.shape[1]) > 0:
                self.listings[layer] = known.widened(more)

    def _kept(self, layer: int, number: int) -> int:
        """Return how many chunks a stage keeps."""
        stage = self.stages[number]
        last = number == len(self.stages) - 1
        return (self.rules[layer].keep if last else stage.keep) // stage.chunk

    def graph_key(self) -> tuple[int, ...]:
        """Return addresses and sizes of all that was chosen."""
        chosen = [starts for each in self.chosen for starts in each]
        listed = [x for listing in self.listings.values() for x in listing.tensors()]
        return tuple(fact for x in [*chosen, *listed] for fact in (x.data_ptr(), x.numel()))

    def restart(self) -> int | None:
        """Return the stage where the next token's choice restarts, the number of stages if none is due.

        None before the first token, which makes room for choices and listings.
        """
        return next((self.first_due(layer) for layer in self.listings), None)

    def restarts(self) -> Sequence[int]:
        """Return the stages where choices restart, and their number for none; none before the first token.

        The next token's comes first. All others serve later tokens, with the same choices' addresses.
        """
        first = self.restart()
        return () if first is None else (first, *(n for n in range(len(self.stages) + 1) if n != first))

    @contextmanager
    def restarting_at(self, stage: int) -> Iterator[None]:
        """Let choices inside the block restart at this stage; on exit all is chosen as before."""
        kept = [starts for each in self.chosen for starts in each]
        kept += [x for listing in self.listings.values() for x in listing.tensors()]
        before, known = [x.clone() for x in kept], list(self._known)
        self._forced = stage
        try:
            yield
        finally:
            self._forced, self._known = None, known
            for x, old in zip(kept, before, strict=True):
                x.copy_(old)

    def first_due(self, layer: int) -> int:
        """Return the first stage that is due; those behind it work on its choice, so they are due as well."""
        if self._forced is not None:
            return self._forced
        if not self._decoding or not self._known[layer]:
            return 0
        due = (number for number, stage in enumerate(self.stages) if self.steps % stage.refresh == 0)
        return next(due, len(self.stages))

    def _run_stage(
        self,
        layer: int,
        number: int,
        q: Tensor,
        blocks: QueryBlocks,
        keys: Slabs,
        before: Tensor | None,
        fixed: bool = False,
        copies: FindCopies | None = None,
    ) -> Tensor:
        """Return the starts of the chunks that a stage keeps, int64 [NB, k / l_c] (Algorithm 2).

        before: [NB, ...], starts of the chunks that the stage before it kept; None for the first.
        """
        stage = self.stages[number]
        if before is None:
            end = sum(length for _, length in keys) if fixed else blocks.last
            starts = torch.arange(0, end, stage.chunk, device=q.device).expand(len(blocks.evicted), -1)
            if fixed:
                starts = starts.masked_fill(starts >= blocks.evicted[:, None], EMPTY)
        else:
            coarse = self.stages[number - 1]
            own = before.repeat_interleave(coarse.query_block // stage.query_block, dim=0)[: len(blocks.evicted)]
            parts = torch.arange(0, coarse.chunk, stage.chunk, device=q.device)
            starts = (own[..., None] + parts).flatten(1)
        keep = self._kept(layer, number)
        if starts.shape[1] <= keep:
            return starts
        near = None if copies is None else copies(number, starts, blocks.evicted)
        few = self.grouped and number < len(self.stages) - 1
        scores = self._score(layer, q, blocks, keys, starts, stage.chunk, near, FEWER if few else 1)
        best, place = scores.topk(keep, dim=1)
        return starts.gather(1, place).masked_fill(best == float("-inf"), EMPTY).sort(dim=1).values

    def _score(
        self,
        layer: int,
        q: Tensor,
        blocks: QueryBlocks,
        keys: Slabs,
        starts: Tensor,
        chunk: int,
        copies: Copies | None,
        step: int,
    ) -> Tensor:
        """Return chunk scores float32 [NB, C]. step: distance between the queries of a block that are used."""
        rope = self.spec.layers[layer].rope
        chunks = (starts < blocks.evicted[:, None]).sum(dim=1)
        queries, limit, places = pruning_places(self.rules[layer].places, blocks, chunks, starts.shape[1], rope)
        # A block that is not full repeats the last query that is looked at, which changes no maximum.
        size, begin = min(blocks.size, q.shape[1]), (len(chunks) - 1) * blocks.size
        last = begin + (q.shape[1] - 1 - begin) // step * step
        full = torch.arange(0, len(chunks) * size, device=q.device).view(-1, size)[:, ::step].clamp_max(last)
        folded = rope.rotate(q, queries, limit)[:, full]
        if self.grouped:  # as if they were queries of one head
            heads = keys[0][0].shape[0]
            folded = folded.view(heads, -1, *folded.shape[1:]).transpose(1, 2).flatten(2, 3)
        return chunk_scores(folded, keys, starts, blocks.evicted, chunk, places, copies)
