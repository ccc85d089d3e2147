"""Self-tests: questions of passages all over a text, and answers that are compared by code."""

import csv
import io
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from app.asking.answers import Checked, Place
from app.asking.self_test import ALONE, GAP, OPEN, QUESTION, TRIED, _gap, check_testable, in_words, is_right, self_test
from app.asking.sources import source_at
from app.asking.sweep import Ask, Finding, Item, Task, known
from app.asking.table_text import written
from app.errors import AppError, UsageError
from app.service import Service
from sessions import ContextRow
from tests.app.helpers import add, read_through

NAMES = ["Hollis", "Brandt", "Renn", "Dirk", "Voss", "Maas", "Linde", "Kroll", "Thorn", "Falk", "Stern", "Wolff"]
TEXT = "\n\n".join(
    f"# Part {part}\n\n"
    + "\n\n".join(
        f"In the year {1700 + at} Captain {NAMES[at]} sailed from Orlen to the northern islands, and took "
        f"along {100 + at} barrels of salted herring for the keepers of the lighthouse there, who had waited long."
        for at in range(6 * part - 6, 6 * part)
    )
    for part in (1, 2)
)


@pytest.fixture
def context(service: Service, tmp_path: Path) -> ContextRow:
    path = tmp_path / "Captains.md"
    path.write_text(TEXT, encoding="utf-8")
    return read_through(service, add(service, path))


def answered(service: Service, task: Task, wrong: str = "") -> list[Finding]:
    """Return findings as a model would give them that knows the barrels of each captain but one."""
    asks, found = task.asks(), list[Finding]()
    ask = next(asks)
    try:
        while True:
            place, text = ask.place, TEXT
            if ask.shape == QUESTION:
                name = next(name for name in NAMES if name in text[place.start : place.end])
                said = f"How many barrels did Captain {name} take along?"
            else:
                number = next(100 + at for at, name in enumerate(NAMES) if name in ask.question)
                said = "12 barrels" if wrong in ask.question and not place.document and wrong else f"{number} barrels"
            source = (
                source_at(service.document_cache, place.document, place.start, place.end, 1.0)
                if place.document
                else None
            )
            items = ask.shape.items(Checked(said, "", [vars(source)] if source else [], {}), service.document_cache)
            found.append(Finding(place, ask.question, tuple(items), said))
            ask = asks.send(found[-1])
    except StopIteration:
        return found


def test_cards_are_made_all_over_a_text_and_tried_without_their_passage(service: Service, context: ContextRow) -> None:
    task = self_test(service, context, 4)
    found = answered(service, task, wrong="Hollis")
    told = task.told(found)
    assert len(found) == 16 <= task.total
    cards = told["cards"]
    assert [card["start"] for card in cards] == sorted(card["start"] for card in cards)
    assert [card["chapter"] for card in cards] == ["Part 1", "Part 1", "Part 2", "Part 2"]
    assert all(card["answer"] in card["quote"] for card in cards)
    assert [card["right"]["found"] for card in cards] == ["Hollis" not in card["question"] for card in cards]
    right = sum(card["right"]["alone"] for card in cards)
    assert told["all"]["n"] == 4
    assert told["all"]["alone"] == sum(each["alone"] for each in told["chapters"]) == right
    assert "right from memory alone" in in_words(told["all"])
    assert [len(task.told(found[:many])["cards"]) for many in (2, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    rows = [*csv.reader(io.StringIO(written(told, "tsv")), "excel-tab")]
    assert rows == [[card["question"], f"{card['answer']} ({card['label']})"] for card in cards]
    assert written(told, "md").startswith("| question | answer | place | memory alone | with passages |\n| --- |")
    assert known(service, task) == []


def test_more_passages_are_tried_where_some_make_no_question(service: Service, context: ContextRow) -> None:
    task = self_test(service, context, 2)
    assert len(task.places) == 2 * TRIED + 1
    assert len({place for place in task.places if place.document}) == 2 * TRIED
    asks = task.asks()
    first = next(asks)
    gap = asks.send(Finding(first.place, first.question, (), "No."))
    assert (first.shape, gap.shape, gap.place) == (QUESTION, OPEN, first.place)
    assert gap.question == GAP.format("In the year 1701 Captain")
    alone = asks.send(Finding(gap.place, gap.question, (), "It was Brandt."))
    assert (alone.shape, alone.question) == (ALONE, gap.question)
    opened = Finding(gap.place, gap.question, (), "Brandt")
    tried = [Finding(alone.place, gap.question, (), said) for said in ("", "Captain Brandt")]
    [card] = task.told([opened, *tried])["cards"]
    assert (card["answer"], card["right"]) == ("Brandt", {"alone": False, "found": True})
    asks = task.asks()
    first = next(asks)
    asks.send(Finding(first.place, first.question, (), "No."))
    assert asks.send(Finding(gap.place, gap.question, (), "Robin")).shape == QUESTION, "not known with the passage open"
    asks = task.asks()
    first = next(asks)
    question = "How many barrels did Captain Brandt take along?"
    item = Item(question, False, None, first.place.document, 1, "", "", 0, 9)
    opened = asks.send(Finding(first.place, first.question, (item,), question))
    assert (opened.shape, opened.question) == (OPEN, question)
    echo = replace(item, answer="Captain Brandt")
    assert asks.send(Finding(opened.place, question, (echo,), "")).shape == QUESTION, "the question says that itself"


def test_a_question_is_asked_once_though_passages_of_a_short_text_share_a_sentence(
    service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "lease.txt"
    kept = "The club keeps the {} clear of weed. "
    kept = "".join(kept.format(each) for each in ("slip", "quay", "steps", "path", "yard", "wall"))
    path.write_text(f"{kept}The rent of the boathouse is 420 pounds a month. {kept}", encoding="utf-8")
    asks = self_test(service, read_through(service, add(service, path)), 10).asks()
    ask, asked = next(asks), list[Ask]()
    with suppress(StopIteration):
        while True:
            asked.append(ask)
            ask = asks.send(Finding(ask.place, ask.question, (), "420"))
    shapes = [each.shape for each in asked]
    assert shapes.count(QUESTION) > 1, "several passages have the sentence"
    assert [each.question for each in asked if each.shape == OPEN] == [GAP.format("The rent of the boathouse is")]


def test_a_sentence_is_gone_on_with_by_a_word_whose_stem_it_does_not_have(service: Service, tmp_path: Path) -> None:
    """Whatever was said was right where the answer had no term of its own."""
    path = tmp_path / "Vertrag.txt"
    path.write_text(
        "Wer die Kündigung nicht rechtzeitig schreibt, der versäumt die Kündigungsfrist und zahlt bis Oktober."
    )
    [document] = add(service, path)
    found = _gap(service.document_cache, Place("", document=document, start=0, end=len(path.read_text())))
    assert found is not None
    question, item = found
    assert item.answer == "schreibt"
    assert not is_right(question, item.answer, "Das sage ich nicht.")


def test_an_answer_is_right_with_most_of_what_the_question_does_not_say() -> None:
    question = "How many barrels did Captain Brandt take along?"
    assert is_right(question, "101 barrels of salted herring", "He took 101 barrels of salted herring.")
    assert not is_right(question, "101 barrels", "Captain Brandt took barrels along.")
    assert not is_right(question, "101 barrels", "The text does not say whether it was 101.")


def test_what_cannot_be_tested_is_refused(service: Service, context: ContextRow) -> None:
    check_testable(context, 10)
    for wrong, error, words in (
        ((context, 0), UsageError, "1 to 200"),
        ((replace(context, model="pocket"), 10), UsageError, "makes no questions"),
        ((replace(context, status="paused"), 10), AppError, "resume"),
    ):
        with pytest.raises(error, match=words):
            check_testable(*wrong)
