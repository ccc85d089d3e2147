"""Softmax attention over what a memory chooses to show a query: one softmax over several segments of keys.

A segment brings its own queries because position rules differ: the same query is rotated one way for its window and
another way for sinks or far keys. Sizes: HQ query heads, H KV heads, G = HQ / H, T queries, N keys, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Segment(Protocol):
    """Keys and values that some queries may see."""

    @property
    def v(self) -> Tensor:
        """The values."""

    def scores(self) -> Tensor:
        """Unscaled dot products [HQ, T, N]."""

    def visible(self) -> Tensor | None:
        """Boolean mask broadcastable to [HQ, T, N], or None if all is visible."""

    def mix(self, weights: Tensor) -> Tensor:
        """Weighted sum of the values [HQ, T, D] for weights [HQ, T, N]."""


@dataclass(frozen=True)
class Shared:
    """Keys that all queries of a group see: q [HQ, T, D], k and v [H, N, D], mask bool [T, N] or None."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None

    def scores(self) -> Tensor:
        """[HQ, T, N]."""
        heads, queries, size = self.q.shape
        grouped = self.q.reshape(self.k.shape[0], -1, size)
        return (grouped @ self.k.transpose(1, 2)).view(heads, queries, -1)

    def visible(self) -> Tensor | None:
        """[T, N] or None."""
        return self.mask

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        heads, queries, keys = weights.shape
        return (weights.reshape(self.v.shape[0], -1, keys) @ self.v).view(heads, queries, -1)


@dataclass(frozen=True)
class Picked:
    """Keys picked for each query by itself: q [HQ, T, D], k and v [HQ, T, N, D], mask bool [HQ, T, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor

    def scores(self) -> Tensor:
        """[HQ, T, N]."""
        return (self.k @ self.q[..., None])[..., 0]

    def visible(self) -> Tensor | None:
        """[HQ, T, N]."""
        return self.mask

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return (weights[:, :, None, :] @ self.v)[:, :, 0]


def causal_mask(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor | None:
    """Which of `keys` keys each of the last `queries` positions may see, [T, N]; None where that is all of them.

    window: a query sees its last `window` positions, itself included; None for no limit.
    """
    if queries == 1 and (window is None or keys <= window):
        return None
    last = torch.arange(keys - queries, keys, device=device)[:, None]
    position = torch.arange(keys, device=device)[None, :]
    mask = position <= last
    if window is not None:
        mask &= position > last - window
    return mask


def attend(
    segments: list[Segment], scaling: float, softcap: float | None, watched: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Attention of one softmax over all segments.

    Returns:
        The output [HQ, T, D], and the probabilities of each segment [HQ, T, N] (empty unless watched).
    """
    if len(segments) == 1 and not watched and softcap is None and isinstance(segments[0], Shared):
        return _fused(segments[0], scaling), []
    logits = [_logits(segment, scaling, softcap) for segment in segments]
    probabilities = torch.cat(logits, dim=-1).softmax(dim=-1).to(segments[0].v.dtype)
    pieces = list(torch.split(probabilities, [piece.shape[-1] for piece in logits], dim=-1))
    output = segments[0].mix(pieces[0])
    for segment, piece in zip(segments[1:], pieces[1:], strict=True):
        output = output + segment.mix(piece)
    return output, pieces if watched else []


def _logits(segment: Segment, scaling: float, softcap: float | None) -> Tensor:
    logits = segment.scores().float() * scaling
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    mask = segment.visible()
    return logits if mask is None else logits.masked_fill_(~mask, float("-inf"))


def _fused(segment: Shared, scaling: float) -> Tensor:
    queries, keys = segment.q.shape[1], segment.k.shape[1]
    causal = segment.mask is not None and queries == keys and _is_triangle(segment.mask)
    return F.scaled_dot_product_attention(
        segment.q[None],
        segment.k[None],
        segment.v[None],
        attn_mask=None if causal else segment.mask,
        is_causal=causal,
        scale=scaling,
        enable_gqa=segment.q.shape[0] != segment.k.shape[0],
    )[0]


def _is_triangle(mask: Tensor) -> bool:
    """True if no window narrows this square causal mask: its last row then sees everything."""
    return bool(mask[-1].all())
