"""Softmax attention over several segments of keys, in one softmax.

A segment brings its own queries because position rules differ: the same query is rotated one way for its window and
another way for sinks or far keys. Outputs of segments are merged by their log-sum-exps.
Sizes: HQ query heads, H KV heads, T queries, NB blocks of queries, N keys, D head size.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from engine.models.spec import Scoring
from engine.parts import flash
from kernels import attention, choice, columns, layers, softmax
from kernels.attention import BlockTable, VisibleRange, torch_impl
from kernels.rows import Slabs, require_unquantized
from kernels.slab_facts import reachable

FEW_QUERIES = 64  # up to here, and
FEW_BYTES = 16 << 20  # up to so many bytes, all logits are written out at once

__all__ = [
    "BlockTable",
    "PerQueryKeys",
    "Segment",
    "SharedKeys",
    "VisibleRange",
    "attend",
    "causal_range",
    "torch_sdpa",
]


class Segment(Protocol):
    """Keys and values that some queries attend to."""

    @property
    def q(self) -> Tensor:
        """The queries [HQ, T, D]."""

    @property
    def mass_rows(self) -> Tensor | None:
        """Rows of `AttentionMass` that attention to the keys counts for; None where nobody counts."""

    def attend(self, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """Return the output [HQ, T, D] of a softmax over this segment alone, and its log-sum-exp [HQ, T]."""

    def attention_per_key(self, total: Tensor, scoring: Scoring) -> Tensor:
        """Return probabilities under the log-sum-exp [HQ, T] of all segments, summed over queries that share keys."""

    def logits(self, scoring: Scoring) -> Tensor:
        """Return at least float32 [HQ, T, N], -inf where a key is masked."""

    def weighted_values(self, weights: Tensor) -> Tensor:
        """Return the sum of values [HQ, T, D] by weights [HQ, T, N]."""

    def summed(self, weights: Tensor) -> Tensor:
        """Return weights [HQ, T, N] summed over queries that share keys, as `attention_per_key` does."""

    def logit_bytes(self) -> int:
        """Return the bytes of its logits, or more than any limit where kernels should compute without them."""

    def behind(self, count: int) -> Segment:
        """Return what the queries behind the first `count` see. Blocks of queries are not parted."""


@dataclass(frozen=True)
class SharedKeys:
    """Rows of slabs that all queries share, each seeing those of its visible range.

    Attributes:
        q: [HQ, T, D], rotated.
        keys, values: [H, capacity, D] each.
        visible: the rows that each query sees.
        table: the rows that each block of queries sees, with their positions, keys being before RoPE; None for all
            rows, keys being rotated. Attention per key is [HQ, NB, N], with NB = 1 without a table.
        mass_rows: see `Segment`.
    """

    q: Tensor
    keys: Slabs
    values: Slabs
    visible: VisibleRange
    table: BlockTable | None = None
    mass_rows: Tensor | None = None

    def attend(self, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """Return [HQ, T, D] and [HQ, T]."""
        return attention.attend(
            self.q, self.keys, self.values, self.visible, self.table, scoring.scaling, scoring.softcap
        )

    def attention_per_key(self, total: Tensor, scoring: Scoring) -> Tensor:
        """Return [HQ, NB, N]."""
        return columns.column_sums(self.q, self.keys, self.visible, self.table, total, scoring.scaling, scoring.softcap)

    def logits(self, scoring: Scoring) -> Tensor:
        """Return [HQ, T, N]."""
        return torch_impl.logits(self.q, self.keys, self.visible, self.table, scoring.scaling, scoring.softcap)

    def weighted_values(self, weights: Tensor) -> Tensor:
        """Return [HQ, T, D]."""
        return torch_impl.weighted_values(weights, self.values, self.table, self.q)

    def summed(self, weights: Tensor) -> Tensor:
        """Return [HQ, NB, N]."""
        return torch_impl.sum_per_block(weights, self.table)

    def logit_bytes(self) -> int:
        """Return the bytes of [HQ, T, N] in float32, or more than any limit where a kernel needs no logits."""
        if choice.uses_triton(self.q.device) and reachable([*self.keys, *self.values], self.q.device):
            return sys.maxsize
        rows = sum(n for _, n in self.keys) if self.table is None else self.table.rows.shape[1]
        return 4 * self.q.shape[0] * self.q.shape[1] * rows

    def behind(self, count: int) -> SharedKeys:
        """Return what the queries behind the first `count` see; all are of one block."""
        q, table = self.q[:, count:], self.table
        if table is not None:
            assert len(table.rows) == 1, "its blocks attend to lists of their own"
            table = dataclasses.replace(table, block_size=q.shape[1])
        return dataclasses.replace(self, q=q, visible=self.visible.part(count, self.q.shape[1]), table=table)


@dataclass(frozen=True)
class PerQueryKeys:
    """Keys that each query has selected by itself: q [HQ, T, D], k and v [HQ, T, N, D], seen bool [HQ, T, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor
    mass_rows: Tensor | None = None

    def attend(self, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """Return [HQ, T, D] and [HQ, T]."""
        logits = self.logits(scoring)
        total = logits.logsumexp(dim=-1)
        return self.weighted_values((logits - softmax.finite(total)[..., None]).exp()), total

    def attention_per_key(self, total: Tensor, scoring: Scoring) -> Tensor:
        """Return [HQ, T, N]."""
        return (self.logits(scoring) - softmax.finite(total)[..., None]).exp()

    def logits(self, scoring: Scoring) -> Tensor:
        """Return [HQ, T, N]; computed once."""
        key = scoring.scaling, scoring.softcap
        if key not in self._logits:
            logits = softmax.scores(self.q[:, :, None], self.k, scoring.scaling, scoring.softcap)[:, :, 0]
            self._logits[key] = logits.masked_fill(~self.seen, float("-inf"))
        return self._logits[key]

    @cached_property
    def _logits(self) -> dict[tuple[float, float | None], Tensor]:
        return {}

    def weighted_values(self, weights: Tensor) -> Tensor:
        """Return [HQ, T, D]."""
        return (weights.to(self.v.dtype)[:, :, None] @ self.v)[:, :, 0]

    def summed(self, weights: Tensor) -> Tensor:
        """Return the weights: no two queries share keys."""
        return weights

    def logit_bytes(self) -> int:
        """Return the bytes of [HQ, T, N] in float32; the selected keys take far more."""
        return 4 * self.seen.numel()

    def behind(self, count: int) -> PerQueryKeys:
        """Return what the queries behind the first `count` have selected."""
        rows = None if self.mass_rows is None else self.mass_rows[:, count:]
        q, k, v, seen = (x[:, count:] for x in (self.q, self.k, self.v, self.seen))
        return PerQueryKeys(q, k, v, seen, rows)


def causal_range(queries: int, keys: int, window: int | None, device: torch.device) -> VisibleRange:
    """Return which of `keys` keys each of the last `queries` positions may see.

    window: a query sees its last `window` positions, itself included; None for no limit.
    """
    end = torch.arange(keys - queries, keys) + 1
    return VisibleRange(torch.zeros_like(end) if window is None else (end - window).clamp_min(0), end).to(device)


def attend(
    segments: list[Segment], scoring: Scoring, watched: bool = False, unwatched: int = 0, apart: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Attend to all segments in one softmax. Every query must see a key in one of them: its own, at least.

    Args:
        segments: of the same queries.
        scoring: of the layer.
        watched: whether attention per key is wanted.
        unwatched: first queries whose attention it leaves out.
        apart: whether attention per key is that of each query, [HQ, T, N].

    Returns:
        The output [HQ, T, D], and the attention per key of each segment (empty unless watched).
    """
    if len(segments) == 1 and not watched and scoring.plain:
        only = segments[0]
        if isinstance(only, SharedKeys) and (output := fused(only, scoring.scaling)) is not None:
            return output, []
    few = sum(segment.logit_bytes() for segment in segments) <= FEW_BYTES and segments[0].q.shape[1] <= FEW_QUERIES
    if few or apart:
        return _written_out(segments, scoring, watched, unwatched, apart)
    output, total = merged([segment.attend(scoring) for segment in segments])
    if scoring.sink is not None:
        whole = torch.logaddexp(total, scoring.sink[:, None].to(total.dtype))
        output, total = (output * (total - whole).exp()[..., None]).to(output.dtype), whole
    if not watched:
        return output, []
    if unwatched:
        segments, total = [segment.behind(unwatched) for segment in segments], total[:, unwatched:].contiguous()
    return output, [segment.attention_per_key(total, scoring) for segment in segments]


def merged(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the output and log-sum-exp of one softmax over all parts, one after another where a kernel merges two."""
    if not choice.uses_triton(parts[0][0].device):
        return softmax.merge(parts, always_seen=True)
    return functools.reduce(lambda one, other: layers.merge(*one, *other), parts)


def _written_out(
    segments: list[Segment], scoring: Scoring, watched: bool, unwatched: int, apart: bool
) -> tuple[Tensor, list[Tensor]]:
    """Attend by one matrix of logits, as for a token of an answer: keys are read once, also where it is watched."""
    logits = [segment.logits(scoring) for segment in segments]
    sizes = [piece.shape[-1] for piece in logits]
    if scoring.sink is not None:
        logits.append(scoring.sink[:, None, None].to(logits[0].dtype).expand(*logits[0].shape[:2], 1))
    weights = (logits[0] if len(logits) == 1 else torch.cat(logits, dim=-1)).softmax(dim=-1)
    pieces = [weights] if len(logits) == 1 else torch.split(weights[..., : sum(sizes)], sizes, dim=-1)
    output = segments[0].weighted_values(pieces[0])
    for segment, piece in zip(segments[1:], pieces[1:], strict=True):
        output = output + segment.weighted_values(piece)
    if not watched:
        return output, []
    pieces = [piece[:, unwatched:] for piece in pieces]
    each = zip(segments, pieces, strict=True)
    return output, pieces if apart else [segment.summed(piece) for segment, piece in each]


def fused(segment: SharedKeys, scaling: float) -> Tensor | None:
    """Return the output [HQ, T, D] by FlashAttention or, on a GPU, by PyTorch's attention; None where neither fits."""
    if segment.table is not None or len(segment.keys) > 1:
        return None
    ((k, length),), ((v, _),) = require_unquantized(segment.keys), require_unquantized(segment.values)
    usable, causal = flash.usable(segment.q), segment.visible.causal_over(length)
    if usable and causal and (function := flash.choice()[0]):
        return flash.attend(function, segment.q, k[:, :length], v[:, :length], scaling)
    # With fewer KV heads than query heads PyTorch fuses attention without a mask, if heads are not too wide; its kernel
    # for the rest repeats keys and writes all logits.
    fusing = len(segment.q) == len(k) or (usable and (causal or _all_seen(segment, length)))
    return torch_sdpa(segment, scaling) if segment.q.is_cuda and fusing else None


def _all_seen(segment: SharedKeys, length: int) -> bool:
    """Tell whether every query sees all of the first `length` rows."""
    low, high = segment.visible.common
    return low <= 0 and length <= high


def torch_sdpa(segment: SharedKeys, scaling: float) -> Tensor:
    """Return the output [HQ, T, D] of a segment of one slab by PyTorch's own attention.

    It gives no log-sum-exp, so it serves only where nothing is to be merged or watched. On a GPU a causal pass takes
    the FlashAttention in PyTorch, and no mask is made for it.
    """
    ((k, length),), ((v, _),) = require_unquantized(segment.keys), require_unquantized(segment.values)
    mask: Tensor | None = None
    if not _all_seen(segment, length):
        causal = segment.visible.causal_over(length)
        shown = None if causal else segment.visible.mask_between(0, length)
        mask = causal_lower_right(segment.q.shape[1], length) if shown is None else shown.to(segment.q.dtype)
    return F.scaled_dot_product_attention(
        segment.q[None],
        k[None, :, :length],
        v[None, :, :length],
        attn_mask=mask,
        scale=scaling,
        enable_gqa=segment.q.shape[0] != k.shape[0],
    )[0]
