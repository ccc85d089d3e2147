"""Where the model looked: attention mass over the source, gathered into passages."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from engine.records import Passage

REACH = 24  # tokens to each side that count toward the same passage
MOST = 5  # passages shown
LEAST_SHARE = 0.02  # of the mass; less is not worth a person's time


def passages(mass: Tensor, most: int = MOST, least: float = LEAST_SHARE) -> list[Passage]:
    """The stretches of the source with the most attention, best first.

    Args:
        mass: float32 [source tokens], non-negative.
        least: share of the mass from which on a stretch counts.

    Returns:
        At most `most` passages that do not overlap, weights as shares of the whole mass.
    """
    total = float(mass.sum())
    if not 0.0 < total < float("inf"):  # nor where it is no number
        return []
    found: list[Passage] = []
    left = mass.clone()
    width = 2 * REACH + 1
    while len(found) < most:
        running = F.pad(left.double(), (REACH + 1, REACH)).cumsum(0)
        near = running[width:] - running[:-width]
        centre = int(near.argmax())
        start, end = max(0, centre - REACH), min(len(mass), centre + REACH + 1)
        weight = float(left[start:end].sum()) / total
        if weight < least or not weight > 0.0:
            break
        inside = (left[start:end] > 0).nonzero()[:, 0]
        first, last = start + int(inside[0]), start + int(inside[-1]) + 1
        found.append(Passage(first, last, weight))
        left[start:end] = 0.0
    return found
