"""Position rules: the RoPE position of each key and query, all in one place.

Keys are stored before RoPE, so each rule is plain arithmetic. RoPE only sees the distance between the positions of a
query and a key. The rules keep that distance inside the model's training length, as long as sinks, window and selected
entries fit there together. There are three exceptions: `true` grows with the text, `chunk` with the number of chunks,
and slots without a budget (`full`, and `beacon` with a ratio) with all their entries. S sinks, W window, n the number
of a query in the whole text, K far entries selected by its block.

| rule | keys | query | used by |
|---|---|---|---|
| context-reset (CR-RoPE) | slot 0, 1, 2, ..., anew after condensing | next slot | `slots.py`: infinipot, locret, full |
| relative | slot 0, 1, 2, ... of beacons, then window | its slot | `slots.py`: beacon |
| true distance | index in the window | its own index | `window.py`: every window |
| StreamingLLM's sinks | 0 .. S-1 | its place in the cache, at most S+W-1 | `window.py`: the sinks |
| constant distance, the cache's end | 0 | S+W-1, or the gist's end | `exact`; every second look, `recall`'s too |

Inside the model's window, `exact` (but for its first layer) and the first look of `infinitehip` attend to far keys at
true distances, which tell a model the order of tokens. `extend_always` switches that off.

Far keys of `infllm`, `infinitehip` and `recall`, and the sinks of queries with far keys (`FarPlaces`; InfiniteHiP's
Table 5, columns):

| rule | keys | query |
|---|---|---|
| true | number in the whole text | n |
| streaming | rank among sinks and selected, in order | n - (evicted - K): the cache without skipped entries |
| infllm | 0 | W: one constant distance |
| dynamic | number // G | n // G + W - W // G: SelfExtend, G as small as the model's window allows |

Far keys while InfiniteHiP prunes (`pruning_places`; Table 5, rows; the key rules are in `kernels/pruning`):

| rule | keys | query |
|---|---|---|
| true | number in the whole text | n |
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
LEAST_BETWEEN = 16  # positions that `dynamic` needs between near entries and the end of the model's window
PRUNING_RULES = {
    TRUE: pruning.TOKEN,
    "relative": pruning.BRANCH,
    "chunk": pruning.CHUNK,
    "infllm": pruning.CONSTANT,
    "dynamic": pruning.TOKEN,
}


def sink_query_positions(first: int, count: int, sinks: int, window: int, block: int) -> Tensor:
    """Return the positions of `count` queries from number `first` on as seen from the sinks, int64 [count].

    StreamingLLM (https://arxiv.org/abs/2309.17453, section 3.2) numbers positions inside its cache: sinks 0 .. S-1,
    then the
    last W tokens, the query being the last of them. In a block of queries the cache grows by one with each query.
    """
    step = torch.arange(count)
    return torch.minimum(first + step, sinks + window - 1 + step % block)


def far_query_position(sinks: int, window: int) -> int:
    """Return the position of every query as seen from far keys at position 0: the end of its cache."""
    return sinks + window - 1


@dataclass(frozen=True)
class QueryBlocks:
    """Blocks of queries that select together.

    Attributes:
        number: int64 [T], the number of each query in the whole text.
        size: queries per block; the last block may be short.
        evicted: int64 [NB], ascending, tokens behind the sinks that have left each block's window.
        ahead: greatest difference between a query's number and its block's `evicted`.
        fits: bool [NB], whether the block ends inside the model's training length.
        sinks: number of sinks.
        window: size of the window.
        trained: the model's training length.
        may_fit: whether blocks of later passes, which these stand for as well, may end inside it.
        on_host: the same blocks on the host, or None if these are there.
    """

    number: Tensor
    size: int
    evicted: Tensor
    ahead: int
    fits: Tensor
    sinks: int
    window: int
    trained: int
    may_fit: bool = False
    on_host: QueryBlocks | None = None

    def to(self, device: torch.device) -> QueryBlocks:
        """Return the blocks on a device, copied there at once."""
        if device == self.number.device:
            return self
        blocks = len(self.evicted)
        sent = torch.cat([self.evicted, self.fits.long(), self.number]).to(device, non_blocking=True)
        evicted, fits, number = sent[:blocks], sent[blocks : 2 * blocks].bool(), sent[2 * blocks :]
        return dataclasses.replace(self, number=number, evicted=evicted, fits=fits, on_host=self)

    def changing(self, number: Tensor, evicted: Tensor, fits: Tensor | None = None) -> QueryBlocks:
        """Return this block of one query with its number [1] and its evicted tokens [1] read from tensors.

        Facts on the host must hold for all later tokens.

        fits: bool [1], read likewise; None if neither this block nor a later one fits the model's window.
        """
        may_fit = fits is not None
        fits = torch.zeros(1, dtype=torch.bool, device=number.device) if fits is None else fits
        on_host = self.host_copy
        return dataclasses.replace(self, number=number, evicted=evicted, fits=fits, may_fit=may_fit, on_host=on_host)

    @property
    def host_copy(self) -> QueryBlocks:
        """The blocks on the host, whose numbers can be read without waiting."""
        return self.on_host or self

    @cached_property
    def last(self) -> int:
        """Number of tokens that the last block has evicted."""
        return int(self.host_copy.evicted[-1])

    @cached_property
    def beyond(self) -> int:
        """Exclusive upper bound of all query numbers."""
        return int(self.host_copy.number[-1]) + 1

    @cached_property
    def fitting(self) -> int:
        """Exclusive upper bound of the query numbers in blocks that fit the window; 0 if none does."""
        if self.may_fit:
            return self.trained
        host_copy = self.host_copy
        number = host_copy.number[host_copy.fits[host_copy.of_query]]
        return int(number.max()) + 1 if len(number) else 0

    @cached_property
    def reach(self) -> int:
        """Exclusive upper bound of the distance from a query to the newest entry that its block has evicted."""
        host_copy = self.host_copy
        return int((host_copy.number - host_copy.evicted[host_copy.of_query]).max()) + 1

    @cached_property
    def near(self) -> int:
        """Number of queries in blocks that have evicted nothing. Only later queries see far entries."""
        host_copy = self.host_copy
        return int((host_copy.evicted == 0)[host_copy.of_query].sum())

    def span(self, stop: int) -> VisibleRange:
        """Return the visible range of a bank with `stop` rows, empty for blocks that have evicted nothing. Cached."""
        if stop not in self._spans:
            host_copy = self.host_copy
            end = torch.where(host_copy.evicted > 0, stop, 0)[host_copy.of_query]
            self._spans[stop] = VisibleRange(torch.zeros_like(end), end).to(self.number.device)
        return self._spans[stop]

    def span_behind(self, sinks: int) -> VisibleRange:
        """Return the range of sinks and archived entries that each query sees, sinks first; computed once.

        Blocks that have evicted nothing see no sinks either.
        """
        if -1 - sinks not in self._spans:
            host_copy = self.host_copy
            end = torch.where(host_copy.evicted > 0, host_copy.evicted + sinks, 0)[host_copy.of_query]
            self._spans[-1 - sinks] = VisibleRange(torch.zeros_like(end), end).to(self.number.device)
        return self._spans[-1 - sinks]

    def nowhere(self, entries: Tensor) -> Tensor:
        """Return position 0 for each of `entries` [NB, N], int64; made once for a shape."""
        if entries.shape not in self._zeros:
            self._zeros[entries.shape] = torch.zeros_like(entries)
        return self._zeros[entries.shape]

    @cached_property
    def _zeros(self) -> dict[torch.Size, Tensor]:
        return {}

    @cached_property
    def _spans(self) -> dict[int, VisibleRange]:
        return {}

    @property
    def of_query(self) -> Tensor:
        """Block of each query, int64 [T]."""
        return torch.arange(len(self.number), device=self.number.device) // self.size

    def per_query(self, of_block: Tensor) -> Tensor:
        """Return numbers [NB] of blocks for each query, [T]; of a single block as they are, [1]."""
        return of_block if len(of_block) == 1 else of_block[self.of_query]

    def group(self) -> Tensor:
        """Return SelfExtend's G for each block, int64 [NB], so that no position exceeds the model's window.

        Source: Self-Extend (https://arxiv.org/abs/2401.01325), with a group size that follows the length.
        """
        last = self.evicted + self.ahead
        room = self.trained - self.window - 2
        return torch.div(last - self.window + room - 1, room, rounding_mode="floor").clamp_min(1)

    def dynamic(self) -> Tensor:
        """Return the query positions of SelfExtend's rule, int64 [T]."""
        group = self.group()[self.of_query]
        return self.number // group + self.window - self.window // group


@dataclass(frozen=True)
class FarPlaces:
    """Positions of far keys and their queries in the attention.

    Attributes:
        keys: int64 [NB, N], sinks first.
        queries: int64 [T], or where all of them stand.
        limit: exclusive upper bound of all positions.
    """

    keys: Tensor
    queries: Tensor | int
    limit: int

    def rotate_queries(self, rope: Rope, q: Tensor) -> Tensor:
        """Return queries [HQ, T, D], rotated to their positions."""
        if isinstance(self.queries, int):
            return rope.to_constant(q, self.queries)
        return rope.rotate(q, self.queries, self.limit)

    @classmethod
    def of(
        cls, rule: str, blocks: QueryBlocks, original: Tensor, chosen: Tensor | None, ranks: Tensor | None = None
    ) -> FarPlaces:
        """Return positions by a rule. Blocks that fit the model's window have true distances.

        Args:
            rule: one of `ATTENTION_RULES`.
            blocks: the queries.
            original: int64 [NB, N], numbers of the keys' tokens.
            chosen: int64 [NB], how many of the keys are no sinks; only the rule `streaming` needs it.
            ranks: int64 [NB, N], 0, 1, 2, ..., if there is such a tensor already.
        """
        number = blocks.number
        queries: Tensor | int
        if rule == "streaming":
            keys = (
                torch.arange(original.shape[1], device=original.device).expand_as(original) if ranks is None else ranks
            )
            assert chosen is not None, "the rule counts what is chosen"
            queries = number - blocks.per_query(blocks.evicted - chosen)
            limit = blocks.reach + original.shape[1]
        elif rule == "infllm":
            keys, queries, limit = blocks.nowhere(original), blocks.window, blocks.window + 1
        else:
            keys, queries, limit = original // blocks.group()[:, None], blocks.dynamic(), blocks.trained
        if blocks.fitting:
            keys = torch.where(blocks.fits[:, None], original, keys)
            queries = torch.where(blocks.per_query(blocks.fits), number, queries)
        return cls(keys, queries, max(limit, blocks.fitting))


@dataclass(frozen=True)
class SearchedPlaces:
    """Positions of queries and of the entries that each found by a search: true ones inside the model's window.

    Attributes:
        fits: bool [T], whether a query's block ends inside the model's window.
        queries: int64 [T], positions of the queries.
        sinks: tokens before the first entry.
        limit: exclusive upper bound of all positions.
    """

    fits: Tensor
    queries: Tensor
    sinks: int
    limit: int

    @classmethod
    def of(cls, blocks: QueryBlocks, distance: int) -> SearchedPlaces | None:
        """Return the positions for these queries; None if all of them see all entries at this distance."""
        if not blocks.fitting:
            return None
        fits = blocks.per_query(blocks.fits)
        queries = torch.where(fits, blocks.number, distance)
        return cls(fits, queries, blocks.sinks, max(distance + 1, blocks.fitting))

    def rotate_queries(self, rope: Rope, q: Tensor) -> Tensor:
        """Return queries [HQ, T, D], rotated to their positions."""
        return rope.rotate(q, self.queries, self.limit)

    def rotate_keys(self, rope: Rope, k: Tensor, entries: Tensor) -> Tensor:
        """Return the keys [HQ, T, K, D] of entries [HQ, T, K], rotated to their positions."""
        positions = torch.where(self.fits[:, None], entries + self.sinks, 0)
        return rope.rotate(k.flatten(0, 2)[None], positions.flatten(), self.limit).view(k.shape)


def pruning_places(
    rule: str, blocks: QueryBlocks, chunks: Tensor, most: int, rope: Rope
) -> tuple[Tensor, int, pruning.KeyPositions]:
    """Return query positions int64 [T], their exclusive upper bound, and the rule for key positions.

    Blocks that fit the model's window have true distances.

    Args:
        rule: one of `PRUNING_RULES`.
        blocks: the queries.
        chunks: int64 [NB], chunks with entries.
        most: upper bound of `chunks`.
        rope: the layer's rotation.
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
    """Raise if the rule `dynamic` has no positions left for far keys.

    Args:
        rules: the rules in use.
        near: name of the near entries, for the message.
        reach: number of near entries.
        beside: entries of the budget that are not near.
        window: the model's window in tokens.

    Raises:
        SettingsError: the message names the largest possible budget.
    """
    if "dynamic" in rules and reach > window - LEAST_BETWEEN:
        raise SettingsError(
            f"The rule 'dynamic' puts far keys between {near} of {reach} and the model's window of {window}: give a "
            f"budget of at most {beside + window - LEAST_BETWEEN}."
        )
