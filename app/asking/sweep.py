"""A sweep: questions put to many places of what was read, each alone. Every answer is checked against its place.

What a place says is kept at once, as a measurement of its context. A sweep that was stopped, or is asked again, goes on
from there, and what is put together of it is put together by code.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product, takewhile
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, Place, ask_alone
from app.asking.not_found import says_not_found
from app.asking.quotes import words_of
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
class Task:
    """Questions to places, and an end for their findings.

    questions: the questions.
    places: the places.
    shape: form of the answers.
    told: returns the result as plain data; called with the findings so far, in the order of `sweep`.
    """

    questions: Sequence[str]
    places: Sequence[Place]
    shape: Shape
    told: Callable[[Sequence[Finding]], dict[str, Any]]

    @property
    def total(self) -> int:
        """Number of findings."""
        return len(self.questions) * len(self.places)

    @property
    def asked(self) -> Iterator[tuple[Place, str]]:
        """Each place with each question, in the order of the findings."""
        return product(self.places, self.questions)


def sweep(
    service: Service, task: Task, on_pass: Callable[[], None] = lambda: None, *, anew: bool = False
) -> Iterator[Finding]:
    """Put questions to places, and yield what each says: all questions to the first place, then to the next.

    Args:
        service: the home in use.
        task: questions and places.
        on_pass: called after each pass and piece; its exception ends the sweep, and what was found is kept.
        anew: whether to ask again what is known from before.
    """
    kept = {} if anew else findings_of(service, task)
    for place, question in task.asked:
        if (place, question) not in kept:
            told = ask_alone(service, place, question, task.shape.options, on_pass)
            items = tuple(task.shape.items(told, service.document_cache))
            kept[place, question] = Finding(place, question, items, told.answer)
            _keep(service, task.shape, kept[place, question])
        yield kept[place, question]


def known(service: Service, task: Task) -> list[Finding]:
    """Return the findings known from before, up to the first one that is missing."""
    kept = findings_of(service, task)
    return [kept[each] for each in takewhile(kept.__contains__, task.asked)]


def _keep(service: Service, shape: Shape, found: Finding) -> None:
    """Keep what a place says, unless its context was deleted."""
    values = {**asdict(found), "shape": shape.name}
    with service.store.transaction():
        service.store.contexts.get(found.place.context)
        service.store.measurements.add(KIND, found.place.context, values)


def findings_of(service: Service, task: Task) -> dict[tuple[Place, str], Finding]:
    """Return the known findings of a task, by place and question."""
    found = {}
    for context in dict.fromkeys(place.context for place in task.places):
        for row in service.store.measurements.newest(KIND, context, MOST_KEPT):
            kept: dict[str, Any] = row.values
            if kept["shape"] == task.shape.name and kept["question"] in task.questions:
                place, items = Place(**kept["place"]), tuple(Item(**each) for each in kept["items"])
                found[place, kept["question"]] = Finding(place, kept["question"], items, kept["said"])
    return found


def _value(told: Checked, _: DocumentCache) -> list[Item]:
    """Return the one value of an answer, or nothing if the text does not say it.

    Where few words of the question stand near, the value must stand there itself, and is doubtful.
    """
    value, measured = told.answer.strip().strip("“”\"'").removesuffix("."), told.measurements
    if not words_of(value) or says_not_found(value) or measured.get("unsupported"):
        return []
    having = [each for each in told.sources if words_of(value) in words_of(each["quote"])]
    for source in (having or told.sources)[:1] if having or measured["found"] else []:
        sure = measured.get("sure")
        doubtful = not measured["found"] or (sure is not None and sure < SURE)
        where = {key: source[key] for key in ("document", "page", "quote", "start", "end")}
        return [Item(value, doubtful, sure, label=source["place"], **where)]
    return []


SHORTLY = (
    "Answer the question about the text with a few words of the text. If the text does not say it, answer: not found."
)
VALUE = Shape("value", AnswerOptions(0.0, max_tokens=40, max_reasoning=0, stop=("\n",), rules=SHORTLY), _value)
"""One short value, or none."""
