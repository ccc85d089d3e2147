"""A table over documents: one row for each, one question a column, each cell a short answer with its place."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.asking.answers import Place
from app.asking.sweep import VALUE, Finding, Task, every
from app.asking.turns import checked_question
from app.asking.whole_list import key_of
from app.errors import UsageError
from app.language import t
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
        raise UsageError(
            'There are no columns: write what to ask with semicolons between, as in "author; sample size".'
        )
    if twice := next((each.heading for each in found if [one.heading for one in found].count(each.heading) > 1), ""):
        raise UsageError(f'Two columns are called {twice!r}: give one another heading, as in "heading: question".')
    return found


def table(rows: Sequence[Row], columns: Sequence[Column]) -> Task:
    """Return the sweep that fills a table. It is told as columns and rows with their cells, as far as they are there;
    and `joined`, with the different answers of each column, the titles that have them, and those that have nothing.

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
            "joined": [_joined(rows, findings[number::width]) for number in range(width)],
        }

    return every([each.question for each in columns], [row.place for row in rows], VALUE, told)


def _joined(rows: Sequence[Row], findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the answers to one question, equal ones as one, with the titles of their documents."""
    answers, nothing = dict[str, dict[str, Any]](), list[str]()
    for row, found in zip(rows, findings, strict=False):
        if found.items:
            answer = found.items[0].answer
            answers.setdefault(key_of(answer), {"answer": answer, "titles": []})["titles"].append(row.title)
        else:
            nothing.append(row.title)
    return {"answers": [*answers.values()], "nothing": nothing}


def in_words(joined: dict[str, Any]) -> str:
    """Return the answers to one question as a sentence: "Maren Hollis (The Keeper); not found in The Fox"."""
    said = [f"{each['answer']} ({', '.join(each['titles'])})" for each in joined["answers"]]
    nothing = [t("not found in {titles}", titles=", ".join(joined["nothing"]))] if joined["nothing"] else []
    return "; ".join([*said, *nothing])


def _cell(found: Finding) -> dict[str, Any]:
    return {"found": bool(found.items), **(asdict(found.items[0]) if found.items else {}), "said": found.said}
