"""The finder: passages of one text ranked by words and by attention, fused by rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.finding.passages import LETTERS, cut, decoded
from engine.finding.words import WordSearch

CHECKED = 12  # passages that an answer from the whole text is checked against
LATE = 60  # reciprocal rank fusion: a passage gets weight / (LATE + rank) of each sign


@dataclass(frozen=True)
class Signs:
    """Signs of the passages that a question is about.

    Attributes:
        question: its words.
        attention: float32 [source tokens] each, with weights: attention to the text beyond the usual.
        within: int64 [N], ascending tokens of the text that may be found; None for all.
    """

    question: str
    attention: Sequence[tuple[Tensor, float]] = ()
    within: Tensor | None = None


class Finder:
    """Finds passages of one text. It is made once for a text and serves every question.

    Attributes:
        tokens: length of the text.
        passages: the tokens of each.
        words: ranks them by words.
    """

    def __init__(self, ids: Tensor, decode: Callable[[list[int]], str], letters: int = LETTERS) -> None:
        """Cut and index a text.

        Args:
            ids: int64 [T], the text.
            decode: returns the text of tokens.
            letters: length of a passage in characters.
        """
        self._ids, self._decode = ids, decode
        numbers: list[int] = ids.tolist()
        self.tokens = len(numbers)
        self.passages = cut(decoded(numbers, decode), letters)
        self.words = WordSearch(self.texts(self.passages))
        self._starts = torch.tensor([each.start for each in self.passages] + [len(numbers)])

    def find(self, signs: Signs, most: int) -> list[range]:
        """Return the passages that the signs lead to, best first.

        A sign ranks only passages that it speaks for: those that share a word with the question, or got attention.

        Args:
            signs: words and attention.
            most: passages at most.
        """
        scores = np.zeros(len(self.passages))
        ranked = [(self.words.scores(signs.question), 1.0)]
        ranked += [(self._summed(mass).numpy(), weight) for mass, weight in signs.attention]
        for given, weight in ranked:
            order = np.argsort(-given, kind="stable")
            order = order[given[order] > 0]
            scores[order] += weight / (LATE + 1 + np.arange(len(order)))
        if signs.within is not None:
            scores *= self._summed(torch.zeros(self.tokens).index_fill(0, signs.within, 1.0)).numpy() > 0
        best = np.argsort(-scores, kind="stable")[:most]
        return [self.passages[at] for at in best if scores[at] > 0]

    def texts(self, places: Sequence[range]) -> list[str]:
        """Return the text of each place."""
        return [self._decode(self._ids[each.start : each.stop].tolist()) for each in places]

    def beside(self, question: str, answer: str) -> list[range]:
        """Return the passages to check an answer against: those that share most words with it and its question."""
        return self.find(Signs(f"{question} {answer}"), CHECKED)

    def _summed(self, mass: Tensor) -> Tensor:
        """Return the sum of float32 [T'] over each passage; tokens behind T' count as 0."""
        sums = torch.zeros(self.tokens + 1, dtype=torch.float64)
        sums[1 : len(mass) + 1] = mass[: len(sums) - 1].double().cumsum(0)
        sums[len(mass) + 1 :] = sums[min(len(mass), len(sums) - 1)]
        return (sums[self._starts[1:]] - sums[self._starts[:-1]]).float()
