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

from engine import flash


class Segment(Protocol):
    """Keys and values that some queries may see."""

    @property
    def v(self) -> Tensor:
        """The values."""

    @property
    def mask(self) -> Tensor | None:
        """Added to the logits, broadcastable to [HQ, T, N]: 0 where visible, -inf where not; None if all is visible."""

    def scores(self, scaling: float) -> Tensor:
        """Scaled dot products [HQ, T, N]."""

    def mix(self, weights: Tensor) -> Tensor:
        """Weighted sum of the values [HQ, T, D] for weights [HQ, T, N]."""


@dataclass(frozen=True)
class Shared:
    """Keys that all queries of a group see: q [HQ, T, D], k and v [H, N, D], mask [T, N] or None.

    causal: the queries are the last T of the N positions, and the mask says no more than that.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    causal: bool = False

    def scores(self, scaling: float) -> Tensor:
        """[HQ, T, N]."""
        return grouped_scores(self.q, self.k, scaling)

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return grouped_mix(weights, self.v)


@dataclass(frozen=True)
class Picked:
    """Keys picked for each query by itself: q [HQ, T, D], k and v [HQ, T, N, D], mask [HQ, T, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor

    def scores(self, scaling: float) -> Tensor:
        """[HQ, T, N]."""
        return (self.k @ (self.q * scaling)[..., None])[..., 0]

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return (weights[:, :, None, :] @ self.v)[:, :, 0]


@dataclass(frozen=True)
class Blocked:
    """Keys chosen for each block of `size` queries together: q [HQ, T, D], k and v [H, NB, N, D], mask [T, N].

    The last of the NB = ceil(T / size) blocks may be short.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor
    size: int

    def scores(self, scaling: float) -> Tensor:
        """[HQ, T, N]."""
        return self._unfold(self._fold(self.q * scaling) @ self.k.transpose(2, 3))

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return self._unfold(self._fold(weights) @ self.v)

    def _fold(self, x: Tensor) -> Tensor:
        """[HQ, T, X] as [H, NB, G * size, X], the queries that share keys together."""
        heads, blocks = self.k.shape[:2]
        padded = F.pad(x, (0, 0, 0, blocks * self.size - x.shape[1]))
        grouped = padded.view(heads, -1, blocks, self.size, x.shape[2])
        return grouped.transpose(1, 2).reshape(heads, blocks, -1, x.shape[2])

    def _unfold(self, x: Tensor) -> Tensor:
        """Undo `_fold`."""
        heads, queries, _ = self.q.shape
        grouped = x.view(*x.shape[:2], -1, self.size, x.shape[3]).transpose(1, 2)
        return grouped.reshape(heads, -1, x.shape[3])[:, :queries]


@dataclass(frozen=True)
class SinksAndWindow:
    """Sinks [H, S, D] seen by one rotation of the queries, a window [H, N, D] seen by another; mask [T, S + N]."""

    sink_q: Tensor
    sink_k: Tensor
    window_q: Tensor
    window_k: Tensor
    v: Tensor
    mask: Tensor | None

    def scores(self, scaling: float) -> Tensor:
        """[HQ, T, S + N]; the sinks' columns are worked out twice, which is cheaper than joining two matrices."""
        scores = grouped_scores(self.window_q, torch.cat([self.sink_k, self.window_k], dim=1), scaling)
        scores[..., : self.sink_k.shape[1]] = grouped_scores(self.sink_q, self.sink_k, scaling)
        return scores

    def mix(self, weights: Tensor) -> Tensor:
        """[HQ, T, D]."""
        return grouped_mix(weights, self.v)


def grouped_scores(q: Tensor, k: Tensor, scaling: float) -> Tensor:
    """Scaled dot products [HQ, T, N] of q [HQ, T, D] with k [H, N, D]."""
    heads, queries, size = q.shape
    return ((q * scaling).reshape(k.shape[0], -1, size) @ k.transpose(1, 2)).view(heads, queries, -1)


def grouped_mix(weights: Tensor, v: Tensor) -> Tensor:
    """Weighted sums [HQ, T, D] of v [H, N, D] by weights [HQ, T, N]."""
    heads, queries, keys = weights.shape
    return (weights.reshape(v.shape[0], -1, keys) @ v).view(heads, queries, -1)


def hide(invisible: Tensor) -> Tensor:
    """A mask to add to logits: -inf where `invisible` (bool, any shape), 0 elsewhere."""
    return torch.zeros(invisible.shape, dtype=torch.float32, device=invisible.device).masked_fill_(
        invisible, float("-inf")
    )


def causal_mask(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor | None:
    """What each of the last `queries` positions may see of `keys` keys, to add, [T, N]; None where that is all.

    window: a query sees its last `window` positions, itself included; None for no limit.
    """
    if queries == 1 and (window is None or keys <= window):
        return None
    last = torch.arange(keys - queries, keys, device=device)[:, None]
    position = torch.arange(keys, device=device)[None, :]
    invisible = position > last
    if window is not None:
        invisible |= position <= last - window
    return hide(invisible)


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
    joint = logits[0] if len(logits) == 1 else torch.cat(logits, dim=-1)
    probabilities = joint.softmax(dim=-1).to(segments[0].v.dtype)
    pieces = list(torch.split(probabilities, [piece.shape[-1] for piece in logits], dim=-1))
    output = segments[0].mix(pieces[0])
    for segment, piece in zip(segments[1:], pieces[1:], strict=True):
        output = output + segment.mix(piece)
    return output, pieces if watched else []


def _logits(segment: Segment, scaling: float, softcap: float | None) -> Tensor:
    logits = segment.scores(scaling).float()
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return logits if segment.mask is None else logits.add_(segment.mask)


def _fused(segment: Shared, scaling: float) -> Tensor:
    if flash.usable(segment.q) and (segment.causal or segment.mask is None) and (function := flash.choice()[0]):
        return flash.attend(function, segment.q, segment.k, segment.v, scaling, segment.causal)
    queries, keys = segment.q.shape[1], segment.k.shape[1]
    causal = segment.mask is not None and queries == keys and _is_triangle(segment.mask)
    return F.scaled_dot_product_attention(
        segment.q[None],
        segment.k[None],
        segment.v[None],
        attn_mask=None if causal or segment.mask is None else segment.mask.to(segment.q.dtype),
        is_causal=causal,
        scale=scaling,
        enable_gqa=segment.q.shape[0] != segment.k.shape[0],
    )[0]


def _is_triangle(mask: Tensor) -> bool:
    """True if no window narrows this square causal mask: its last row then sees everything."""
    return bool((mask[-1] == 0).all())
