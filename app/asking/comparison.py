"""Two documents compared, sentence by sentence: those that differ in some words, and those that one has alone.

Code decides. A sentence stands in one document alone if no place of the other shares its telling words. Where a place
shares some, the model looks there for a sentence that says the same. Its answer counts only if it stands there and has
the same numbers. A contradiction in other words is not found.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from math import log
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Place
from app.asking.document_map import Chapter, chapter_of, chapters
from app.asking.document_table import Row, rows_of
from app.asking.quotes import Span, sentences_of, words_of
from app.asking.sources import source_at
from app.asking.sweep import Ask, Asks, Finding, Shape, Task, standing
from app.errors import UsageError
from app.formatting import shorten
from app.reading.document_cache import DocumentCache
from app.service import Service

ALIKE = 0.5
"""Least share of the weight of two sentences' terms that both have, if one is another form of the other."""
SAID, UNSAID = 0.8, 0.25
"""Shares of the weight of a sentence's terms that a place has. From SAID on the place says it, below UNSAID it does
not, and between the model is asked."""
LEAST = 3
"""Fewest terms of a sentence that is compared; a heading has fewer."""
MOST_ASKED = 60
"""Most sentences that the model is asked about, those that most terms speak for; others count as unsaid."""
AROUND, CLAIM = 1, 300
"""Sentences on each side of one that belong to its place, and most characters of a sentence in a question."""
RAREST = 4
"""Terms of a sentence, the rarest in the other document, one of which a sentence there has that is looked at."""
MOST_JOINED = 600
"""Most characters of sentences that are told as one passage."""

ASK = "Does the text say this too: “{}”"
RULES = (
    "Answer with the one sentence of the text that says the same, word for word. If there is none, answer: not found."
)
_NOT = re.compile(
    r"\b(?:not|no|never|none|neither|nor|without|cannot|nicht|keine?[nrms]?|nie(?:mals)?|ohne|ne|jamais|sans|aucune?|"
    r"nunca|sin|ning[uú]na?)\b|n['’]t\b|[不没未無]|ない|ません",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+(?:[.,’']\w+)*")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a document: its characters, its words in a normal form, and the terms that tell it from others."""

    start: int
    end: int
    words: str
    terms: frozenset[str]


@dataclass(frozen=True)
class Difference:
    """A sentence that the other document has in another form, or not at all.

    own: 0 for a sentence of the first document, 1 for one of the second.
    at: its number there.
    start, end: its characters.
    other: characters of the other form. Of a sentence that stands alone, those of the place that comes closest, or of
        the sentence behind which it would stand; None for the beginning.
    shared: share of the weight of its terms that this place has; None for a sentence with another form.
    """

    own: int
    at: int
    start: int
    end: int
    other: tuple[int, int] | None
    shared: float | None

    @property
    def is_open(self) -> bool:
        """True if the model is to be asked."""
        return self.shared is not None and self.shared >= UNSAID


class _Side:
    """The sentences of a text that are compared, and those that have each term."""

    def __init__(self, text: str) -> None:
        from engine.finding.words import ASKING, terms

        self.text = text
        self.sentences, self.having = list[Sentence](), defaultdict[str, list[int]](list)
        for each in sentences_of(text, Span(0, len(text))) if text.strip() else []:
            said = text[each.start : each.end]
            own = frozenset(terms(said)) - ASKING
            if len(own) >= LEAST:
                for term in own:
                    self.having[term].append(len(self.sentences))
                self.sentences.append(Sentence(each.start, each.end, words_of(said), own))
        self.same = {each.words: at for at, each in enumerate(self.sentences)}
        self._near = dict[int, frozenset[str]]()  # terms of places, by their middle

    def terms(self, at: int, around: int) -> frozenset[str]:
        """Return the terms of a sentence and as many on each side."""
        if not around:
            return self.sentences[at].terms
        if at not in self._near:
            near = self.sentences[max(0, at - AROUND) : at + AROUND + 1]
            self._near[at] = frozenset().union(*(each.terms for each in near))
        return self._near[at]

    def place(self, at: int, around: int) -> tuple[int, int]:
        """Return the characters of a sentence and as many on each side."""
        last = min(at + around, len(self.sentences) - 1)
        return self.sentences[max(0, at - around)].start, self.sentences[last].end


@lru_cache(maxsize=4)
def differences(first: str, second: str) -> tuple[Difference, ...]:
    """Return where two texts differ, in the order of the first; sentences of the second stand behind those that they
    follow.
    """
    sides = _Side(first), _Side(second)
    held = Counter(term for side in sides for each in side.sentences for term in each.terms)
    many = sum(len(side.sentences) for side in sides)
    weights = {term: log(1 + many / count) for term, count in held.items()}

    def weight(terms: frozenset[str]) -> float:
        return sum(map(weights.__getitem__, terms))

    def shared(sentence: Sentence, side: _Side, around: int) -> dict[int, float]:
        """Return the weight of the terms that sentences of a side share with another, with as many on each side; of
        those that have one of its rarest terms.
        """
        rare = sorted((each for each in sentence.terms if each in side.having), key=lambda each: len(side.having[each]))
        near = {at + by for term in rare[:RAREST] for at in side.having[term] for by in range(-around, around + 1)}
        within = (at for at in near if 0 <= at < len(side.sentences))
        return {at: weight(sentence.terms & side.terms(at, around)) for at in within}

    def form(sentence: Sentence, here: _Side, there: _Side) -> int | None:
        """Return another form of a sentence that is not there itself; None if there is none."""
        own, alike = weight(sentence.terms), dict[int, float]()
        for at, both in shared(sentence, there, 0).items():
            other = there.sentences[at]
            if other.words not in here.same and both >= ALIKE * (own + weight(other.terms) - both):
                alike[at] = both / (own + weight(other.terms) - both)
        return max(alike, key=alike.__getitem__, default=None)

    def place(sentence: Sentence, here: _Side, there: _Side) -> tuple[int, float]:
        """Return the middle of the place that has most of a sentence, and how much of it: below SAID if its figures or
        its negation are not there.
        """
        found = shared(sentence, there, AROUND)
        at = max(found, key=found.__getitem__, default=-1)
        if at < 0:
            return at, 0.0
        figures = {term for term in sentence.terms if any(map(str.isdecimal, term))}
        low, high = there.place(at, AROUND)
        denied = _NOT.search(here.text, sentence.start, sentence.end) and not _NOT.search(there.text, low, high)
        share = found[at] / weight(sentence.terms)
        return at, min(share, SAID - 0.01) if denied or not figures <= there.terms(at, AROUND) else share

    found, told = list[tuple[float, int, Difference]](), set[int]()  # sentences of the second that are told
    for own, (here, there) in enumerate((sides, sides[::-1])):
        before = -1  # the counterpart of the sentence before
        for at, sentence in enumerate(here.sentences):
            span = sentence.start, sentence.end
            if (same := there.same.get(sentence.words)) is not None:
                before = same
            elif (other := form(sentence, here, there)) is not None:
                before = other
                if not own:
                    told.add(other)
                if not own or at not in told:
                    after = (other + 0.5, at) if own else (at, 0)
                    found.append((*after, Difference(own, at, *span, there.place(other, 0), None)))
            elif (closest := place(sentence, here, there))[1] < SAID:
                near = there.place(closest[0], AROUND) if closest[1] >= UNSAID else None
                near = near or (there.place(before, 0) if before >= 0 else None)
                found.append((before + 0.5 if own else at, at, Difference(own, at, *span, near, closest[1])))
    return tuple(each for *_, each in sorted(found, key=lambda each: each[:2]))


SAME = Shape("same", AnswerOptions(0.0, max_tokens=100, max_reasoning=0, stop=("\n",), rules=RULES), standing)
"""A sentence that says the same."""


def says_the_same(claim: str, answer: str) -> bool:
    """Return whether a sentence may say the same as another: it shares some terms, the numbers and a negation."""
    from engine.finding.words import ASKING, terms

    shared = (set(terms(claim)) & set(terms(answer))) - ASKING
    return len(shared) >= 2 and not _contradicts(claim, answer)


def _contradicts(one: str, other: str) -> list[str]:
    """Return "number" and "not" where two sentences of the same thing contradict each other by them."""
    from engine.finding.numbers import numbers
    from engine.finding.words import language_of

    counted = [{each.value for each in numbers(said, language_of(said))} for said in (one, other)]
    found = ["number"] if counted[0] != counted[1] else []
    return found + (["not"] if bool(_NOT.search(one)) != bool(_NOT.search(other)) else [])


def changed(one: str, other: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the characters of the words that two sentences do not share, in each."""
    here, there = [*_WORD.finditer(one)], [*_WORD.finditer(other)]
    plain = [[each[0].casefold() for each in words] for words in (here, there)]
    matching = SequenceMatcher(None, plain[0], plain[1], autojunk=False).get_opcodes()
    changes = [each for each in matching if each[0] != "equal"]
    return (
        [(here[low].start(), here[high - 1].end()) for _, low, high, _, _ in changes if low < high],
        [(there[low].start(), there[high - 1].end()) for _, _, _, low, high in changes if low < high],
    )


def two(service: Service, names: Sequence[str]) -> list[Row]:
    """Return the rows of two documents.

    Raises:
        UsageError: there are not two.
        AppError: one has not been read to its end, or is not there.
    """
    rows = rows_of(service, names) if len(names) == 2 else []
    if len(rows) != 2:
        raise UsageError("Name two documents to compare.")
    return rows


def comparison(service: Service, rows: Sequence[Row]) -> Task:
    """Return the sweep that compares the documents of two rows.

    It is told as documents, with id and title, and rows in order. A row "differs", with `about` for a number or a
    negation in it, or is "alone" in the document `own`, `doubtful` if the other has similar words. Its passages are
    those of both documents; of one that is alone, the other is the closest place. `changed` has characters of their
    quotes.
    """
    cache = service.document_cache
    documents = [cache.document(row.document) for row in rows]
    found = differences(documents[0].text, documents[1].text)
    likely = {*sorted((each for each in found if each.is_open), key=lambda each: -(each.shared or 0.0))[:MOST_ASKED]}
    asked = [each for each in found if each in likely]

    def claim(each: Difference) -> str:
        return documents[each.own].text[each.start : each.end]

    def asks() -> Asks:
        for each in asked:
            other = rows[1 - each.own]
            assert each.other is not None
            place = Place(other.place.context, document=other.document, start=each.other[0], end=each.other[1])
            yield Ask(place, ASK.format(shorten(" ".join(claim(each).split()), CLAIM)), SAME)

    def told(findings: Sequence[Finding]) -> dict[str, Any]:
        said = {
            each
            for each, answer in zip(asked, findings, strict=False)
            if any(says_the_same(claim(each), item.quote) for item in answer.items)
        }
        left = [each for each in found if each not in said]
        ids, listed = [row.document for row in rows], [chapters(document) for document in documents]
        return {
            "documents": [{"document": row.document, "title": row.title} for row in rows],
            "rows": [_row(cache, ids, listed, each) for each in _joined(left)],
            "asked": len(findings),
            "said": len(said),
        }

    return Task([row.place for row in rows], len(asked), asks, told)


def _joined(found: Sequence[Difference]) -> list[Difference]:
    """Return differences, with sentences that follow each other alone as one passage."""
    joined = list[Difference]()
    for each in found:
        last = joined[-1] if joined else None
        if (
            last is not None
            and None not in (last.shared, each.shared)
            and (last.own, last.at + 1, last.is_open) == (each.own, each.at, each.is_open)
            and each.end - last.start <= MOST_JOINED
        ):
            joined[-1] = Difference(each.own, each.at, last.start, each.end, last.other, last.shared)
        else:
            joined.append(each)
    return joined


def _row(
    cache: DocumentCache, ids: Sequence[str], listed: Sequence[Sequence[Chapter]], each: Difference
) -> dict[str, Any]:
    """Return a difference as plain data. ids, listed: the documents, and their chapters."""
    spans = [(each.start, each.end), each.other or (0, 0)]
    passages = [
        asdict(source_at(cache, id, *span, 1.0)) for id, span in zip(ids, spans[:: -1 if each.own else 1], strict=True)
    ]
    quotes = [passage["quote"] for passage in passages]
    alone = each.shared is not None
    return {
        "kind": "alone" if alone else "differs",
        "own": each.own,
        "section": chapter_of(listed[each.own], passages[each.own]["page"]),
        "about": [] if alone else _contradicts(*quotes),
        "changed": ([], []) if alone else changed(*quotes),
        "doubtful": each.is_open,
        "passages": passages,
    }
