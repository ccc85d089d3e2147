"""Chunk scores by hierarchical top-1, in float32: the reference for the other implementations.

Source: InfiniteHiP (https://arxiv.org/abs/2502.08910), Algorithms 2 and 3. Algorithm 3 as printed counts from 1 and
splits a range of two into an empty one and itself, so that its second key is never chosen. Here a range is split into
its first ceil(n/2) keys and the rest.
Sizes: HQ query heads, H KV heads, NB query blocks of B queries, C chunks, D head size, R rotated width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.pruning.copies import Copies
from kernels.pruning.positions import BRANCH, CHUNK, TOKEN, KeyPositions
from kernels.rotation import rotate
from kernels.rows import Slabs, dense


def chunk_scores(
    q: Tensor,
    slabs: Slabs,
    starts: Tensor,
    limits: Tensor,
    size: int,
    places: KeyPositions,
    copies: Copies | None = None,
) -> Tensor:
    """Estimate the highest attention score of each chunk, over all heads and all queries of a block.

    Args:
        q: [HQ, NB, B, D], rotated. A short block is padded by repeating one of its queries.
        slabs: keys before RoPE, [H, capacity, D] each.
        starts: int64 [NB, C], first row of each chunk, ascending.
        limits: int64 [NB], first row that is not visible. It may shorten or empty a chunk.
        size: rows of a chunk (l_c in the paper).
        places: positions of the keys.
        copies: copies of some keys, which a kernel reads instead; they change no score.

    Returns:
        float32 [NB, C]; -inf for empty chunks.
    """
    q = q.to(torch.promote_types(q.dtype, torch.float32))
    keys = dense(slabs, q.dtype)  # [H, R, D]
    head = torch.arange(len(q), device=q.device)[:, None, None] // (len(q) // len(keys))
    number, rule = torch.arange(starts.shape[1], device=q.device), places.rule[:, None]

    def score(row: Tensor, branch: int) -> Tensor:
        """Return the best score of keys row [HQ, NB, C] over a block's queries; branch: position by rule BRANCH."""
        row = row.clamp(0, keys.shape[1] - 1)
        token = torch.div(row + places.offset, places.group[:, None], rounding_mode="floor")
        position = torch.where(rule == TOKEN, token, torch.where(rule == CHUNK, number, (rule == BRANCH) * branch))
        k = rotate(keys[head, row], places.cos[position], places.sin[position])  # [HQ, NB, C, D]
        return torch.einsum("hbqd,hbcd->hbcq", q, k).amax(dim=-1)

    whole = (limits[:, None] - starts).clamp(0, size)
    first, length = (x.expand(len(q), -1, -1) for x in (starts, whole))
    while bool((length > 1).any()):
        half = (length + 1) // 2
        right = (length > half) & (score(first + half, 1) > score(first, 0))
        first, length = first + right * half, torch.where(right, length - half, half)
    return score(first, 1).amax(dim=0).masked_fill(whole == 0, float("-inf")).float()
