"""Whole books, measured: the same question from plain text search and as the app answers it."""

from __future__ import annotations

import pytest

from benchmarks.pages.answers import whole_books as page
from benchmarks.suite.answers import Material, Task
from benchmarks.suite.whole_books import Book, row_of
from engine import Model
from engine.loops import answering
from tests.engine.conftest import model as model  # the tiny model, as a fixture

PLANTED = "The captain's parrot is called Odin. "
TEXT = "The ferry left at nine. Nobody waved. " * 40 + PLANTED + "It rained all day. " * 60


def test_a_line_says_whether_the_place_was_read_and_the_answer_is_right(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "SHORT", 100)
    at, encoding = TEXT.index(PLANTED), model.encode(TEXT)
    found = Task("reader", "What is the parrot called?", ("Odin",), True, [[(at, at + len(PLANTED))]])
    elsewhere = Task("reader", "What is the parrot called?", ("Odin",), True, [[(len(TEXT) - 30, len(TEXT))]])
    book = Book(model, Material("ferry", "tale", TEXT, encoding.ids, encoding.starts, [found, elsewhere]))
    lines = [book.line(each) for each in (found, elsewhere)]
    assert [line["plain"]["holds"] for line in lines] == [True, False]
    assert lines[0]["ours"]["holds"]
    for line, right in zip(lines, ((0.0, 1.0), (1.0, 1.0)), strict=True):
        line["plain"]["right"], line["ours"]["right"] = right
    row = row_of(lines)
    assert (row["n"], row["beside"], row["plain"]["right"], row["ours"]["right"]) == (2, [1, 0], 1.0, 2.0)
    (_, _, table) = page([{**row, "model": "tiny", "machine": "a machine"}])
    assert "| tiny | 2 | " in table
    assert "1 / 0" in table
