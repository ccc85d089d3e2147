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

from kernels import attention, columns, softmax
from kernels.attention import Lists, Span
from kernels.rows import Slabs

__all__ = ["Lists", "Picked", "Segment", "Shown", "Span", "attend", "causal_span", "stock"]


class Segment(Protocol):
    """Keys and values that some queries may see."""

    def attend(self, scaling: float, softcap: float | None) -> tuple[Tensor, Tensor]:
        """Output [HQ, T, D] of a softmax over this segment alone, and its log-sum-exp [HQ, T]."""

    def given(self, total: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """Probabilities under the log-sum-exp [HQ, T] of the whole softmax, summed over queries that share keys."""


@dataclass(frozen=True)
class Shown:
    """Rows of a bank, of which query t sees those of its span: q [HQ, T, D], keys and values [H, capacity, D] each.

    lists: the rows that each block of queries is shown, with their positions, keys being as before RoPE; None for all
    rows, keys being rotated. What is given to them is [HQ, NB, N], NB = 1 without lists.
    """

    q: Tensor
    keys: Slabs
    values: Slabs
    span: Span
    lists: Lists | None = None

    def attend(self, scaling: float, softcap: float | None) -> tuple[Tensor, Tensor]:
        """[HQ, T, D] and [HQ, T]."""
        return attention.attend(self.q, self.keys, self.values, self.span, self.lists, scaling, softcap)

    def given(self, total: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """[HQ, NB, N]."""
        return columns.column_sums(self.q, self.keys, self.span, self.lists, total, scaling, softcap)

    def fits_stock(self) -> bool:
        """Whether `stock` can and should take it."""
        return self.q.is_cuda and self.lists is None and len(self.keys) == 1


@dataclass(frozen=True)
class Picked:
    """Keys picked for each query by itself: q [HQ, T, D], k and v [HQ, T, N, D], seen bool [HQ, T, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor

    def attend(self, scaling: float, softcap: float | None) -> tuple[Tensor, Tensor]:
        """[HQ, T, D] and [HQ, T]."""
        logits = self._logits(scaling, softcap)
        total = logits.logsumexp(dim=-1)
        return (self._weights(logits, total)[:, :, None] @ self.v)[:, :, 0], total

    def given(self, total: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """[HQ, T, N]."""
        return self._weights(self._logits(scaling, softcap), total)

    def _logits(self, scaling: float, softcap: float | None) -> Tensor:
        logits = softmax.scores(self.q[:, :, None], self.k, scaling, softcap)[:, :, 0]
        return logits.masked_fill(~self.seen, float("-inf"))

    def _weights(self, logits: Tensor, total: Tensor) -> Tensor:
        return (logits - softmax.finite(total)[..., None]).exp().to(self.v.dtype)


def causal_span(queries: int, keys: int, window: int | None, device: torch.device) -> Span:
    """What each of the last `queries` positions may see of `keys` keys.

    window: a query sees its last `window` positions, itself included; None for no limit.
    """
    end = torch.arange(keys - queries, keys, device=device) + 1
    return Span(torch.zeros_like(end) if window is None else (end - window).clamp_min(0), end)


def attend(
    segments: list[Segment], scaling: float, softcap: float | None, watched: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Attention of one softmax over all segments.

    Returns:
        The output [HQ, T, D], and what was given to the keys of each segment (empty unless watched).
    """
    only = segments[0]
    if len(segments) == 1 and not watched and softcap is None and isinstance(only, Shown) and only.fits_stock():
        return stock(only, scaling), []
    output, total = softmax.merge([segment.attend(scaling, softcap) for segment in segments])
    return output, [segment.given(total, scaling, softcap) for segment in segments] if watched else []


def stock(segment: Shown, scaling: float) -> Tensor:
    """The output [HQ, T, D] of a segment of one slab by PyTorch's own attention, the fastest there is on a GPU.

    It gives no log-sum-exp, so it can serve only where nothing is to be merged or watched.
    """
    (k, length), (v, _) = segment.keys[0], segment.values[0]
    low, high = segment.span.common
    causal = low == 0 and high == 1 and segment.q.shape[1] == length and segment.span.grows
    mask = None if causal else segment.span.mask_of(0, length)
    return F.scaled_dot_product_attention(
        segment.q[None],
        k[None, :, :length],
        v[None, :, :length],
        attn_mask=None if mask is None else mask.to(segment.q.dtype),
        is_causal=causal,
        scale=scaling,
        enable_gqa=segment.q.shape[0] != k.shape[0],
    )[0]
