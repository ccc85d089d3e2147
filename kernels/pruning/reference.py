"""Chunk scores by hierarchical top-1 in plain PyTorch; the CPU implementation.

Source: InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 2 and 3. Algorithm 3 as printed counts from 1 and
splits a range of two into an empty one and itself, so that its second key is never chosen. Here a range is split into
its first ceil(n/2) keys and the rest.
Sizes: HQ query heads, H KV heads, NB query blocks of B queries, C chunks, D head size, R rotated width.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.rotation import rotate
from kernels.rows import Slabs, covering, take, to_device

# Rules for a key's position while pruning (engine/positions.py uses them):
CONSTANT = 0  # 0
BRANCH = 1  # 0 in the first half of a range; 1 in the second, and for the representative of a chunk
CHUNK = 2  # the number of its chunk in this stage's list
TOKEN = 3  # (its row + offset) // group
FIXED = {CONSTANT, BRANCH}  # rules with position 0 or 1 for every key

STEP_BYTES = 8 << 20  # memory for scores and gathered keys of one step: part of a CPU cache
STEP_ROWS = 1 << 15  # rows covered by the chunks of one step: few enough that a first stage mostly reads one slab


@dataclass(frozen=True)
class KeyPositions:
    """Positions of keys while pruning.

    Attributes:
        rule: int64 [NB].
        group, offset: arguments of TOKEN; group is int64 [NB].
        cos, sin: [P, R/2], RoPE tables.
        possible_rules: a superset of the rules in `rule`; None if only reading `rule` can tell.
    """

    rule: Tensor
    group: Tensor
    offset: int
    cos: Tensor
    sin: Tensor
    possible_rules: frozenset[int] | None = None

    @cached_property
    def rules_present(self) -> frozenset[int]:
        """Rules that may occur in `rule`."""
        return frozenset(self.rule.tolist()) if self.possible_rules is None else self.possible_rules

    @property
    def fixed(self) -> Tensor:
        """Blocks whose keys all have position 0 or 1, bool [NB]."""
        return (self.rule == CONSTANT) | (self.rule == BRANCH)

    def of(self, index: Tensor, number: Tensor) -> Tensor:
        """Return the positions of keys for CHUNK and TOKEN, int64, broadcastable to [..., NB, C].

        Args:
            index: [..., NB, C], rows of the keys.
            number: [C], their chunks.
        """
        if self.rules_present == {CHUNK}:
            return number
        token = torch.div(index + self.offset, self.group[:, None], rounding_mode="floor")
        return torch.where((self.rule == CHUNK)[:, None], number, token)


def chunk_scores(q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: KeyPositions) -> Tensor:
    """Estimate the highest attention score of each chunk, over all heads and all queries of a block.

    Args:
        q: [HQ, NB, B, D], rotated. A short block is padded by repeating one of its queries.
        slabs: keys before RoPE, [H, capacity, D] each.
        starts: int64 [NB, C], first row of each chunk, ascending.
        limits: int64 [NB], first row that is not visible. It may shorten or empty a chunk.
        size: rows of a chunk (l_c in the paper).
        places: positions of the keys.

    Returns:
        float32 [NB, C]; -inf for empty chunks.
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
            position = places.of(bounded, number)
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
