"""A sweep: questions put to many places of what was read, each alone. Every answer is checked against its place.

What a place says is kept at once, as a measurement of its context. A sweep that was stopped, or is asked again, goes on
from there, and what is put together of it is put together by code.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, Place, ask_alone
from app.asking.not_found import is_no_value
from app.asking.quotes import Span, sentences_of, words_of
from app.asking.sources import source_at
from app.asking.support import SURE
from app.reading.document_cache import DocumentCache
from app.service import Service

KIND = "finding"  # kind of the measurements that hold what was found
MOST_KEPT = 100_000
"""Findings of a context that are looked through."""


@dataclass(frozen=True)
class Item:
    """One thing that a place says, with the sentences that say it.

    answer: the model's words.
    doubtful: whether the words stand there, but little else of the question does.
    sure: how sure it is, 0 to 1; None if that cannot be told.
    document, page, label: where the quote stands; the page as the file counts, and the place in words.
    quote, start, end: the sentences, and their characters in the document's text.
    """

    answer: str
    doubtful: bool
    sure: float | None
    document: str
    page: int
    label: str
    quote: str
    start: int
    end: int


def item_at(
    document_cache: DocumentCache, answer: str, document: str, start: int, end: int, doubtful: bool = False
) -> Item:
    """Return an answer with the characters of a document that say it."""
    where = source_at(document_cache, document, start, end, 1.0)
    at = where.document, where.page, where.place, where.quote, where.start, where.end
    return Item(answer, doubtful, None, *at)


@dataclass(frozen=True)
class Finding:
    """The items that a place has for a question, none if it says nothing. said: the words of the model, unchecked."""

    place: Place
    question: str
    items: tuple[Item, ...]
    said: str


@dataclass(frozen=True)
class Shape:
    """A form of answers.

    name: name of the form, kept with each finding. Another meaning needs another name.
    options: options for the answers.
    items: returns the items of an answer that stand in its place, looked up in the documents.
    """

    name: str
    options: AnswerOptions
    items: Callable[[Checked, DocumentCache], list[Item]]


class Pace:
    """Tells how long the rest of a sweep takes. Findings known from before take no time."""

    def __init__(self) -> None:
        """Begin with no finding and no time."""
        self._started = time.monotonic()
        self._asking, self._answered = False, 0

    def on_pass(self) -> None:
        """Note that the model is at work for the next finding."""
        self._asking = True

    def left(self, done: int, total: int) -> float | None:
        """Return the seconds that the rest takes; None while that is unknown. Call it once after each finding."""
        self._answered += self._asking
        self._asking = False
        return (time.monotonic() - self._started) / self._answered * (total - done) if self._answered else None


@dataclass(frozen=True)
class Ask:
    """A question to a place, and the form of its answer."""

    place: Place
    question: str
    shape: Shape

    @property
    def key(self) -> tuple[Place, str, str]:
        """Place, question and name of the shape: its finding is known by them."""
        return self.place, self.question, self.shape.name


Asks = Generator[Ask, Finding]
"""A generator of questions that is sent the finding of each."""


@dataclass(frozen=True)
class Task:
    """Questions to places, and an end for the findings.

    places: the places.
    total: number of findings, or the most that there may be.
    asks: returns the questions, from the first one.
    told: returns the result as plain data; called with the findings so far, in the order of `sweep`.
    """

    places: Sequence[Place]
    total: int
    asks: Callable[[], Asks]
    told: Callable[[Sequence[Finding]], dict[str, Any]]


def every(
    questions: Sequence[str],
    places: Sequence[Place],
    shape: Shape,
    told: Callable[[Sequence[Finding]], dict[str, Any]],
) -> Task:
    """Return the task that puts all questions to the first place, then to the next. told: see `Task`."""

    def asks() -> Asks:
        for place, question in product(places, questions):
            yield Ask(place, question, shape)

    return Task(places, len(places) * len(questions), asks, told)


def sweep(
    service: Service, task: Task, on_pass: Callable[[], None] = lambda: None, *, anew: bool = False
) -> Iterator[Finding]:
    """Put questions to places, and yield the findings.

    Args:
        service: the home in use.
        task: the questions.
        on_pass: called after each pass and piece; its exception ends the sweep, and what was found is kept.
        anew: whether to ask again what is known from before.
    """
    kept = {} if anew else findings_of(service, task.places)

    def found(ask: Ask) -> Finding:
        if ask.key not in kept:
            told = ask_alone(service, ask.place, ask.question, ask.shape.options, on_pass)
            items = tuple(ask.shape.items(told, service.document_cache))
            kept[ask.key] = Finding(ask.place, ask.question, items, told.answer)
            _keep(service, ask.shape, kept[ask.key])
        return kept[ask.key]

    yield from _found(task.asks(), found)


def known(service: Service, task: Task) -> list[Finding]:
    """Return the findings known from before, up to the first one that is missing."""
    kept = findings_of(service, task.places)
    return [*_found(task.asks(), lambda ask: kept.get(ask.key))]


def _found(asks: Asks, find: Callable[[Ask], Finding | None]) -> Iterator[Finding]:
    """Yield the finding of each question, until one has none."""
    with suppress(StopIteration):
        ask = next(asks)
        while (found := find(ask)) is not None:
            yield found
            ask = asks.send(found)


def _keep(service: Service, shape: Shape, found: Finding) -> None:
    """Keep what a place says, unless its context was deleted."""
    values = {**asdict(found), "shape": shape.name}
    with service.store.transaction():
        service.store.contexts.get(found.place.context)
        service.store.measurements.add(KIND, found.place.context, values)


def findings_of(service: Service, places: Sequence[Place]) -> dict[tuple[Place, str, str], Finding]:
    """Return the known findings of the contexts of places, by `Ask.key`."""
    found = {}
    for context in dict.fromkeys(place.context for place in places):
        for row in service.store.measurements.newest(KIND, context, MOST_KEPT):
            kept: dict[str, Any] = row.values
            place, items = Place(**kept["place"]), tuple(Item(**each) for each in kept["items"])
            question = kept["question"]
            found[place, question, kept["shape"]] = Finding(place, question, items, kept["said"])
    return found


def _value(told: Checked, _: DocumentCache) -> list[Item]:
    """Return the one value of an answer, or nothing if the text does not say it.

    Where few words of the question stand near, the value must stand there itself, and is doubtful.
    """
    value, measured = told.answer.strip().strip("“”\"'").removesuffix("."), told.measurements
    if not words_of(value) or is_no_value(value) or measured.get("unsupported"):
        return []
    having = [each for each in told.sources if words_of(value) in words_of(each["quote"])]
    for source in (having or told.sources)[:1] if having or measured["found"] else []:
        sure = measured.get("sure")
        doubtful = not measured["found"] or (sure is not None and sure < SURE)
        where = {key: source[key] for key in ("document", "page", "quote", "start", "end")}
        return [Item(value, doubtful, sure, label=source["place"], **where)]
    return []


def standing(told: Checked, document_cache: DocumentCache) -> list[Item]:
    """Return the answer if it stands in a sentence of its place, which is the only source."""
    [place] = told.sources
    text = document_cache.document(place["document"]).text
    said = words_of(told.answer)
    for each in sentences_of(text, Span(place["start"], place["end"])) if said else []:
        if said in words_of(text[each.start : each.end]):
            return [item_at(document_cache, told.answer.strip(), place["document"], each.start, each.end)]
    return []


SHORTLY = (
    "Answer the question about the text with a few words of the text. If the text does not say it, answer: not found."
)
VALUE = Shape("value", AnswerOptions(0.0, max_tokens=40, max_reasoning=0, stop=("\n",), rules=SHORTLY), _value)
"""One short value, or none."""
