"""Scores of answers: containment as RULER has it, exact match and token F1, and intervals for their means."""

from __future__ import annotations

import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from app.formatting import wilson

RESAMPLES = 2000
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PARTS = re.compile(r",|;|\n|\s&\s|\band\b|[.!?](?:\s|$)")  # separators of list items


def contains(answer: str, reference: str) -> bool:
    """Return whether an answer contains a reference.

    Case is ignored, as in RULER. Unlike RULER, a reference must be delimited by word borders, so that 12 is not found
    in 3127. An empty reference is never contained.
    """
    plain = _tidy(reference)
    return bool(plain) and re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", _tidy(answer)) is not None


def share_contained(answer: str, references: Sequence[str]) -> float:
    """Return the share of the references that an answer contains: RULER's score of several values, or recall."""
    return fmean(contains(answer, reference) for reference in references)


def precision(answer: str, references: Sequence[str]) -> float:
    """Return the share of an answer's list items that contain a reference; 0 for an empty answer.

    A reference counts once; repetitions are wrong.
    """
    items = [item for item in _PARTS.split(answer) if any(letter.isalpha() for letter in item)]
    left, right = list(references), 0
    for item in items:
        found = [reference for reference in left if contains(item, reference)]
        right += bool(found)
        left = [reference for reference in left if reference not in found]
    return right / len(items) if items else 0.0


def token_f1(answer: str, references: Sequence[str]) -> float:
    """Return the best F1 of an answer's words against a reference, SQuAD's: without case, articles and punctuation."""
    return max(_f1(_words(answer), _words(reference)) for reference in references)


def exact_match(answer: str, references: Sequence[str]) -> bool:
    """Return whether an answer equals a reference, ignoring case, articles and punctuation."""
    return any(_words(answer) == _words(reference) for reference in references)


def bootstrap(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a mean, over resampled questions.

    The same scores give the same interval. If all scores are equal, it is Wilson's interval.
    """
    if len(set(scores)) < 2:
        return wilson(fmean(scores) if scores else 0.0, len(scores))
    rng = random.Random(len(scores))
    means = sorted(fmean(rng.choices(scores, k=len(scores))) for _ in range(RESAMPLES))
    cut = round(0.025 * RESAMPLES)
    return means[cut], means[-cut - 1]


def _f1(said: list[str], expected: list[str]) -> float:
    if not said or not expected:
        return float(said == expected)
    alike = sum((Counter(said) & Counter(expected)).values())
    return 2 * alike / (len(said) + len(expected))


def _tidy(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _words(text: str) -> list[str]:
    plain = "".join(letter for letter in _tidy(text) if letter not in string.punctuation and letter not in "“”‘’–—…")
    return _ARTICLES.sub(" ", plain).split()
