"""A self-test: questions made of passages all over a text, asked of its memory, to see how much of it is known.

The model makes a question of a passage; if that is of no use, it is asked how a sentence goes on. It must know the
answer with the passage open, or the passage is left out. Then the question is asked twice as any other is: of the
memory alone, and with the passages that are found for it. Code compares the answers. The questions are cards for
learning too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, Place
from app.asking.document_map import chapter_of, chapters
from app.asking.introduction import (
    ASK,
    FEW,
    LEAST_PASSAGE,
    PASSAGE,
    TELLING,
    can_introduce,
    question_in,
    sensible,
    singles_out,
)
from app.asking.not_found import says_not_found
from app.asking.quotes import Span, sentences_of
from app.asking.sweep import SHORTLY, Ask, Asks, Finding, Item, Shape, Task, item_at, standing
from app.errors import AppError, UsageError
from app.formatting import whole_percent, wilson
from app.language import t
from app.machine.model_names import shown_name
from app.reading.document_cache import DocumentCache
from app.service import Service
from sessions import ContextRow

CARDS, MOST_CARDS = 10, 200
"""Questions of a self-test, and the most that there may be."""
TRIED = 3
"""Passages that are tried for each question."""
GAP = "How does this sentence of the text go on: “{} …”"
LEAST_WORDS, MOST_WORDS = 5, 40
"""Words of the beginning of a sentence that is to be gone on with."""
KNOWN = 2 / 3
"""Least share of an answer's own terms that another answer has, if it is right."""


def _question(told: Checked, document_cache: DocumentCache) -> list[Item]:
    """Return the question in an answer, if it is about its passage and only that."""
    [place] = told.sources
    text = document_cache.document(place["document"]).text
    passage, asked = text[place["start"] : place["end"]], question_in(told.answer)
    if not sensible(asked, passage) or not singles_out(asked, passage, text):
        return []
    return [item_at(document_cache, asked, place["document"], place["start"], place["end"])]


def _short(**changes: Any) -> AnswerOptions:
    return AnswerOptions(0.0, max_tokens=40, max_reasoning=0, stop=("\n",), **changes)


QUESTION = Shape("question", _short(), _question)
OPEN = Shape("open", _short(rules=SHORTLY), standing)
ALONE = Shape("memory", _short(rules=SHORTLY, read_again=False), lambda *_: [])
FOUND = Shape("found", _short(rules=SHORTLY), lambda *_: [])
"""A question, its answer with the passage open, that of the memory alone, and that with the passages found for it."""


def check_testable(context: ContextRow, cards: int) -> None:
    """Check that a context can be tested.

    Raises:
        UsageError: there are too few or too many cards, or its model makes no questions.
        AppError: it has not been read to its end.
    """
    if not 1 <= cards <= MOST_CARDS:
        raise UsageError(f"A self-test has 1 to {MOST_CARDS} questions, not {cards}.")
    if not can_introduce(context.model):
        raise UsageError(f"{shown_name(context.model)} makes no questions: read it with another model.")
    if context.status != "ready":
        raise AppError(f"{context.title} has not been read to its end: `stockpot resume {context.id}` reads it.")


def self_test(service: Service, context: ContextRow, cards: int = CARDS) -> Task:
    """Return the sweep that tests what is known of a context.

    It is told as model; cards, each with its question, answer and place, the answers of the memory `alone` and with
    passages `found`, and whether they are `right`; and chapters, with the right ones of each and of all.
    """
    cache, places = service.document_cache, [*_passages(service, context, cards * TRIED)]
    memory = Place(context.id)

    def asks() -> Asks:
        made, used = 0, set[str]()
        for place in places:
            passage = cache.document(place.document).text[place.start : place.end]
            asked = yield Ask(place, ASK.format(" ".join(passage.split())), QUESTION)
            gap = _gap(cache, place)
            question = asked.items[0].answer if asked.items else gap[0] if gap else ""
            if question and question not in used:  # passages of a short text share sentences
                used.add(question)
                opened = yield Ask(place, question, OPEN)
                if _answer(cache, opened):
                    for shape in (ALONE, FOUND):
                        yield Ask(memory, question, shape)
                    made += 1
            if made == cards:
                return

    def told(findings: Sequence[Finding]) -> dict[str, Any]:
        made = []
        for number, each in enumerate(findings[:-2]):
            alone, found = findings[number + 1 : number + 3]
            if each.place.document and not alone.place.document and (item := _answer(cache, each)):
                made.append(_card(cache, each.question, item, alone.said, found.said))
        made.sort(key=lambda card: (context.document_ids.index(card["document"]), card["start"]))
        chapters = [(title, [*own]) for title, own in groupby(made, lambda card: card["chapter"])]
        return {
            "model": shown_name(context.model),
            "cards": made,
            "chapters": [{"chapter": title, **_scores(own)} for title, own in chapters],
            "all": _scores(made),
        }

    return Task([*places, memory], 2 * (len(places) + cards), asks, told)


def _passages(service: Service, context: ContextRow, many: int) -> Iterator[Place]:
    """Yield passages of a context: some spread over all of it first, then those between."""
    documents = [(id, service.document_cache.document(id).text) for id in context.document_ids]
    total, seen = sum(len(text) for _, text in documents), set[Place]()
    for number in sorted(range(many), key=lambda each: each % TRIED):
        at = round((number + 0.5) / many * total)
        for id, text in documents:
            if at < len(text):
                near = Span(at, min(len(text), at + 3 * PASSAGE))
                sentences = sentences_of(text, near)[at > 0 :] if text[near.start : near.end].strip() else []
                ends = [each.end for each in sentences]
                end = next((end for end in ends if end - sentences[0].start >= LEAST_PASSAGE), 0)
                place = Place(context.id, document=id, start=sentences[0].start if sentences else 0, end=end)
                if end and place not in seen:
                    seen.add(place)
                    yield place
                break
            at -= len(text)


def _gap(cache: DocumentCache, place: Place) -> tuple[str, Item] | None:
    """Return the beginning of a sentence of a passage, up to its rarest telling word, with that as the answer; None if
    no word is rare.
    """
    text, found = cache.document(place.document).text, list[tuple[int, int, str, Item]]()
    for each in sentences_of(text, Span(place.start, place.end)):
        said = text[each.start : each.end]
        for match in TELLING.finditer(said):
            begun, often = " ".join(said[: match.start()].split()), text.count(match[0])
            question = GAP.format(begun)
            if often <= FEW and LEAST_WORDS <= len(begun.split()) <= MOST_WORDS and _own(question, match[0]):
                item = item_at(cache, match[0], place.document, each.start, each.end)
                found.append((often, -len(match[0]), question, item))
    return min(found, key=lambda each: each[:2])[2:] if found else None


def _answer(cache: DocumentCache, opened: Finding) -> Item | None:
    """Return the answer to a question that was asked with its passage open; None if it does not stand there, or says
    nothing that the question does not.
    """
    gap = _gap(cache, opened.place)
    if gap and opened.question == gap[0]:
        return gap[1] if is_right(gap[0], gap[1].answer, opened.said) else None
    return next((each for each in opened.items if _own(opened.question, each.answer)), None)


def _own(question: str, answer: str) -> set[str]:
    """Return the terms of an answer that its question does not have."""
    from engine.finding.words import ASKING, terms

    return set(terms(answer)) - set(terms(question)) - ASKING


def is_right(question: str, answer: str, said: str) -> bool:
    """Return whether something said has most of the terms of an answer that its question does not have."""
    from engine.finding.words import terms

    own = _own(question, answer)
    return not says_not_found(said) and len(own & set(terms(said))) >= KNOWN * len(own)


def _card(cache: DocumentCache, question: str, item: Item, alone: str, found: str) -> dict[str, Any]:
    right = {name: is_right(question, item.answer, said) for name, said in (("alone", alone), ("found", found))}
    chapter = chapter_of(chapters(cache.document(item.document)), item.page)
    said = {"alone": alone, "found": found, "right": right}
    return {"question": question, **asdict(item), "chapter": chapter, **said}


def _scores(cards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many of some cards are right, with 95 % intervals of the shares."""
    n, right = len(cards), {name: sum(card["right"][name] for card in cards) for name in ("alone", "found")}
    return {"n": n, **right, "interval": {name: wilson(each / max(1, n), n) for name, each in right.items()}}


def in_words(scores: dict[str, Any]) -> str:
    """Return how many are right: "3 right from memory alone (11–60%), 8 with passages (49–94%)"."""
    alone, found = (
        {"n": scores[name], "least": f"{100 * least:.0f}", "most": whole_percent(most)}
        for name, (least, most) in scores["interval"].items()
    )
    said = t("{n} right from memory alone ({least}–{most})", **alone)
    return f"{said}, {t('{n} with passages ({least}–{most})', **found)}"
