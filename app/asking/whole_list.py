"""A complete list: a sweep of a whole text, place by place. Its items are checked, joined and counted by code.

Each place is read again alone, and the model lists its items. An item needs a sentence of its place that has its
words, or it is dropped. Equal items of several places become one.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, Place
from app.asking.not_found import is_no_value
from app.asking.people import asks_for_people, persons
from app.asking.quotes import Span, sentences_of, words_of
from app.asking.sweep import Finding, Item, Shape, Task, every, item_at
from app.listing import titles_before_places
from app.reading.document_cache import DocumentCache
from app.reading.open_context import open_context
from app.reading.token_stream import Stretch
from app.service import Service
from ingest import Document
from ingest.formats import FORMATS
from sessions import ContextRow

LEAST, MOST = 1500, 3000
"""Tokens of a place: it ends with a chapter, else with a paragraph, else with a sentence."""
LONGEST, USUAL = 300, 40
"""Most tokens of the items of a place, and those that they usually have."""

_PARAGRAPH = re.compile(r"[.!?…:;。！？][\"'”’»)\]]*\s*\n\s*\n")
_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]*\s|[。！？]|\n")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ARTICLE = re.compile(r"^ (?:the|an?|der|die|das|den|eine?|les?|la|une?|el|los|las|una) (?=\S)")

_LISTS = re.compile(
    r"^\W*(?:please |bitte )?(?:"
    r"(?:list|name|enumerate|find|collect|give|show|tell)\b.*\b(?:all|every|each)\b|(?:list|enumerate)\b"
    r"|(?:what|who|which)(?: \w+)? are all\b|what are the names\b"
    r"|(?:liste|nenne|zähle?|finde|sammle|gib|zeige?)\b.*\b(?:alle|sämtliche|jede[nrs]?)\b|liste\b"
    r"|(?:liste|énum[èé]re|cite|nomme|donne|trouve|rel[èe]ve|quel(?:le)?s? sont)[rzs]?\b.*\b(?:tous|toutes|chaque)\b"
    r"|(?:enumera|lista|nombra|menciona|cita|encuentra|haz|di|dime|dame|cuáles son)\b.*\b(?:tod[oa]s|cada|lista)\b"
    r"|.*(?:列出|列举|所有.*(?:哪些|是什么|谁)|(?:すべて|全て|全部).*(?:挙げ|列挙|教え|あげ)|一覧|列挙|リスト))",
    re.IGNORECASE,
)
_INSTEAD = (
    (re.compile(r"^\W*who(?: is|['’]?s) who\b", re.IGNORECASE), "List all the people"),
    (re.compile(r"^\W*wer ist wer\b", re.IGNORECASE), "Nenne alle Personen"),
    (re.compile(r"^\W*qui est qui\b", re.IGNORECASE), "Cite toutes les personnes"),
    (re.compile(r"^\W*quién es quién\b", re.IGNORECASE), "Enumera todas las personas"),
    (re.compile(r"谁是谁"), "列出所有人物"),
    (re.compile(r"誰が誰(?:です)?か?"), "すべての登場人物を挙げてください"),
    (re.compile(r"^\W*how many (?!times\b)", re.IGNORECASE), "Which "),
    (re.compile(r"^\W*wie ?viele (?!male?\b)", re.IGNORECASE), "Welche "),
    (re.compile(r"^\W*combien (?:de |d['’])(?!fois\b)", re.IGNORECASE), "Quels "),
    (re.compile(r"^\W*cuánt[oa]s (?!veces\b)", re.IGNORECASE), "¿Qué "),
    (re.compile(r"(?:有)?(?:多少|几)(?:个|位|名|人|艘|只|种|本|座|条|家)"), "有哪些"),
    (re.compile(r"(?:いくつ|何[人個冊匹隻])の"), "どの"),
    (re.compile(r"(?:いくつ|何[人個冊匹隻])"), "どれ"),
)


def list_question(question: str) -> str | None:
    """Return the question to put to each place if a question asks for a list or a count, in a language of the page;
    else None. For a count it asks which ones there are, and for "Who is who" which people.
    """
    for pattern, instead in _INSTEAD:
        if pattern.search(question):
            return pattern.sub(instead, question, count=1)
    return question if _LISTS.match(question) else None


def search_seconds(context: ContextRow, tokens_per_second: float) -> float | None:
    """Return the seconds that a search of a whole context takes, roughly; None if it is not known how fast it was read.

    tokens_per_second: speed of answers.
    """
    if not context.tokens_per_second:
        return None
    return context.tokens / context.tokens_per_second + USUAL * context.tokens / LEAST / tokens_per_second


def places_of(service: Service, context_id: str) -> list[Place]:
    """Return the places of a context, which have its whole text, in order and each once.

    Raises:
        AppError: none of the context has been read yet.
    """
    opened = open_context(service, context_id)
    most = min(MOST, opened.model.spec.window // 2)
    found = []
    for stretch in opened.stream.stretches:
        document = service.document_cache.document(stretch.document_id)
        starts = opened.stream.starts[stretch.first : stretch.end].tolist()
        for start, end in cut(document, stretch, starts, most):
            found.append(Place(context_id, document=stretch.document_id, start=start, end=end))
    return found


def cut(document: Document, stretch: Stretch, starts: Sequence[int], most: int = MOST) -> Iterator[tuple[int, int]]:
    """Yield the places of a document as characters (start, end) of its text.

    Args:
        document: the document.
        stretch: its tokens.
        starts: the first character of each.
        most: tokens of a place.
    """
    text, at, begin = document.text, 0, 0
    sections = not FORMATS[document.format].has_fixed_pages
    chapters = {entry.page for entry in document.toc}
    pages = zip(document.pages, document.page_starts, strict=True)
    heads = [start for page, start in pages if sections or page.number in chapters]
    while len(starts) - at > most:
        low, high = starts[at + most * LEAST // MOST], starts[at + most]
        ends = [each for each in heads if low < each <= high]
        for border in (_PARAGRAPH, _SENTENCE):
            ends = ends or [each.end() for each in border.finditer(text, low, high)]
        end = ends[-1] if ends else high
        yield begin, end
        begin, at = end, max(at + 1, bisect_left(starts, end))
    yield begin, stretch.characters


def _items(told: Checked, document_cache: DocumentCache) -> list[Item]:
    """Return the items of a list whose words stand in one sentence of their place; in other words they are doubtful."""
    from engine.finding.words import ASKING, terms

    [place], found = told.sources, []
    text = document_cache.document(place["document"]).text
    sentences = [
        (each, said := text[each.start : each.end], words_of(said), set(terms(said)))
        for each in sentences_of(text, Span(place["start"], place["end"]))
    ]
    for item in entries(told.answer):
        words, needed = words_of(item), set(terms(item)) - ASKING
        same = [each for each, _, held, _ in sentences if words in held]
        having = same or [each for each, _, _, held in sentences if needed and needed <= held]
        for each in having[:1]:
            found.append(item_at(document_cache, item, place["document"], each.start, each.end, not same))
    return found


def entries(answer: str) -> list[str]:
    """Return the items of a JSON list, each once; of one that was cut, those before the cut."""
    found = []
    for each in _STRING.findall(answer):
        with suppress(ValueError):
            found.append(" ".join(json.loads(each).split()).strip(" .,;:*-"))
    return list(dict.fromkeys(each for each in found if words_of(each) and not is_no_value(each)))


# With leave to give none, a small model always gives none: it lists something, and the check decides.
_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1, "maxLength": 120}}
RULES = (
    "Answer from the text alone, with a JSON list of strings: each thing that is asked for, in the words of the text "
    "and as short as there."
)
LIST = Shape("list", AnswerOptions(0.0, max_tokens=LONGEST, max_reasoning=0, rules=RULES, json_schema=_SCHEMA), _items)
"""All items of a place."""


@dataclass(frozen=True)
class Row:
    """An answer of a whole text, and the first item in each place that has it."""

    answer: str
    items: tuple[Item, ...]


def merged(findings: Sequence[Finding], people: bool = False) -> list[Row]:
    """Return the items of all places, in order, equal ones as one.

    Items are equal if they have the same words but for case, an article before them, and the form of numbers. people:
    whether names that only one person can have are equal too; such an item has them all, see `persons`.
    """
    ordered = [sorted(found.items, key=lambda each: each.start) for found in findings]
    first: dict[str, str] = {}
    for item in chain.from_iterable(ordered):
        first.setdefault(key_of(item.answer), item.answer)
    joined = persons(first.values()) if people else {}
    rows: dict[str, dict[int, Item]] = {}
    for place, items in enumerate(ordered):
        for item in items:
            answer = first[key_of(item.answer)]
            rows.setdefault(joined.get(answer, answer), {}).setdefault(place, item)
    return [Row(answer, tuple(places.values())) for answer, places in rows.items()]


def key_of(item: str) -> str:
    """Return the words of an item; another one with the same words is equal."""
    from engine.finding.numbers import numbers
    from engine.finding.words import language_of

    for each in reversed([*numbers(item, language_of(item))]):
        item = f"{item[: each.start]} {each.value} {item[each.end :]}"
    return _ARTICLE.sub(" ", words_of(item))


def whole_list(service: Service, context_id: str, question: str, places: Sequence[Place] | None = None) -> Task:
    """Return the sweep that lists all that a question asks for in a context.

    Args:
        service: the home in use.
        context_id: the context.
        question: the question, as typed.
        places: those of the context, if they are known; otherwise its model is loaded.

    It is told as question; count, the number of items; items, each with those of further places, also, if these are
    called otherwise; places and searched, the places of the text and those asked so far; dropped, the items that stand
    in no sentence of their place. Where the question asks for people, names of one person are one item, see `persons`.

    Raises:
        AppError: none of the context has been read yet.
    """
    places = places_of(service, context_id) if places is None else places
    titles, people = titles_before_places(service, context_id), asks_for_people(question)

    def item_of(row: Row) -> dict[str, Any]:
        apart: dict[str, dict[str, Any]] = {}
        for each in row.items:
            label = titles.get(each.document, "") + each.label
            apart.setdefault(label, {**asdict(each), "label": label})
        first, *also = apart.values()
        return {**first, "answer": row.answer, "also": also}

    def told(findings: Sequence[Finding]) -> dict[str, Any]:
        items = [*map(item_of, merged(findings, people))]
        return {
            "question": question,
            "count": len(items),
            "items": items,
            "places": len(places),
            "searched": len(findings),
            "dropped": sum(len(entries(each.said)) - len(each.items) for each in findings),
        }

    return every([list_question(question) or question], places, LIST, told)
