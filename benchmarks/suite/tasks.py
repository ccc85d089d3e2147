"""Questions of the suite: a question, its references, and the statements it needs in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.asking.not_found import says_not_found
from benchmarks.scoring import contains, exact_match, precision, share_contained, token_f1
from engine import EngineError

SHORT, LIST = 32, 64  # most tokens of an answer; of a list


class NoRoom(EngineError):
    """The suite's needles would fill most of a text of this length."""


@dataclass(frozen=True)
class Asked:
    """A question about a text.

    Attributes:
        family: kind of question.
        references: values that a complete answer contains all of; with `any_of`, alternative answers. Without any the
            text does not tell, and an answer that says so is right.
        any_of: any one of the references will do, as in questions over `qa`.
        most: most tokens of an answer.
        needs: statements in the text from which the answer follows.
    """

    family: str
    text: str
    references: tuple[str, ...]
    needs: tuple[str, ...]
    any_of: bool = False
    most: int = SHORT

    def scores(self, answer: str) -> dict[str, float]:
        """Return the scores of an answer, 0 to 1: contained, f1, exact, and for a list its precision."""
        if not self.references:
            return dict.fromkeys(("contained", "f1", "exact"), float(says_not_found(answer)))
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
    """Statements for one text, in this order, and the questions about them."""

    statements: Sequence[str]
    asked: Sequence[Asked] = field(default_factory=tuple)
