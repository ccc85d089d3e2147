"""What the suite asks: a question, its references, and the statements that have to stand in the text for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.scoring import contains, exact_match, precision, share_contained, token_f1
from engine import EngineError

SHORT, LIST = 32, 64  # tokens of an answer at most; of one that names several things


class NoRoom(EngineError):
    """A length at which the needles of the suite would be most of the text."""


@dataclass(frozen=True)
class Asked:
    """A question about a text.

    family: what kind of question it is; references: all values that a whole answer contains, or, of questions over
    `qa`, answers of which any one will do; any_of: whether that is so; most: tokens of an answer at most; needs: the
    statements, of those in the text, from which the answer follows.
    """

    family: str
    text: str
    references: tuple[str, ...]
    needs: tuple[str, ...]
    any_of: bool = False
    most: int = SHORT

    def scores(self, answer: str) -> dict[str, float]:
        """Return the scores of an answer, 0 to 1: contained, f1, exact, and of a list its precision."""
        found = [contains(answer, reference) for reference in self.references]
        contained = float(any(found)) if self.any_of else share_contained(answer, self.references)
        whole = self.references if self.any_of else (", ".join(self.references),)
        scores = {
            "contained": contained,
            "f1": token_f1(answer, whole),
            "exact": float(exact_match(answer, whole)),
        }
        if self.family == "list":
            scores["precision"] = precision(answer, self.references)
        return scores


@dataclass(frozen=True)
class Needles:
    """Statements that go into one text, in this order among themselves, and what is asked about them."""

    statements: Sequence[str]
    asked: Sequence[Asked] = field(default_factory=tuple)
