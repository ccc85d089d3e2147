"""The position rules: which RoPE position a key or a query gets. Together in one place, to be compared.

What is stored is the key before RoPE, so each rule is a matter of arithmetic only. RoPE sees nothing but the distance
between a query's position and a key's. The rules keep that distance inside what the model was trained for, as long as
sinks, window and what is chosen fit there together, but for three cases: `true` grows with the text, `chunk` with the
number of chunks, and slots without a budget (`full`, and `beacon` with a ratio) with all that they hold.
S sinks, W window, n the number of a query from the very beginning, K far entries that its block has chosen.

| rule | keys | query | used by |
|---|---|---|---|
| context-reset (CR-RoPE) | slot 0, 1, 2, ..., anew after condensing | next slot | `slots.py`: infinipot, locret, full |
| relative | slot 0, 1, 2, ... of beacons, then window | its slot | `slots.py`: beacon |
| true distance | index in the window | its own index | `window.py`: every window |
| StreamingLLM's sinks | 0 .. S-1 | its place in the cache, at most S+W-1 | `window.py`: the sinks |
| constant distance, the cache's end | 0 | S+W-1, or where the gist ends | `exact`; every second look, `recall`'s too |

Far keys of `infllm`, `infinitehip` and `recall`, and the sinks of queries that have any (`FarPlaces`; InfiniteHiP's
Table 5, columns):

| rule | keys | query |
|---|---|---|
| true | number from the very beginning | n |
| streaming | rank among sinks and chosen, in order | n - (evicted - K): the cache without what was left out |
| infllm | 0 | W: one constant distance |
| dynamic | number // G | n // G + W - W // G: SelfExtend, G as small as the model's window allows |

Far keys while InfiniteHiP prunes (`pruning_places`; Table 5, rows; the key rules are `kernels/pruning`'s):

| rule | keys | query |
|---|---|---|
| true | number from the very beginning | n |
| relative | 0 in the left branch; 1 in the right and for representatives | W+1 |
| chunk | number of its chunk in the stage's list, 0 .. C-1 | C-1+W |
| infllm | 0 | W |
| dynamic | number // G | n // G + W - W // G |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.models.rope import Rope
from kernels import pruning
from kernels.attention import VisibleRange

TRUE = "true"
ATTENTION_RULES = ("streaming", "infllm", "dynamic")
LEAST_BETWEEN = 16  # positions that `dynamic` needs between what is near and the end of the model's window
PRUNING_RULES = {
    TRUE: pruning.TOKEN,
    "relative": pruning.BRANCH,
    "chunk": pruning.CHUNK,
    "infllm": pruning.CONSTANT,
    "dynamic": pruning.TOKEN,
}


def sink_query_positions(first: int, count: int, sinks: int, window: int, block: int) -> Tensor:
    """Where queries number first, first+1, ... stand as seen from the sinks, int64 [count].

    StreamingLLM (https://arxiv.org/abs/2309.17453, section 3.2) numbers positions inside its cache: sinks 0 .. S-1,
    then the last W tokens, the query being the last of them. In a block of queries the cache grows by one with each.
    """
    step = torch.arange(count)
    return torch.minimum(first + step, sinks + window - 1 + step % block)


def far_query_position(sinks: int, window: int) -> int:
    """The one position of a query as seen from far keys at position 0: the end of its cache."""
    return sinks + window - 1


@dataclass(frozen=True)
class QueryBlocks:
    """Blocks of queries that choose together. size: queries per block; the last may be short.

    number: int64 [T], of each query from the very beginning; evicted: int64 [NB], tokens behind the sinks that have
    left a block's window, ascending; ahead: how far beyond that the numbers of its queries reach at most; fits: bool
    [NB], whether the block ends inside what the model was trained for.
    here: the same on the host, where it was made (`to`) and is asked without waiting for a device.
    """

    number: Tensor
    size: int
    evicted: Tensor
    ahead: int
    fits: Tensor
    sinks: int
    window: int
    trained: int
    here: QueryBlocks | None = None

    def to(self, device: torch.device) -> QueryBlocks:
        """On a device, to which all of it goes in one copy."""
        if device == self.number.device:
            return self
        blocks = len(self.evicted)
        sent = torch.cat([self.evicted, self.fits.long(), self.number]).to(device, non_blocking=True)
        evicted, fits, number = sent[:blocks], sent[blocks : 2 * blocks].bool(), sent[2 * blocks :]
        return dataclasses.replace(self, number=number, evicted=evicted, fits=fits, here=self)

    def changing(self, number: Tensor, evicted: Tensor) -> QueryBlocks:
        """Return this block of one query with its number [1] and what it has evicted [1] read from tensors.

        Facts that are asked of it on the host must hold for all tokens to come; it must not fit the model's window.
        """
        fits = torch.zeros(1, dtype=torch.bool, device=number.device)
        return dataclasses.replace(self, number=number, evicted=evicted, fits=fits, here=self.known)

    @property
    def known(self) -> QueryBlocks:
        """Where the numbers can be asked for without waiting."""
        return self.here or self

    @cached_property
    def last(self) -> int:
        """What the last block has evicted."""
        return int(self.known.evicted[-1])

    @cached_property
    def beyond(self) -> int:
        """Exclusive upper bound of all query numbers."""
        return int(self.known.number[-1]) + 1

    @cached_property
    def fitting(self) -> int:
        """Exclusive upper bound of the query numbers in blocks that fit the window; 0 if none does."""
        known = self.known
        number = known.number[known.fits[known.of_query]]
        return int(number.max()) + 1 if len(number) else 0

    @cached_property
    def reach(self) -> int:
        """Exclusive upper bound of the distance from a query to the newest entry that its block has evicted."""
        known = self.known
        return int((known.number - known.evicted[known.of_query]).max()) + 1

    @cached_property
    def near(self) -> int:
        """How many queries are in blocks that have evicted nothing; those behind them see far entries."""
        known = self.known
        return int((known.evicted == 0)[known.of_query].sum())

    def span(self, stop: int) -> VisibleRange:
        """For a bank of `stop` rows, of which queries in blocks that have evicted nothing see none; made once."""
        if stop not in self._spans:
            known = self.known
            end = torch.where(known.evicted > 0, stop, 0)[known.of_query]
            self._spans[stop] = VisibleRange(torch.zeros_like(end), end).to(self.number.device)
        return self._spans[stop]

    def span_behind(self, sinks: int) -> VisibleRange:
        """Return the range of sinks and archived entries that each query sees, sinks first; computed once.

        A block sees what it has evicted; one that has evicted nothing sees no sinks here either.
        """
        if -1 - sinks not in self._spans:
            known = self.known
            end = torch.where(known.evicted > 0, known.evicted + sinks, 0)[known.of_query]
            self._spans[-1 - sinks] = VisibleRange(torch.zeros_like(end), end).to(self.number.device)
        return self._spans[-1 - sinks]

    @cached_property
    def _spans(self) -> dict[int, VisibleRange]:
        return {}

    @property
    def of_query(self) -> Tensor:
        """The block of each query, int64 [T]."""
        return torch.arange(len(self.number), device=self.number.device) // self.size

    def per_query(self, of_block: Tensor) -> Tensor:
        """Return numbers [NB] of blocks for each query, [T]; of a single block as they are, [1]."""
        return of_block if len(of_block) == 1 else of_block[self.of_query]

    def group(self) -> Tensor:
        """SelfExtend's G for each block, int64 [NB]: no position reaches the model's window.

        Source: Self-Extend (https://arxiv.org/abs/2401.01325), with a group size that follows the length.
        """
        last = self.evicted + self.ahead
        room = self.trained - self.window - 2
        return torch.div(last - self.window + room - 1, room, rounding_mode="floor").clamp_min(1)

    def dynamic(self) -> Tensor:
        """Where queries stand under SelfExtend's rule, int64 [T]."""
        group = self.group()[self.of_query]
        return self.number // group + self.window - self.window // group


@dataclass(frozen=True)
class FarPlaces:
    """Positions in the attention: keys int64 [NB, N], sinks first; queries int64 [T]; all of them below `limit`."""

    keys: Tensor
    queries: Tensor
    limit: int

    @classmethod
    def of(
        cls, rule: str, blocks: QueryBlocks, original: Tensor, chosen: Tensor | None, ranks: Tensor | None = None
    ) -> FarPlaces:
        """By a rule of ATTENTION_RULES; true distances in blocks that fit the model's window.

        original: int64 [NB, N], numbers of the keys' tokens.
        chosen: int64 [NB], how many of them are no sinks, for the rule `streaming`.
        ranks: int64 [NB, N], 0, 1, 2, ..., if there is such a tensor already.
        """
        number = blocks.number
        if rule == "streaming":
            keys = (
                torch.arange(original.shape[1], device=original.device).expand_as(original) if ranks is None else ranks
            )
            assert chosen is not None, "the rule counts what is chosen"
            queries = number - blocks.per_query(blocks.evicted - chosen)
            limit = blocks.reach + original.shape[1]
        elif rule == "infllm":
            keys, queries = torch.zeros_like(original), torch.full_like(number, blocks.window)
            limit = blocks.window + 1
        else:
            keys, queries, limit = original // blocks.group()[:, None], blocks.dynamic(), blocks.trained
        if blocks.fitting:
            keys = torch.where(blocks.fits[:, None], original, keys)
            queries = torch.where(blocks.per_query(blocks.fits), number, queries)
        return cls(keys, queries, max(limit, blocks.fitting))


def pruning_places(
    rule: str, blocks: QueryBlocks, chunks: Tensor, most: int, rope: Rope
) -> tuple[Tensor, int, pruning.KeyPositions]:
    """Where queries stand, int64 [T], what they lie below, and how keys' positions are found.

    rule: of PRUNING_RULES; chunks: int64 [NB], chunks that are not empty; most: not fewer than any of them. True
    distances in blocks that fit the model's window.
    """
    block, fits = blocks.of_query, blocks.fits
    if rule == "relative":
        queries, limit = torch.full_like(blocks.number, blocks.window + 1), blocks.window + 2
    elif rule == "chunk":
        queries, limit = (chunks - 1 + blocks.window)[block], most + blocks.window
    elif rule == "infllm":
        queries, limit = torch.full_like(blocks.number, blocks.window), blocks.window + 1
    elif rule == "dynamic":
        queries, limit = blocks.dynamic(), blocks.trained
    else:
        queries, limit = blocks.number, blocks.beyond
    queries, limit = torch.where(fits[block], blocks.number, queries), max(limit, blocks.fitting)
    group = blocks.group() if rule == "dynamic" else torch.ones_like(blocks.evicted)
    code = torch.full_like(group, PRUNING_RULES[rule]).masked_fill(fits, pruning.TOKEN)
    cos, sin = rope.table(limit)
    kinds = frozenset({PRUNING_RULES[rule], pruning.TOKEN} if blocks.fitting else {PRUNING_RULES[rule]})
    return queries, limit, pruning.KeyPositions(code, group.masked_fill(fits, 1), blocks.sinks, cos, sin, kinds)


def require_between(rules: Iterable[str], near: str, reach: int, beside: int, window: int) -> None:
    """Refuse the rule `dynamic` where what is near leaves far keys no place.

    near: what that is, in words; reach: its entries; beside: those of the budget that are not near; window: the
    model's, in tokens.

    Raises:
        SettingsError: with the largest budget that would do.
    """
    if "dynamic" in rules and reach > window - LEAST_BETWEEN:
        raise SettingsError(
            f"The rule 'dynamic' puts far keys between {near} of {reach} and the model's window of {window}: give a "
            f"budget of at most {beside + window - LEAST_BETWEEN}."
        )
