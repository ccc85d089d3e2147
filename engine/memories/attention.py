"""Softmax attention over what a memory chooses to show a query: one softmax over several segments of keys.

A segment brings its own queries because position rules differ: the same query is rotated one way for its window and
another way for sinks or far keys. Each gives its output and its log-sum-exp, which is all that is needed to put them
together. Sizes: HQ query heads, H KV heads, T queries, NB blocks of them, N keys, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from engine.memories import flash
from engine.memories.memory import UNLIMITED
from engine.models.spec import Scoring
from kernels import attention, choice, columns, softmax
from kernels.attention import BlockTable, VisibleRange, torch_impl
from kernels.rows import Slabs, reachable, require_unquantized

FEW_QUERIES = 64  # and
FEW_BYTES = 16 << 20  # of logits: so many are written out rather than worked out twice

__all__ = ["BlockTable", "Picked", "Segment", "Shown", "VisibleRange", "attend", "causal_span", "stock"]


class Segment(Protocol):
    """Keys and values that some queries may see."""

    @property
    def q(self) -> Tensor:
        """The queries [HQ, T, D]."""

    def attend(self, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """Output [HQ, T, D] of a softmax over this segment alone, and its log-sum-exp [HQ, T]."""

    def given(self, total: Tensor, scoring: Scoring) -> Tensor:
        """Probabilities under the log-sum-exp [HQ, T] of the whole softmax, summed over queries that share keys."""

    def logits(self, scoring: Scoring) -> Tensor:
        """At least float32 [HQ, T, N], -inf where nothing is seen."""

    def mix(self, weights: Tensor) -> Tensor:
        """Values [HQ, T, D] by weights [HQ, T, N]."""

    def summed(self, weights: Tensor) -> Tensor:
        """Weights [HQ, T, N] summed over queries that share keys, as `given` gives them."""

    def writable(self) -> int:
        """Bytes of its logits, if it can and should give them; else more than any limit."""


@dataclass(frozen=True)
class Shown:
    """Rows of a bank, of which query t sees those of its span: q [HQ, T, D], keys and values [H, capacity, D] each.

    lists: the rows that each block of queries is shown, with their positions, keys being as before RoPE; None for all
    rows, keys being rotated. What is given to them is [HQ, NB, N], NB = 1 without lists.
    """

    q: Tensor
    keys: Slabs
    values: Slabs
    span: VisibleRange
    lists: BlockTable | None = None

    def attend(self, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """[HQ, T, D] and [HQ, T]."""
        return attention.attend(self.q, self.keys, self.values, self.span, self.lists, scoring.scaling, scoring.softcap)

    def given(self, total: Tensor, scoring: Scoring) -> Tensor:
        """[HQ, NB, N]."""
        return columns.column_sums(self.q, self.keys, self.span, self.lists, total, scoring.scaling, scoring.softcap)

    def logits(self, scoring: Scoring) -> Tensor:
        """[HQ, T, N]."""
        return torch_impl.logits(self.q, self.keys, self.span, self.lists, scoring.scaling, scoring.softcap)

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return torch_impl.weighted_values(weights, self.values, self.lists, self.q)

    def summed(self, weights: Tensor) -> Tensor:
        """[HQ, NB, N]."""
        return torch_impl.sum_per_block(weights, self.lists)

    def writable(self) -> int:
        """Kernels need no logits: they are for the reference."""
        if choice.uses_triton(self.q.device) and reachable([*self.keys, *self.values], self.q.device):
            return UNLIMITED
        rows = sum(n for _, n in self.keys) if self.lists is None else self.lists.rows.shape[1]
        return 4 * self.q.shape[0] * self.q.shape[1] * rows


@dataclass(frozen=True)
class Picked:
    """Keys picked for each query by itself: q [HQ, T, D], k and v [HQ, T, N, D], seen bool [HQ, T, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor

    def attend(self, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """[HQ, T, D] and [HQ, T]."""
        logits = self.logits(scoring)
        total = logits.logsumexp(dim=-1)
        return self.mix((logits - softmax.finite(total)[..., None]).exp()), total

    def given(self, total: Tensor, scoring: Scoring) -> Tensor:
        """[HQ, T, N]."""
        return (self.logits(scoring) - softmax.finite(total)[..., None]).exp()

    def logits(self, scoring: Scoring) -> Tensor:
        """[HQ, T, N]."""
        logits = softmax.scores(self.q[:, :, None], self.k, scoring.scaling, scoring.softcap)[:, :, 0]
        return logits.masked_fill(~self.seen, float("-inf"))

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return (weights.to(self.v.dtype)[:, :, None] @ self.v)[:, :, 0]

    def summed(self, weights: Tensor) -> Tensor:
        """Each query has keys of its own."""
        return weights

    def writable(self) -> int:
        """Keys have been picked already, and take far more."""
        return 4 * self.seen.numel()


def causal_span(queries: int, keys: int, window: int | None, device: torch.device) -> VisibleRange:
    """What each of the last `queries` positions may see of `keys` keys.

    window: a query sees its last `window` positions, itself included; None for no limit.
    """
    end = torch.arange(keys - queries, keys) + 1
    return VisibleRange(torch.zeros_like(end) if window is None else (end - window).clamp_min(0), end).to(device)


def attend(segments: list[Segment], scoring: Scoring, watched: bool = False) -> tuple[Tensor, list[Tensor]]:
    """Attention of one softmax over all segments.

    Returns:
        The output [HQ, T, D], and what was given to the keys of each segment (empty unless watched).
    """
    if len(segments) == 1 and not watched and scoring.plain:
        only = segments[0]
        if isinstance(only, Shown) and (output := alone(only, scoring.scaling)) is not None:
            return output, []
    elif sum(segment.writable() for segment in segments) <= FEW_BYTES and segments[0].q.shape[1] <= FEW_QUERIES:
        return _written_out(segments, scoring, watched)
    output, total = softmax.merge([segment.attend(scoring) for segment in segments])
    if scoring.sink is not None:
        whole = torch.logaddexp(total, scoring.sink[:, None].to(total.dtype))
        output, total = (output * (total - whole).exp()[..., None]).to(output.dtype), whole
    return output, [segment.given(total, scoring) for segment in segments] if watched else []


def _written_out(segments: list[Segment], scoring: Scoring, watched: bool) -> tuple[Tensor, list[Tensor]]:
    """By one matrix of logits, as for a token of an answer: keys are read once, also where it is watched."""
    logits = [segment.logits(scoring) for segment in segments]
    sizes = [piece.shape[-1] for piece in logits]
    if scoring.sink is not None:
        logits.append(scoring.sink[:, None, None].to(logits[0].dtype).expand(*logits[0].shape[:2], 1))
    weights = (logits[0] if len(logits) == 1 else torch.cat(logits, dim=-1)).softmax(dim=-1)
    pieces = torch.split(weights[..., : sum(sizes)], sizes, dim=-1)
    output = segments[0].mix(pieces[0])
    for segment, piece in zip(segments[1:], pieces[1:], strict=True):
        output = output + segment.mix(piece)
    each = zip(segments, pieces, strict=True)
    return output, [segment.summed(piece) for segment, piece in each] if watched else []


def alone(segment: Shown, scaling: float) -> Tensor | None:
    """The output [HQ, T, D] by FlashAttention or, on a GPU, PyTorch's own attention; None where neither should."""
    if segment.lists is not None or len(segment.keys) > 1:
        return None
    ((k, length),), ((v, _),) = require_unquantized(segment.keys), require_unquantized(segment.values)
    fused, causal = flash.usable(segment.q), segment.span.causal_over(length)
    if fused and causal and (function := flash.choice()[0]):
        return flash.attend(function, segment.q, k[:, :length], v[:, :length], scaling)
    # With fewer KV heads than query heads PyTorch fuses what needs no mask, of heads that are not too wide; its kernel
    # for the rest repeats keys and writes all logits.
    fusing = len(segment.q) == len(k) or (fused and (causal or _all_seen(segment, length)))
    return stock(segment, scaling) if segment.q.is_cuda and fusing else None


def _all_seen(segment: Shown, length: int) -> bool:
    """Whether every query sees all of so many rows."""
    low, high = segment.span.common
    return low <= 0 and length <= high


def stock(segment: Shown, scaling: float) -> Tensor:
    """The output [HQ, T, D] of a segment of one slab by PyTorch's own attention.

    It gives no log-sum-exp, so it can serve only where nothing is to be merged or watched. On a GPU a causal pass takes
    the FlashAttention in PyTorch, and no mask is made for it.
    """
    ((k, length),), ((v, _),) = require_unquantized(segment.keys), require_unquantized(segment.values)
    mask: Tensor | None = None
    if not _all_seen(segment, length):
        causal = segment.span.causal_over(length)
        shown = None if causal else segment.span.mask_between(0, length)
        mask = causal_lower_right(segment.q.shape[1], length) if shown is None else shown.to(segment.q.dtype)
    return F.scaled_dot_product_attention(
        segment.q[None],
        k[None, :, :length],
        v[None, :, :length],
        attn_mask=mask,
        scale=scaling,
        enable_gqa=segment.q.shape[0] != k.shape[0],
    )[0]
