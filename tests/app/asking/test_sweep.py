"""Sweeps: each place is asked alone and once; tables over documents."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.asking.answers import Checked
from app.asking.document_table import Column, Row, fill, table_csv, table_json, table_markdown
from app.asking.sweep import KIND, VALUE, Finding, Item, Place, sweep
from app.reading.readings import Stopped
from app.service import Service
from tests.app.helpers import add, book_text, read_through

QUESTIONS = ["Who was the keeper?", "Who built it?"]
SHORT = replace(VALUE, options=replace(VALUE.options, max_tokens=3))
WHERE: dict[str, Any] = {"document": "d-222222", "page": 2, "start": 10, "end": 40}


def source(quote: str, place: str) -> dict[str, Any]:
    return {**WHERE, "quote": quote, "place": place, "weight": 0.5, "paragraph": None}


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

    stopped = sweep(service, QUESTIONS, places, SHORT, stopping)
    first = [next(stopped) for _ in range(3)]
    with pytest.raises(Stopped):
        next(stopped)
    assert [(each.place, each.question) for each in first] == [
        *((places[0], question) for question in QUESTIONS),
        (places[1], QUESTIONS[0]),
    ]
    whole = list(sweep(service, QUESTIONS, places, SHORT))
    assert whole[:3] == first
    assert [kept(service, place) for place in places] == [QUESTIONS, QUESTIONS], "nothing was asked twice"
    assert [each.place for each in sweep(service, QUESTIONS[:1], places[:1], SHORT, anew=True)] == places[:1]
    assert kept(service, places[0]) == [*QUESTIONS, QUESTIONS[0]]
    other = replace(SHORT, name="other")
    list(sweep(service, QUESTIONS[:1], [Place(places[0].context, "1/1-2")], other))
    assert len(kept(service, places[0])) == 4, "other pages, and another form of answers, are asked"
    assert service.store.sessions.all() == []
    service.store.contexts.delete(places[0].context)
    assert kept(service, places[0]) == []


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
def test_a_value_stands_in_its_place(answer: str, measured: dict[str, Any], place: str | None, doubtful: bool) -> None:
    sources = [source("The lamp was lit.", "page 2"), source("Its keeper was Maren Hollis.", "page 3")]
    items = VALUE.items(Checked(answer, "", sources, measured))
    assert [(each.label, each.doubtful) for each in items] == ([(place, doubtful)] if place else [])
    assert VALUE.items(Checked(answer, "", [], measured)) == [], "without a place there is no value"


def test_a_table_says_the_place_of_each_value() -> None:
    place, columns = Place("c-222222"), [Column("author", "Who?"), Column("n|m", "How many?")]
    item = Item("=1|2", True, 0.01, label="page 2", quote="So =1|2.", **WHERE)
    cells = Finding(place, "Who?", (item,), "=1|2"), Finding(place, "How many?", (), "12")
    rows = [Row("d-222222", "Kim", place, cells)]
    assert table_markdown(rows, columns) == (
        "| document | author | n\\|m |\n| --- | --- | --- |\n| Kim | =1\\|2 ? (page 2) | not found |\n"
    )
    [line] = csv.DictReader(io.StringIO(table_csv(rows, columns)))
    assert line["author"] == "'=1|2", "a spreadsheet would compute it"
    assert (line["author, place"], line["author, doubtful"]) == ("page 2", "?")
    assert (line["n|m"], line["n|m, place"]) == ("not found", "")
    told = table_json(rows, columns)["rows"][0]["cells"]
    assert [(each["found"], each["said"]) for each in told] == [(True, "=1|2"), (False, "12")]
    assert (told[0]["page"], told[0]["quote"]) == (2, "So =1|2.")


def test_a_table_has_a_cell_for_each_document_and_column(service: Service, places: list[Place]) -> None:
    rows, counted = [Row("d", place.context, place) for place in places], list[int]()
    filled = fill(service, rows, [Column(each, each) for each in QUESTIONS], counted.append)
    assert [[(cell.place, cell.question) for cell in row.cells] for row in filled] == [
        [(place, question) for question in QUESTIONS] for place in places
    ]
    assert counted == [1, 2, 3, 4]
