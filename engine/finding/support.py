"""Support: whether the text says what an answer says, and beside what was asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from engine.finding.numbers import DIGITS, numbers
from engine.finding.passages import SENTENCE_END
from engine.finding.words import ASKING, STEM, WordSearch, asks_to_retell, language_of, terms

FEW = 4  # words of an answer that is a name rather than a sentence
NEAR = 0.5  # weight of a word of the question in a neighbouring sentence

_CAPITALISED = re.compile(r"\b[^\W\d_a-zß-öø-ÿ][^\W\d_]{2,}\b")
_BEGINS = re.compile(r"(?:^|\n|\w{4}[\"'”’)]*[.!?:] |[“\"])\W*$")  # a sentence begins behind it, not behind "Mr."
_UNIT = re.compile(r"[ -]([^\W\d_]{3,})")


def sureness(words: WordSearch, question: str, answer: str, passages: Sequence[str]) -> float:
    """Return how far the words of an answer stand beside those of its question in the text, 0 to 1.

    Only the first sentence of the answer counts, and of it what the question does not say already. The best sentence of
    the text decides: the share of the answer's words that it has, times the share of the question's words that stand in
    it or, for less, beside it. Rare words weigh more. A number that is written in another way is the same word.

    Args:
        words: knows which words are rare in the text.
        question: as asked.
        answer: as given.
        passages: texts that it is checked against.
    """
    asked = set(terms(question)) - ASKING
    first, language = next(_sentences(answer.strip()), ""), language_of("\n".join(passages))
    told = set(terms(first)) - asked - ASKING
    if not told:
        return 0.0
    counted = [(each.value, terms(first[each.start : each.end])) for each in numbers(first, language)]
    best = 0.0
    for passage in passages:
        there = [set(), *(_said(each, counted, language) for each in _sentences(passage)), set()]
        for before, own, after in zip(there, there[1:], there[2:], strict=False):
            beside = (before | after) - own
            near = _weight(words, asked & own) + NEAR * _weight(words, asked & beside)
            best = max(best, _weight(words, told & own) * near)
    return best / (_weight(words, told) * max(_weight(words, asked), 1e-9))


def unsupported(question: str, answer: str, passages: Sequence[str]) -> list[tuple[int, int]]:
    """Return the numbers and names of an answer that stand neither in the passages nor in the question.

    Returns:
        Characters (start, end) of each in the answer, in order.
    """
    known = "\n".join([question, *passages])
    language = language_of(known)
    values = {each.value for each in numbers(known, language)}
    told = list(numbers(answer, language))
    found = [(each.start, each.end) for each in told if each.value not in values and DIGITS.match(answer, each.start)]
    if not _capitalises_nouns(known):
        counted = (answer[each.start : each.end] for each in told if each.value in values)
        begins = {word[:STEM] for word in re.findall(r"\w+", " ".join([known, *counted]).casefold())}
        found += [match.span() for match in _names(answer) if match[0].casefold()[:STEM] not in begins]
    return sorted(found)


def is_strange(words: WordSearch, question: str) -> bool:
    """Return whether a question names something, and shares no telling word with the text.

    A name has a capital letter. A summary or a list may be of something without.
    """
    if words.known(question) or words.is_whole(question):
        return False
    names = (not _BEGINS.search(question[: at.start()]) for at in _CAPITALISED.finditer(question))
    return asks_to_retell(question) or any(names)


def same_kind(answer: str, end: int, passages: Sequence[str]) -> list[str]:
    """Return what passages say of the kind of a number: "thirty days" for one in front of "days", at most three.

    end: offset behind the number in the answer.
    """
    if (unit := _UNIT.match(answer, end)) is None:
        return []
    kind = unit[1][:STEM].lower()
    said = (
        f"{passage[each.start : each.end]}{of[0]}"
        for passage in passages
        for each in numbers(passage, language_of(passage))
        if (of := _UNIT.match(passage, each.end)) and of[1].lower().startswith(kind)
    )
    return list(dict.fromkeys(said))[:3]


def _names(answer: str) -> Iterator[re.Match[str]]:
    """Yield the words of an answer that a capital letter makes names; the first of a sentence only in a few words."""
    few = len(answer.split()) <= FEW
    return (each for each in _CAPITALISED.finditer(answer) if few or not _BEGINS.search(answer[: each.start()]))


def _said(sentence: str, counted: Sequence[tuple[str, list[str]]], language: int) -> set[str]:
    """Return the terms of a sentence, with those of counted numbers (value, terms) that it has in other words."""
    values = {each.value for each in numbers(sentence, language)} if counted else set()
    return set(terms(sentence)).union(*(written for value, written in counted if value in values))


def _sentences(text: str) -> Iterator[str]:
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    return (text[start:end] for start, end in pairwise(ends) if text[start:end].strip())


def _weight(words: WordSearch, terms: set[str]) -> float:
    return sum(map(words.rarity, terms))


def _capitalises_nouns(text: str) -> bool:
    """Return whether so many words begin with a capital letter that it does not make them names, as in German."""
    inside = re.findall(r"(?<=[^\W\d_] )[^\W\d_]{3,}", text)
    capitals: int = sum(word[0].isupper() for word in inside)
    return capitals > 0.2 * len(inside)
