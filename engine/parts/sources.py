"""Where the model looked: attention mass over the source, gathered into passages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from engine.parts.mass import AttentionMass
from engine.records import Passage, Sentence

REACH = 24  # tokens to each side that count toward the same passage
MOST = 5  # passages shown
LEAST_SHARE = 0.02  # of the mass; less is not worth a person's time

WholeSentences = Callable[[str, int], int]
"""Of a text that grows, given how much of it is whole sentences already: how much of it is now."""


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


class Sentences:
    """Where the model looked at each sentence of an answer, while that grows."""

    def __init__(self, mass: AttentionMass, whole: WholeSentences) -> None:
        """mass: what is counted of the answer, and cleared before it."""
        self._mass, self._whole = mass, whole
        self._found: list[tuple[Sentence, float]] = []  # with the mass of each; its passages' weights are shares of it
        self._counted = mass.total.clone()

    def grown(self, text: str) -> None:
        """It has grown to this text, whose last token the last pass foretold; none as long as the model reasons."""
        if text:
            self._add(text, self._whole(text, self._said))
        else:
            self._counted = self._mass.total.clone()

    def ended(self, text: str) -> list[Sentence]:
        """Return all of its sentences; text: the whole answer, which may have been cut."""
        self._add(text, len(text.rstrip()))
        total = float(self._mass.total.sum())
        return [
            replace(
                each,
                end=min(each.end, len(text)),
                passages=[replace(one, weight=one.weight * mass / total) for one in each.passages],
            )
            for each, mass in self._found
            if each.start < len(text)
        ]

    @property
    def _said(self) -> int:
        """Characters of the sentences so far."""
        return self._found[-1][0].end if self._found else 0

    def _add(self, text: str, end: int) -> None:
        start = self._said
        if not text[start:end].strip():
            return
        counted = self._mass.total.clone()
        own = (counted - self._counted).cpu()
        self._found.append((Sentence(start, end, passages(own)), float(own.sum())))
        self._counted = counted
