"""A sweep: questions put to many places of what was read, each alone. Every answer is checked against its place.

What a place says is kept at once, as a measurement of its context. A sweep that was stopped, or is asked again, goes on
from there, and what is put together of it is put together by code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, ask_alone
from app.asking.not_found import says_not_found
from app.asking.quotes import words_of
from app.asking.support import SURE
from app.service import Service

KIND = "finding"  # kind of the measurements that hold what was found
MOST_KEPT = 100_000
"""Findings of a context that are looked through."""


@dataclass(frozen=True)
class Place:
    """A part of a context to be asked alone.

    context: id of the context.
    pages: its pages, as the store keeps them; "" for the whole text.
    """

    context: str
    pages: str = ""


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
    items: returns the items of an answer that stand in its place.
    """

    name: str
    options: AnswerOptions
    items: Callable[[Checked], list[Item]]


def sweep(
    service: Service,
    questions: Sequence[str],
    places: Sequence[Place],
    shape: Shape,
    on_pass: Callable[[], None] = lambda: None,
    *,
    anew: bool = False,
) -> Iterator[Finding]:
    """Put questions to places, and yield what each says: all questions to the first place, then to the next.

    Args:
        service: the home in use.
        questions: the questions.
        places: the places.
        shape: form of the answers.
        on_pass: called after each pass and piece; its exception ends the sweep, and what was found is kept.
        anew: whether to ask again what is known from before.
    """
    for place in places:
        known = {} if anew else _known(service, place, shape)
        for question in questions:
            if question not in known:
                told = ask_alone(service, place.context, question, shape.options, place.pages, on_pass)
                known[question] = Finding(place, question, tuple(shape.items(told)), told.answer)
                _keep(service, shape, known[question])
            yield known[question]


def _keep(service: Service, shape: Shape, found: Finding) -> None:
    """Keep what a place says, unless its context was deleted."""
    values = {**asdict(found), "shape": shape.name}
    with service.store.transaction():
        service.store.contexts.get(found.place.context)
        service.store.measurements.add(KIND, found.place.context, values)


def _known(service: Service, place: Place, shape: Shape) -> dict[str, Finding]:
    """Return what is known of a place, by question."""
    found = {}
    for row in service.store.measurements.newest(KIND, place.context, MOST_KEPT):
        kept: dict[str, Any] = row.values
        if kept["shape"] == shape.name and Place(**kept["place"]) == place:
            items = tuple(Item(**each) for each in kept["items"])
            found[kept["question"]] = Finding(place, kept["question"], items, kept["said"])
    return found


def _value(told: Checked) -> list[Item]:
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
