"""Sweeps: each place is asked alone and once; tables over documents."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.asking import document_table
from app.asking.answers import Checked, Place
from app.asking.document_table import Column, Row, in_words, table
from app.asking.sweep import KIND, VALUE, Ask, Asks, Finding, Item, Shape, Task, every, known, sweep
from app.asking.table_text import written
from app.jobs.work import Stopped
from app.service import Service
from tests.app.helpers import add, book_text, read_through

QUESTIONS = ["Who was the keeper?", "Who built it?"]
SHORT = replace(VALUE, options=replace(VALUE.options, max_tokens=3))
WHERE: dict[str, Any] = {"document": "d-222222", "page": 2, "start": 10, "end": 40}


def source(quote: str, place: str) -> dict[str, Any]:
    return {**WHERE, "quote": quote, "place": place, "weight": 0.5, "paragraph": None}


def task(questions: Sequence[str], places: Sequence[Place], shape: Shape = SHORT) -> Task:
    return every(questions, places, shape, lambda findings: {})


@pytest.fixture
def places(service: Service, tmp_path: Path) -> list[Place]:
    found = []
    for number in (4, 6):
        path = tmp_path / f"Book {number}.txt"
        path.write_text(book_text(number), encoding="utf-8")
        found.append(Place(read_through(service, add(service, path)).id))
    return found


def kept(service: Service, place: Place) -> list[str]:
    return [row.values["question"] for row in service.store.measurements.newest(KIND, place.context)]


def test_a_sweep_goes_on_where_it_was_stopped(service: Service, places: list[Place]) -> None:
    def stopping() -> None:
        if kept(service, places[1]):
            raise Stopped

    stopped = sweep(service, task(QUESTIONS, places), stopping)
    first = [next(stopped) for _ in range(3)]
    with pytest.raises(Stopped):
        next(stopped)
    assert [(each.place, each.question) for each in first] == [
        *((places[0], question) for question in QUESTIONS),
        (places[1], QUESTIONS[0]),
    ]
    whole = list(sweep(service, task(QUESTIONS, places)))
    assert whole[:3] == first
    assert [kept(service, place) for place in places] == [QUESTIONS, QUESTIONS], "nothing was asked twice"
    assert [each.place for each in sweep(service, task(QUESTIONS[:1], places[:1]), anew=True)] == places[:1]
    assert kept(service, places[0]) == [*QUESTIONS, QUESTIONS[0]]
    other = replace(SHORT, name="other")
    list(sweep(service, task(QUESTIONS[:1], [Place(places[0].context, "1/1-2")], other)))
    assert len(kept(service, places[0])) == 4, "other pages, and another form of answers, are asked"
    assert service.store.sessions.all() == []
    service.store.contexts.delete(places[0].context)
    assert kept(service, places[0]) == []


def test_what_is_asked_next_may_rest_on_what_was_found(service: Service, places: list[Place]) -> None:
    def asks() -> Asks:
        first = yield Ask(places[0], QUESTIONS[0], SHORT)
        yield Ask(places[1], f"Who is {first.said}?", SHORT)

    following = Task(places, 2, asks, lambda findings: {})
    stopped = sweep(service, following)
    said = next(stopped).said
    assert [each.question for each in known(service, following)] == QUESTIONS[:1]
    assert next(stopped).question == f"Who is {said}?"
    assert len(known(service, following)) == 2


@pytest.mark.parametrize(
    ("answer", "measured", "place", "doubtful"),
    [
        ("“Maren Hollis.”", {"found": True, "sure": 0.4}, "page 3", False),
        ("Maren Hollis", {"found": True, "sure": 0.03}, "page 3", True),
        ("Maren Hollis", {"found": False, "sure": 0.0}, "page 3", True),
        ("a keeper of some sort", {"found": True, "sure": 0.4}, "page 2", False),
        ("a keeper of some sort", {"found": False, "sure": 0.0}, None, False),
        ("Maren Hollis", {"found": True, "sure": 0.4, "unsupported": [{"start": 0, "end": 5}]}, None, False),
        ("Not found.", {"found": False, "sure": 0.4}, None, False),
        ("…", {"found": True}, None, False),
    ],
)
def test_a_value_stands_in_its_place(
    service: Service, answer: str, measured: dict[str, Any], place: str | None, doubtful: bool
) -> None:
    cache = service.document_cache
    sources = [source("The lamp was lit.", "page 2"), source("Its keeper was Maren Hollis.", "page 3")]
    items = VALUE.items(Checked(answer, "", sources, measured), cache)
    assert [(each.label, each.doubtful) for each in items] == ([(place, doubtful)] if place else [])
    assert VALUE.items(Checked(answer, "", [], measured), cache) == [], "without a place there is no value"


def test_a_table_says_the_place_of_each_value() -> None:
    place, columns = Place("c-222222"), [Column("author", "Who?"), Column("n|m", "How many?")]
    item = Item("=1|2", True, 0.01, label="page 2", quote="So =1|2.", **WHERE)
    cells = Finding(place, "Who?", (item,), "=1|2"), Finding(place, "How many?", (), "12")
    told = table([Row("d-222222", "Kim", place)], columns).told(cells)
    assert written(told, "md") == (
        "| document | author | n\\|m |\n| --- | --- | --- |\n| Kim | =1\\|2 ? (page 2) | not found |\n"
    )
    [line] = csv.DictReader(io.StringIO(written(told, "csv")))
    assert line["author"] == "'=1|2", "a spreadsheet would compute it"
    assert (line["author, place"], line["author, doubtful"]) == ("page 2", "?")
    assert (line["n|m"], line["n|m, place"]) == ("not found", "")
    [row] = told["rows"]
    assert [(each["found"], each["said"]) for each in row["cells"]] == [(True, "=1|2"), (False, "12")]
    assert told["joined"] == [
        {"answers": [{"answer": "=1|2", "titles": ["Kim"]}], "nothing": []},
        {"answers": [], "nothing": ["Kim"]},
    ]
    assert (row["cells"][0]["page"], row["cells"][0]["quote"]) == (2, "So =1|2.")


def test_the_answers_of_documents_are_joined_and_those_without_are_named() -> None:
    rows = [Row(f"d-{title}", title, Place(f"c-{title}")) for title in ("Kim", "Emma", "Ulysses", "Walden")]
    item = Item("twelve men", False, 0.4, label="page 2", quote="", **WHERE)
    found = [
        Finding(row.place, "How many?", (replace(item, answer=answer),) if answer else (), answer)
        for row, answer in zip(rows, ("twelve men", "", "12 men", "two men"), strict=True)
    ]
    [joined] = table(rows, [Column("n", "How many?")]).told(found)["joined"]
    assert in_words(joined) == "twelve men (Kim, Ulysses); two men (Walden); not found in Emma"
    [begun] = table(rows, [Column("n", "How many?")]).told(found[:1])["joined"]
    assert begun["nothing"] == [], "the others have not been asked yet"


def test_a_table_has_a_cell_for_each_document_and_column(
    service: Service, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_table, "VALUE", SHORT)
    rows = [Row(f"d{number}", place.context, place) for number, place in enumerate(places)]
    asked = table(rows, [Column(each, each) for each in QUESTIONS])
    findings = list(sweep(service, asked))
    assert len(findings) == asked.total == 4
    told = asked.told(findings)
    assert [[cell["said"] for cell in row["cells"]] for row in told["rows"]] == [
        [each.said for each in findings if each.place == place] for place in places
    ]
    assert [len(row["cells"]) for row in asked.told(findings[:3])["rows"]] == [2, 1]
