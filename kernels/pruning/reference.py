"""Chunk scores by hierarchical top-1, in plain PyTorch; also what the engine runs on a CPU.

Source: InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 2 and 3. As printed, Algorithm 3 counts from 1 and
cuts a range of two into nothing and itself, so that its second key could never be chosen; here a range is cut into
its first ceil(n/2) keys and the rest, which halves it every time. Sizes: HQ query heads, H KV heads, NB query blocks
of B queries, C chunks, D head size, R rotated width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.rotation import rotate
from kernels.rows import Slabs, take

# How a key's position while pruning is found (engine/positions.py has the rules that use them):
CONSTANT = 0  # 0
BRANCH = 1  # 0 in the first half of a range, 1 in the second and for a chunk's representative
CHUNK = 2  # the number of its chunk in this stage's list
TOKEN = 3  # (its row + offset) // group

STEP_BYTES = 128 << 20  # room that scores and gathered keys of one step may take


@dataclass(frozen=True)
class Places:
    """Positions of keys: rule int64 [NB] and, for TOKEN, group int64 [NB] and offset; tables cos, sin [P, R/2]."""

    rule: Tensor
    group: Tensor
    offset: int
    cos: Tensor
    sin: Tensor

    def of(self, index: Tensor, number: Tensor, branch: int) -> Tensor:
        """Positions int64 [..., NB, C] of keys index [..., NB, C] from chunks of these numbers [C], on a branch."""
        rule, group = self.rule[:, None], self.group[:, None]
        token = torch.div(index + self.offset, group, rounding_mode="floor")
        places = torch.where(rule == TOKEN, token, branch * (rule == BRANCH))
        return torch.where(rule == CHUNK, number, places)


def chunk_scores(q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: Places) -> Tensor:
    """The estimated highest attention score of each chunk, over all heads and all queries of a block.

    Args:
        q: [HQ, NB, B, D], rotated. A block that is not full repeats one of its queries.
        slabs: un-rotated keys, [H, capacity, D] each.
        starts: int64 [NB, C], the first row of each chunk, ascending; a chunk has `size` rows.
        limits: int64 [NB], rows from here on may not be seen, so a chunk may be shorter, or empty.
        size: l_c.
        places: where keys stand.

    Returns:
        float32 [NB, C]; -inf for empty chunks.
    """
    query_heads, blocks, queries, width = q.shape
    per_chunk = 4 * query_heads * blocks * (queries + 3 * width)
    step = max(1, STEP_BYTES // per_chunk)
    number = torch.arange(starts.shape[1], device=starts.device)
    pieces = [
        _scores(q, slabs, starts[:, at : at + step], limits, size, places, number[at : at + step])
        for at in range(0, starts.shape[1], step)
    ]
    return torch.cat(pieces, dim=1)


def _scores(
    q: Tensor, slabs: Slabs, starts: Tensor, limits: Tensor, size: int, places: Places, number: Tensor
) -> Tensor:
    heads, rows = slabs[0][0].shape[0], sum(length for _, length in slabs)

    def score(index: Tensor, branch: int) -> Tensor:
        """Best score of each key over its block's queries: [HQ, NB, C] for keys [HQ, NB, C]."""
        bounded = index.clamp(0, rows - 1)
        flat = bounded.view(heads, -1).to(slabs[0][0].device)
        keys = take(slabs, flat).to(q.device, q.dtype).view(*index.shape, q.shape[-1])
        position = places.of(bounded, number, branch)
        turned = rotate(keys, places.cos[position], places.sin[position])
        return (q @ turned.transpose(2, 3)).amax(dim=2).float()

    whole = (limits[:, None] - starts).clamp(0, size)
    first = starts.expand(q.shape[0], -1, -1)
    length = whole.expand(q.shape[0], -1, -1)
    known: Tensor | None = None  # score of `first`; on a BRANCH it changes with the side that the key is on
    fixed = not bool((places.rule == BRANCH).any())
    for _ in range((size - 1).bit_length()):
        half = (length + 1) // 2
        left = known if known is not None else score(first, 0)
        right = score(first + half, 1).masked_fill(length == half, float("-inf"))
        go_right = right > left
        first = torch.where(go_right, first + half, first)
        length = torch.where(go_right, length - half, half)
        known = torch.maximum(left, right) if fixed else None
    best = known if known is not None else score(first, 1)
    return best.amax(dim=0).masked_fill(whole == 0, float("-inf"))
