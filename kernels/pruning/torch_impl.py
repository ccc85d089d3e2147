"""Chunk scores in PyTorch, for CPUs. Signature and meaning are those of `reference.chunk_scores`.

Sizes: HQ query heads, H KV heads, NB query blocks of B queries, C chunks, D head size.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from kernels.pruning.copies import Copies
from kernels.pruning.positions import BRANCH, FIXED, KeyPositions
from kernels.rotation import rotate
from kernels.rows import Slabs, covering, take, to_device

STEP_BYTES = 8 << 20  # memory for scores and gathered keys of one step: part of a CPU cache
STEP_ROWS = 1 << 15  # rows covered by the chunks of one step: few enough that a first stage mostly reads one slab


def chunk_scores(
    q: Tensor,
    slabs: Slabs,
    starts: Tensor,
    limits: Tensor,
    size: int,
    places: KeyPositions,
    copies: Copies | None = None,
) -> Tensor:
    """Compute `reference.chunk_scores` in steps, with queries rotated back where keys stand at 0 or 1.

    copies: not used, because the slabs have the same keys.
    """
    places = dataclasses.replace(places, possible_rules=places.rules_present)  # at most one synchronisation
    both = _fold(q, places)
    query_heads, blocks, queries, width = both.shape
    per_chunk = 4 * query_heads * blocks * (queries + 3 * width)
    step = max(1, min(STEP_BYTES // per_chunk, STEP_ROWS // size))
    number = torch.arange(starts.shape[1], device=starts.device)
    pieces = []
    host = starts.to(slabs[0][0].device)  # to find the slabs without synchronising
    for at in range(0, starts.shape[1], step):
        here, asked = starts[:, at : at + step], host[:, at : at + step]
        near, before = covering(slabs, int(asked.min()), int(asked.max()) + size) if len(slabs) > 1 else (slabs, 0)
        moved = dataclasses.replace(places, offset=places.offset + before)
        pieces.append(_scores(both, near, here - before, limits - before, size, moved, number[at : at + step]))
    return torch.cat(pieces, dim=1)


def _fold(q: Tensor, places: KeyPositions) -> Tensor:
    """Rotate queries back, in blocks with keys at 0 or 1, to use keys before RoPE; returns [HQ, NB, S * B, D].

    There are fewer queries than keys to rotate. S is 2 if any block uses BRANCH, which needs the queries relative to
    position 0 and to position 1; else S is 1.
    """
    branch, fixed = ((places.rule == BRANCH)[:, None, None], places.fixed[:, None, None])
    left = rotate(q, places.cos[0], -places.sin[0])
    if BRANCH not in places.rules_present:
        return torch.where(fixed, left, q)
    right = torch.where(branch, rotate(q, places.cos[1], -places.sin[1]), left)
    return torch.cat([torch.where(fixed, left, q), torch.where(fixed, right, q)], dim=2)


def _scores(
    q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: KeyPositions, number: Tensor
) -> Tensor:
    heads, rows = slabs[0][0].shape[0], sum(length for _, length in slabs)
    sides = 2 if BRANCH in places.rules_present else 1
    # Unscaled dot products overflow in half precision, or tie by rounding.
    wide = torch.promote_types(q.dtype, torch.float32)
    folded, columns = places.fixed, q.transpose(2, 3).to(wide).contiguous()

    def score(index: Tensor) -> list[Tensor]:
        """Return the best score [HQ, NB, C] of each key over its block's queries, as a left key and as a right key."""
        bounded = index.clamp(0, rows - 1)
        flat = bounded.view(heads, -1).to(slabs[0][0].device)
        keys = to_device(take(slabs, flat), q.device).to(q.dtype).view(*index.shape, q.shape[-1])
        if not places.rules_present <= FIXED:
            position = places.of(bounded, number).clamp_max(len(places.cos) - 1)  # of rows that are not seen
            turned = rotate(keys, places.cos[position], places.sin[position])
            keys = torch.where(folded[:, None, None], keys, turned) if places.rules_present & FIXED else turned
        scores = keys.to(wide) @ columns  # this order and layout is several times as fast as q @ keys
        best = scores.view(*index.shape, sides, -1).amax(dim=4).float()
        return [best[..., 0], best[..., -1]]

    whole = (limits[:, None] - starts).clamp(0, size)
    first = starts.expand(q.shape[0], -1, -1)
    length = whole.expand(q.shape[0], -1, -1)
    as_left, as_right = score(first)  # the scores of `first` on either side
    for _ in range((size - 1).bit_length()):
        half = (length + 1) >> 1
        other_left, other_right = score(first + half)
        go_right = (other_right > as_left) & (length > half)
        first = torch.where(go_right, first + half, first)
        length = torch.where(go_right, length - half, half)
        as_left = torch.where(go_right, other_left, as_left)
        as_right = torch.where(go_right, other_right, as_right)
    return as_right.amax(dim=0).masked_fill(whole == 0, float("-inf"))
