"""A table over documents: one row for each, one question a column, each cell a short answer with its place."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.asking.sweep import VALUE, Finding, Place, sweep
from app.service import Service

NOT_FOUND = "not found"
_NUMBER = re.compile(r"[+-]?\d[\d.,]*\s?%?")


@dataclass(frozen=True)
class Column:
    """A question with its heading."""

    heading: str
    question: str


@dataclass(frozen=True)
class Row:
    """A document, the place to ask, and what it says to each column, as far as that was asked."""

    document: str
    title: str
    place: Place
    cells: tuple[Finding, ...] = ()


def fill(
    service: Service,
    rows: Sequence[Row],
    columns: Sequence[Column],
    on_cell: Callable[[int], None] = lambda cells: None,
    on_pass: Callable[[], None] = lambda: None,
    *,
    anew: bool = False,
) -> list[Row]:
    """Return the rows with all cells.

    Args:
        service: the home in use.
        rows: the documents.
        columns: the questions.
        on_cell: told after each cell how many are there.
        on_pass: see `sweep`.
        anew: see `sweep`.
    """
    questions, cells = [each.question for each in columns], list[Finding]()
    for found in sweep(service, questions, [row.place for row in rows], VALUE, on_pass, anew=anew):
        cells.append(found)
        on_cell(len(cells))
    width = len(columns)
    return [replace(row, cells=tuple(cells[number * width : (number + 1) * width])) for number, row in enumerate(rows)]


def table_json(rows: Sequence[Row], columns: Sequence[Column]) -> dict[str, Any]:
    """Return a table as plain data. said: the model's words, also where they were left out."""

    def cell(found: Finding) -> dict[str, Any]:
        return {"found": bool(found.items), **(asdict(found.items[0]) if found.items else {}), "said": found.said}

    return {
        "columns": [asdict(each) for each in columns],
        "rows": [
            {
                "document": row.document,
                "title": row.title,
                "context": row.place.context,
                "cells": [cell(each) for each in row.cells],
            }
            for row in rows
        ],
    }


def table_csv(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return a table as CSV. Each column has two more, with the place and with "?" for a doubtful value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    headings = [(each.heading, f"{each.heading}, place", f"{each.heading}, doubtful") for each in columns]
    writer.writerow(["document", "title", *(name for names in headings for name in names)])
    for row in rows:
        items = [found.items[0] if found.items else None for found in row.cells]
        told = [
            (_plain(each.answer), each.label, "?" * each.doubtful) if each else (NOT_FOUND, "", "") for each in items
        ]
        writer.writerow([row.document, _plain(row.title), *(part for parts in told for part in parts)])
    return text.getvalue()


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not _NUMBER.fullmatch(text) else text


def table_markdown(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return a table as Markdown: each value with its place, and a question mark behind doubtful ones."""

    def cell(found: Finding) -> str:
        if not found.items:
            return NOT_FOUND
        item = found.items[0]
        return f"{item.answer}{' ?' * item.doubtful} ({item.label})"

    lines = [["document", *(each.heading for each in columns)], ["---"] * (len(columns) + 1)]
    lines += [[row.title, *map(cell, row.cells)] for row in rows]
    return "\n".join(f"| {' | '.join(_in_cell(text) for text in line)} |" for line in lines) + "\n"


def _in_cell(text: str) -> str:
    """Return a text in one line, with its bars escaped."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
