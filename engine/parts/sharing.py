"""Shares of a budget: how many of the entries of an average head each layer and head keeps.

| share | who gets more | source |
|---|---|---|
| even | nobody | InfiniPot, Locret as published |
| pyramid | lower layers, along a straight line | PyramidKV, https://arxiv.org/abs/2406.02069, section 4 |
| heads | within each layer, the heads with the highest scores | Ada-KV, https://arxiv.org/abs/2407.11550, Algorithm 1 |
| all | the heads with the highest scores in all layers | KVzip, https://arxiv.org/abs/2505.23416, section 3 |

Spared entries (stabilizers, novel ones) count the same for every head; only the rest is shared. No head gets less than
1 - SPREAD or more than 1 + SPREAD times its even share. The lower limit keeps a head alive (Ada-KV's safeguard), the
upper one keeps its positions inside the model's window. The sum is exactly that of even shares.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SHARES = ("even", "pyramid", "heads", "all")
APART = ("heads", "all")  # shares that give heads of one layer different numbers of entries
SPREAD = 0.8


def shared(share: str, scores: Sequence[Sequence[Tensor]], size: int, spared: int) -> list[list[int]]:
    """Return how many entries each head keeps, `size` on average.

    Args:
        share: one of `SHARES`.
        scores: per layer, one tensor [heads, N] for each group of heads with the same number of entries. With a share
            of
            `APART`, each group is one head.
        size: at most the average number of entries of the heads.
        spared: highest entries of each head, which are always kept.
    """
    if share == "pyramid":
        return [[count] for count in pyramid([layer[0].shape[1] for layer in scores], size, spared)]
    if share == "heads":
        return [threshold(layer, size, spared) for layer in scores]
    if share == "all":
        counts = iter(threshold([head for layer in scores for head in layer], size, spared))
        return [[next(counts) for _ in layer] for layer in scores]
    return [[size] for _ in scores]


def pyramid(held: Sequence[int], size: int, spared: int) -> list[int]:
    """Return how many entries each layer keeps, falling by equal steps from the first layer to the last.

    If the lower layers have too few entries for the full SPREAD, the line is less steep.

    Args:
        held: entries of each layer.
        size: entries kept on average.
        spared: entries of each layer that are always kept.
    """
    last = max(1, len(held) - 1)
    tilt = [1 - 2 * layer / last if len(held) > 1 else 0.0 for layer in range(len(held))]
    rest = size - spared
    steep = min([SPREAD * rest, *((count - size) / up for count, up in zip(held, tilt, strict=True) if up > 0)])
    return [size + round(steep * up) for up in tilt]


def threshold(scores: Sequence[Tensor], size: int, spared: int) -> list[int]:
    """Return how many entries heads with scores [1, N] keep if one threshold holds for all of them."""
    least = spared + round((1 - SPREAD) * (size - spared))
    most = spared + round((1 + SPREAD) * (size - spared))
    sure = [min(least, score.shape[1]) for score in scores]
    ranked = [score[0].sort(descending=True).values[low:most] for score, low in zip(scores, sure, strict=True)]
    head = torch.cat([torch.full((len(score),), number) for number, score in enumerate(ranked)])
    order = torch.cat(ranked).sort(descending=True, stable=True).indices[: size * len(scores) - sum(sure)]
    won = torch.bincount(head[order.cpu()], minlength=len(scores)).tolist()
    return [low + more for low, more in zip(sure, won, strict=True)]


def widest(share: str, size: int) -> int:
    """Return the most entries that one head keeps if all keep `size` on average."""
    return size if share == "even" else round((1 + SPREAD) * size)
