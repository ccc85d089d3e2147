"""Sources of an answer: attention over the text, gathered into passages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from engine.parts.mass import AttentionMass
from engine.records import Passage, Sentence

REACH = 24  # tokens to each side that belong to the same passage
MOST = 5  # passages shown
LEAST_SHARE = 0.02  # of the mass; passages with less are not shown
USUAL = 2.0  # times the usual attention that a token must exceed to count

SentenceEnd = Callable[[str, int], int]
"""Takes a growing text and the length of its sentences so far, and returns the length of its whole sentences now."""


def unusual(mass: Tensor, usual: Tensor) -> Tensor:
    """Return the attention beyond the usual one, as shares of all attention to the text, float32 [source tokens].

    Some tokens get attention whatever is asked: those next to the question, because they are the latest, and full
    stops and line breaks, where heads rest that have nothing to look for. An empty question shows which. They say
    nothing about the source of an answer. As the conversation grows, attention moves from the end of the text to the
    resting places; a token must exceed a multiple of its usual share so that these do not count again.

    Args:
        mass: float32 [source tokens], non-negative.
        usual: the mass that an empty question gives, float32 [source tokens].
    """
    total, known, usual = mass.sum(), usual.sum(), usual.to(mass.device)
    if not float(total) > 0.0:
        return mass
    share = mass / total
    return (share - USUAL * usual / known).clamp_min(0.0) if float(known) > 0.0 else share


def passages(mass: Tensor, most: int = MOST, least: float = LEAST_SHARE) -> list[Passage]:
    """Find the passages of the text with the most attention, best first.

    Args:
        mass: float32 [source tokens], non-negative.
        most: number of passages at most.
        least: smallest share of the mass that counts.

    Returns:
        Passages that do not overlap, with shares of the whole mass as weights.
    """
    total = float(mass.sum())
    if not 0.0 < total < float("inf"):  # also excludes NaN
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
    """Sentences of a growing answer, each with the passages that got attention while it was written."""

    def __init__(self, mass: AttentionMass, sentence_end: SentenceEnd, usual: Tensor) -> None:
        """Start without any sentences.

        Args:
            mass: attention of the answer, cleared before its first token.
            sentence_end: finds the end of whole sentences.
            usual: see `unusual`.
        """
        self._mass, self._sentence_end, self._usual = mass, sentence_end, usual
        self._found: list[tuple[Sentence, float]] = []  # with the mass of each sentence
        self._counted = mass.total.clone()

    def grown(self, text: str) -> None:
        """Add the sentences that have ended.

        Args:
            text: the answer so far; its last token was predicted by the last pass. Empty while the model reasons.
        """
        if text:
            self._add(text, self._sentence_end(text, self._said))
        else:
            self._counted = self._mass.total.clone()

    def ended(self, text: str) -> list[Sentence]:
        """Return all sentences of a finished answer.

        Args:
            text: the whole answer, which may have been cut.
        """
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
        """Number of characters in the sentences so far."""
        return self._found[-1][0].end if self._found else 0

    def _add(self, text: str, end: int) -> None:
        start = self._said
        if not text[start:end].strip():
            return
        counted = self._mass.total.clone()
        own = (counted - self._counted).cpu()
        self._found.append((Sentence(start, end, passages(unusual(own, self._usual))), float(own.sum())))
        self._counted = counted
