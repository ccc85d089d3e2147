"""The best entries of the host tier for each query, by dot product with every one of them.

Keys in bfloat16 are multiplied as they are, and their products rounded to it: of neighbours within 0.4 % of the largest
product either may be taken. So keys with a large offset in common, as of models with biases, are told apart less well.

Sizes: HQ query heads, H KV heads, T queries, N entries, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import rows
from kernels.rows import Slabs

BLOCK = 64  # entries whose best score stands for them in the first step of a search


def best_of_all(slabs: Slabs, q: Tensor, limits: Tensor, top: int, visible: int) -> tuple[Tensor, Tensor]:
    """As `HostTier.search`, of the first `visible` entries of the slabs of keys."""
    heads, queries, size = q.shape
    blocks = -(-visible // BLOCK)
    scores = torch.empty(heads, queries, blocks * BLOCK, dtype=rows.scored_in(slabs))
    scores[..., visible:] = float("-inf")
    q, at = q.to("cpu", torch.float32), 0
    for bank, length in slabs:
        end = min(at + length, visible)
        if end > at:
            kv_heads = bank.shape[0]
            grouped = q.reshape(kv_heads, -1, size)
            rows.score(bank, grouped, scores.view(kv_heads, -1, scores.shape[2])[..., at:end])
        at += length
    first = int(limits[0])
    if first < visible:
        late = torch.arange(first, visible) >= limits[:, None]
        scores[..., first:visible].masked_fill_(late, float("-inf"))
    # The best `top` entries lie in the `top` blocks with the best maxima, so only those are sorted.
    grid = scores.view(heads, queries, blocks, BLOCK)
    chosen = grid.amax(dim=-1).topk(min(top, blocks), dim=-1).indices
    candidates = grid.gather(2, chosen[..., None].expand(-1, -1, -1, BLOCK)).flatten(2)
    best, place = candidates.topk(min(top, visible), dim=-1)
    index = chosen.gather(2, place // BLOCK) * BLOCK + place % BLOCK
    held = best > float("-inf")
    return index.masked_fill_(~held, 0), held


def best_among(among: Tensor, keys: Tensor, q: Tensor, limits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """As `HostTier.search`, of the entries [N] whose keys are given, float32 [H, N, D]."""
    grouped = q.to("cpu", torch.float32).reshape(len(keys), -1, q.shape[2])
    scores = (grouped @ keys.transpose(1, 2)).view(*q.shape[:2], -1)
    best, place = scores.masked_fill_(among >= limits[:, None], float("-inf")).topk(min(top, len(among)), dim=-1)
    held = best > float("-inf")
    return among[place].masked_fill_(~held, 0), held
