"""A table over documents: one row for each, one question a column, each cell a short answer with its place."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.asking.answers import Place
from app.asking.sweep import VALUE, Finding, Task
from app.asking.turns import checked_question
from app.errors import UsageError
from app.listing import find_document, read_documents, reading_of
from app.service import Service


@dataclass(frozen=True)
class Column:
    """A question with its heading."""

    heading: str
    question: str


@dataclass(frozen=True)
class Row:
    """A document, and the place to ask."""

    document: str
    title: str
    place: Place


def rows_of(service: Service, names: Sequence[str]) -> list[Row]:
    """Return a row for each document, named by id or title; without names, for all that were read to their end.

    Raises:
        UsageError: no document was read yet.
        AppError: one that is named was not, or is not there.
    """
    if names:
        documents = {row.id: row for row in (find_document(service, name) for name in names)}
    else:
        ready = read_documents(service)
        documents = {row.id: row for row in reversed(service.store.documents.all()) if row.id in ready}
        if not documents:
            raise UsageError("No document has been read yet: `stockpot ingest FILE` reads one.")
    found = []
    for row in documents.values():
        context, pages = reading_of(service, row.id)
        found.append(Row(row.id, row.title, Place(context.id, pages)))
    return found


def columns_of(texts: Sequence[str]) -> list[Column]:
    """Return the columns that texts stand for.

    "sample size" asks "What is the sample size?", "Who was asked?" itself, and "asked: Who was asked?" has a heading.

    Raises:
        UsageError: there is none, or two have the same heading.
    """
    found = []
    for each in filter(None, (text.strip() for text in texts)):
        heading, colon, question = (part.strip() for part in each.partition(": "))
        if not colon:
            question = each if each.endswith(("?", "？", "؟")) else f"What is the {each}?"
        found.append(Column(heading, checked_question(question, f"The question of column {heading!r}")))
    if not found:
        raise UsageError('There are no columns: write them as in --columns "author; sample size".')
    if twice := next((each.heading for each in found if [one.heading for one in found].count(each.heading) > 1), ""):
        raise UsageError(f'Two columns are called {twice!r}: give one another heading, as in "heading: question".')
    return found


def table(rows: Sequence[Row], columns: Sequence[Column]) -> Task:
    """Return the sweep that fills a table. It is told as columns and rows with their cells, as far as they are there.

    said: the model's words, also where they were left out.
    """

    def told(findings: Sequence[Finding]) -> dict[str, Any]:
        width = len(columns)
        return {
            "columns": [asdict(each) for each in columns],
            "rows": [
                {
                    "document": row.document,
                    "title": row.title,
                    "context": row.place.context,
                    "cells": [_cell(each) for each in findings[number * width : (number + 1) * width]],
                }
                for number, row in enumerate(rows)
            ],
        }

    return Task([each.question for each in columns], [row.place for row in rows], VALUE, told)


def _cell(found: Finding) -> dict[str, Any]:
    return {"found": bool(found.items), **(asdict(found.items[0]) if found.items else {}), "said": found.said}
