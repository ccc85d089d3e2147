"""Attention over rows of slabs in plain PyTorch; the CPU implementation.

With lists, keys are stored before RoPE, and each block of queries has a list of rows and of their positions. So sinks,
selected entries and a window may share one list. Without lists, a query may see any row of its span, and keys are
already rotated.
Sizes: HQ query heads, H KV heads, T queries, NB blocks of queries, N rows listed or in all slabs, D head size, R
rotated width.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import softmax
from kernels.rotation import rotate
from kernels.rows import Share, Slabs, parted, plain, take_same

STEP_BYTES = 128 << 20  # memory for the gathered keys and values of one step
BAND = 128  # queries at a time if each sees its own window, or all logits are written


@dataclass(frozen=True)
class Span:
    """Visible rows of each query: query t sees rows first[t] .. end[t] - 1, int64 [T] each.

    Attributes:
        here: the same span on the host, so that its values can be read without synchronising; None if this is on
            the host.
        changing: the values change when a recorded pass is replayed, so no decision may depend on them.
    """

    first: Tensor
    end: Tensor
    here: Span | None = None
    changing: bool = False

    def to(self, device: torch.device) -> Span:
        """Return the span on this device, copied in one transfer."""
        if device == self.end.device:
            return self
        first, end = torch.stack([self.first, self.end]).to(device, non_blocking=True)
        return Span(first, end, self)

    @property
    def known(self) -> Span:
        """The span on the host if there is one: its values can be read without synchronising."""
        return self.here or self

    def mask(self, index: Tensor) -> Tensor | None:
        """Return the mask for rows index [..., N], to add to logits: float32 [..., T, N]; None if every query sees
        every row.
        """
        row = index[..., None, :]
        hidden = (row < self.first[..., None]) | (row >= self.end[..., None])
        if hidden.device.type == "cpu" and not self.changing and not bool(hidden.any()):
            return None  # on a GPU the test costs more than adding the mask
        return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))

    def mask_of(self, begin: int, end: int) -> Tensor | None:
        """Return the mask [T, end - begin] of rows begin .. end - 1; kept for the next layers."""
        if (begin, end) not in self._masks:
            self._masks[begin, end] = self.mask(torch.arange(begin, end, device=self.end.device))
        return self._masks[begin, end]

    def part(self, begin: int, end: int) -> Span:
        """Return the span of queries begin .. end - 1; kept for the next layers."""
        if (begin, end) not in self._parts:
            here = None if self.here is None else self.here.part(begin, end)
            self._parts[begin, end] = Span(self.first[begin:end], self.end[begin:end], here, self.changing)
        return self._parts[begin, end]

    @cached_property
    def common(self) -> tuple[int, int]:
        """Rows that every query sees, as (start, stop); none if stop <= start."""
        if self.changing:
            return sys.maxsize, 0
        return int(self.known.first.max()), int(self.known.end.min())

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Smallest range (start, stop) that holds the rows of all queries."""
        if self.changing:
            return 0, sys.maxsize
        return int(self.known.first.min().clamp_min(0)), int(self.known.end.max())

    @cached_property
    def grows(self) -> bool:
        """True if each query sees one row more than the query before it."""
        return not self.changing and bool((self.known.end.diff() == 1).all())

    def alike(self, size: int) -> bool:
        """Return whether the queries of each full block of `size` surely see the same rows.

        T must be a multiple of `size`.
        """
        both = torch.stack([self.known.first, self.known.end]).view(2, -1, size)
        return size == 1 or (not self.changing and bool((both[..., :1] == both).all()))

    def causal_over(self, length: int) -> bool:
        """Return whether this is causal attention: the queries are the last of `length` rows, each seeing all up to its
        own.
        """
        return self.common[0] <= 0 and self.grows and self.reach[1] == length

    @cached_property
    def _masks(self) -> dict[tuple[int, int], Tensor | None]:
        return {}

    @cached_property
    def _parts(self) -> dict[tuple[int, int], Span]:
        return {}


@dataclass(frozen=True)
class Lists:
    """Lists of visible rows, one for each block of `size` queries; the last of the NB = ceil(T / size) blocks may be
    short.

    Attributes:
        index: int64 [NB, N], rows of the slabs. A row past the end of every query of its block is padding.
        places: int64 [NB, N], positions of the keys.
        cos, sin: [P, R/2], RoPE tables.
        seen: bool [H, NB, N], rows visible to each head; None for all.
    """

    index: Tensor
    places: Tensor
    size: int
    cos: Tensor
    sin: Tensor
    seen: Tensor | None = None

    @cached_property
    def turned(self) -> dict[tuple[object, ...], Tensor]:
        """Gathered and rotated keys of a single list, by slab address; `column_sums` uses them after `attend`.

        A Lists therefore serves one pass, and its rows must not be written during that pass.
        """
        return {}

    @cached_property
    def still(self) -> bool:
        """True if all keys are known to have position 0 and rotation there is the identity."""
        if self.places.device.type != "cpu":
            return False
        return not bool(self.places.any()) and bool((self.cos[0] == 1).all())

    def part(self, begin: int, end: int) -> Lists:
        """Return the lists of blocks begin .. end - 1."""
        if begin <= 0 and end >= len(self.index):
            return self
        seen = None if self.seen is None else self.seen[:, begin:end]
        return Lists(self.index[begin:end], self.places[begin:end], self.size, self.cos, self.sin, seen)

    def parted(self, slabs: Slabs) -> list[Share]:
        """Return the listed rows split by slab; computed once, as keys and values are laid out alike."""
        lengths = tuple(length for _, length in slabs)
        if lengths not in self._parted:
            # Padding needs a row without NaN: row 0, as the last rows may not be written yet.
            index = torch.where(self.index < sum(lengths), self.index, 0)
            self._parted[lengths] = parted(slabs, index.flatten())
        return self._parted[lengths]

    @cached_property
    def _parted(self) -> dict[tuple[int, ...], list[Share]]:
        return {}


def attend(
    q: Tensor,
    keys: Slabs,
    values: Slabs,
    span: Span,
    lists: Lists | None,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return softmax attention over the visible rows of each query.

    Args:
        q: [HQ, T, D], rotated.
        keys, values: slabs [H, capacity, D]; keys before RoPE with lists, already rotated without.
        span: visible rows of each query.
        lists: rows listed for each block of queries; None for all rows.
        scaling: factor of the dot products.
        softcap: limit of the logits, by tanh; None for no limit.

    Returns:
        Output [HQ, T, D] and log-sum-exp float32 [HQ, T]. A query that sees no row gets 0 and -inf.
    """
    if lists is None:
        return _dense(q, keys, values, span, scaling, softcap)
    row_bytes = 4 * 4 * keys[0][0].shape[0] * q.shape[2]  # keys and values, before and after conversion
    step = max(1, STEP_BYTES // (row_bytes * lists.index.shape[1]))
    parts = []
    for begin in range(0, len(lists.index), step):
        rows = slice(begin * lists.size, (begin + step) * lists.size)
        part = lists.part(begin, begin + step)
        parts.append(_listed(q[:, rows], keys, values, span.part(rows.start, rows.stop), part, scaling, softcap))
    if len(parts) == 1:
        return parts[0]
    return torch.cat([output for output, _ in parts], dim=1), torch.cat([total for _, total in parts], dim=1)


def _dense(
    q: Tensor, keys: Slabs, values: Slabs, span: Span, scaling: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attend slab by slab. Rows that all queries see, and a causal square, need no mask."""
    query_heads, count, size = q.shape
    heads, group = keys[0][0].shape[0], query_heads // keys[0][0].shape[0]
    (low, high), (lowest, highest) = span.common, span.reach
    if count > BAND and (low > lowest or q.device.type != "cpu"):
        pieces = [
            _dense(q[:, at : at + BAND], keys, values, span.part(at, at + BAND), scaling, softcap)
            for at in range(0, count, BAND)
        ]
        return torch.cat([output for output, _ in pieces], dim=1), torch.cat([total for _, total in pieces], dim=1)
    single = count == 1  # then the query heads of a group read the keys once, as queries of one head
    folded = q.reshape(1, heads, group, size) if single else q.view(heads, group, count, size)
    parts, at = [], 0
    for (k, length), (v, _) in zip(plain(keys), plain(values), strict=True):
        start, stop = min(max(at, lowest), at + length), max(at, min(at + length, highest))
        edge = min(max(start, high if single else high - 1), stop) if low <= start else start
        for begin, end in ((start, edge), (edge, stop)):
            if begin >= end:
                continue
            square = not single and low <= begin == high - 1 and end - begin == count and span.grows
            mask = None if square or (low <= begin and end <= high) else span.mask_of(begin, end)
            shape = (1, heads, end - begin, size) if single else (heads, group, end - begin, size)
            here = slice(begin - at, end - at)
            own_k, own_v = ((x[:, here][None] if single else x[:, None, here]).expand(shape) for x in (k, v))
            parts.append(softmax.attend(folded, own_k, own_v, scaling, softcap, mask, square))
        at += length
    if not parts:
        return torch.zeros_like(q), q.new_full(q.shape[:2], float("-inf"), dtype=torch.float32)
    output, total = softmax.merge(parts)
    return output.reshape(query_heads, count, size), total.reshape(query_heads, count)


def _listed(
    q: Tensor, keys: Slabs, values: Slabs, span: Span, lists: Lists, scaling: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    heads, count, blocks = keys[0][0].shape[0], q.shape[1], len(lists.index)
    turned, v = rotated(keys, lists, q), listed(values, lists, q)
    mask = _list_mask(span, lists, count, q.shape[0] // heads)
    folded = fold(q, heads, blocks, lists.size).transpose(0, 1)
    output, total = softmax.attend(folded, turned.transpose(0, 1), v.transpose(0, 1), scaling, softcap, mask)
    return (
        unfold(output.transpose(0, 1), q.shape[0], count, lists.size),
        unfold(total.transpose(0, 1)[..., None], q.shape[0], count, lists.size)[..., 0],
    )


def _list_mask(span: Span, lists: Lists, count: int, group: int) -> Tensor | None:
    """Return the mask to add to logits [NB, H, G * size, N], broadcastable to them; None if every row is visible."""
    blocks = len(lists.index)
    missing = blocks * lists.size - count
    ends = [F.pad(end, (0, missing)).view(blocks, lists.size) for end in (span.first, span.end)]
    if not missing and span.alike(lists.size):
        ends = [end[:, :1] for end in ends]  # queries of a block see the same rows: one mask row is enough
    mask = Span(ends[0], ends[1]).mask(lists.index)
    if mask is not None:
        mask = (mask if mask.shape[1] == 1 else mask.repeat(1, group, 1))[:, None]
    if lists.seen is None:
        return mask
    unseen = lists.seen.new_zeros(lists.seen.shape, dtype=torch.float32).masked_fill_(~lists.seen, float("-inf"))
    by_head = unseen.transpose(0, 1)[:, :, None]
    return by_head if mask is None else by_head + mask


def logits(
    q: Tensor, keys: Slabs, span: Span, lists: Lists | None, scaling: float, softcap: float | None = None
) -> Tensor:
    """Return logits [HQ, T, N], at least float32, -inf for rows that a query does not see; without lists N = all rows.

    For few queries: the matrix is small then, and `logits` with `mix` takes fewer steps than `attend`.
    """
    query_heads, count, size = q.shape
    heads = keys[0][0].shape[0]
    if lists is not None:
        folded = fold(q, heads, len(lists.index), lists.size)
        found = softmax.scores(folded, rotated(keys, lists, q), scaling, softcap)
        mask = _list_mask(span, lists, count, query_heads // heads)
        if mask is not None:
            found = found.add_(mask.transpose(0, 1))
        return unfold(found, query_heads, count, lists.size)
    (low, high), at, pieces = span.common, 0, []
    grouped = q.reshape(heads, -1, size)
    for slab, length in plain(keys):
        if length:
            piece = softmax.scores(grouped, slab[:, :length], scaling, softcap).view(query_heads, count, length)
            mask = None if low <= at and at + length <= high else span.mask_of(at, at + length)
            pieces.append(piece if mask is None else piece.add_(mask))
        at += length
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)


def mix(weights: Tensor, values: Slabs, lists: Lists | None, like: Tensor) -> Tensor:
    """Return sums [HQ, T, D] of values weighted by `weights` [HQ, T, N], on the device and in the dtype of `like`."""
    query_heads, count, _ = weights.shape
    heads, _, size = values[0][0].shape
    weights = weights.to(like.dtype)
    if lists is not None:
        mixed = fold(weights, heads, len(lists.index), lists.size) @ listed(values, lists, like)
        return unfold(mixed, query_heads, count, lists.size)
    grouped, at, output = weights.view(heads, -1, weights.shape[2]), 0, None
    for slab, length in plain(values):
        if length:
            part = grouped[..., at : at + length] @ slab[:, :length]
            output = part if output is None else output + part
        at += length
    assert output is not None, "a bank without rows"
    return output.view(query_heads, count, size)


def per_list(weights: Tensor, lists: Lists | None) -> Tensor:
    """Sum weights [HQ, T, N] over the queries of each list; returns float32 [HQ, NB, N]."""
    if weights.shape[1] == 1:
        return weights.float()
    if lists is None or len(lists.index) == 1:
        return weights.float().sum(dim=1, keepdim=True)
    missing = len(lists.index) * lists.size - weights.shape[1]
    padded = F.pad(weights.float(), (0, 0, 0, missing))
    return padded.view(len(weights), len(lists.index), lists.size, -1).sum(dim=2)


def listed(slabs: Slabs, lists: Lists, q: Tensor) -> Tensor:
    """Gather the listed rows [H, NB, N, D], on the device and in the dtype of q."""
    rows = take_same(slabs, lists.parted(slabs), q)
    return rows.view(len(rows), *lists.index.shape, -1)


def rotated(keys: Slabs, lists: Lists, q: Tensor) -> Tensor:
    """Gather the listed keys [H, NB, N, D] and rotate them to their positions."""
    if len(lists.index) > 1:
        return _turned(listed(keys, lists, q), lists)
    bank = (q.dtype, *(slab.data_ptr() for slab, _ in keys))
    if bank not in lists.turned:
        lists.turned[bank] = _turned(listed(keys, lists, q), lists)
    return lists.turned[bank]


def _turned(keys: Tensor, lists: Lists) -> Tensor:
    return keys if lists.still else rotate(keys, lists.cos[lists.places], lists.sin[lists.places])


def fold(x: Tensor, heads: int, blocks: int, size: int) -> Tensor:
    """Reshape [HQ, T, X] to [H, NB, G * size, X], so that queries that share keys are together."""
    padded = F.pad(x, (0, 0, 0, blocks * size - x.shape[1]))
    grouped = padded.view(heads, -1, blocks, size, x.shape[2])
    return grouped.transpose(1, 2).reshape(heads, blocks, -1, x.shape[2])


def unfold(x: Tensor, query_heads: int, count: int, size: int) -> Tensor:
    """Undo `fold` and return [HQ, T, X]."""
    grouped = x.reshape(*x.shape[:2], -1, size, x.shape[3]).transpose(1, 2)
    return grouped.reshape(query_heads, -1, x.shape[3])[:, :count]
