"""`stockpot ask --each`: a table of short answers, one row a document and one column a question."""

import argparse
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from app.asking.answer_options import AnswerOptions
from app.commands.answer_flags import options_of
from app.commands.common import Arguments, ProgressLine, note, open_service, print_json
from app.errors import UsageError
from app.formatting import plural, printable, time_in_words

if TYPE_CHECKING:
    from app.asking.document_table import Column, Row
    from app.service import Service

ALONE = ("context", "question", "session", "pages", "documents", "up_to")
"""Arguments of one question that a table has no use for."""


def add_table_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a table to the parser of `ask`."""
    parser.add_argument(
        "--each",
        metavar="DOC",
        nargs="*",
        help="ask each of these documents by itself: their ids, prefixes of them, or titles; without one, all that "
        "were read",
    )
    parser.add_argument(
        "--columns",
        metavar="TEXT",
        help='questions to each document, with semicolons between them: "author" asks "What is the author?", a whole '
        'question itself, and "n: How many took part?" is headed n',
    )
    parser.add_argument(
        "--format", choices=("md", "csv"), help="print the table as Markdown or CSV (default: md; --json has more)"
    )
    parser.add_argument(
        "--anew", action="store_true", help="ask each again, also for what is known from an earlier table"
    )


def run_each(arguments: Arguments) -> int:
    """Print a table; return 1 if it was stopped."""
    from app.asking.document_table import fill, table_csv, table_json, table_markdown
    from app.reading.readings import Stopped
    from engine.signals import asked_to_stop

    if arguments.each is None or arguments.columns is None:
        raise UsageError('A table needs both: --each with documents, or alone for all, and --columns "author; date".')
    usual = replace(options_of(arguments), stop=()) == AnswerOptions() and not arguments.stop
    if not usual or any(getattr(arguments, name) for name in ALONE):
        raise UsageError("--each asks every document by itself for a short answer: leave out all else but --format.")
    columns = _columns(arguments.columns)
    with open_service(arguments) as service, asked_to_stop() as asked, ProgressLine() as progress:
        rows = _rows(service, arguments.each)
        total, started = len(rows) * len(columns), time.monotonic()
        asking, answered = False, 0  # cells that are known from before take no time

        def on_cell(done: int) -> None:
            nonlocal asking, answered
            answered, asking = answered + asking, False
            left = (time.monotonic() - started) / max(1, answered) * (total - done)
            progress.show(f"{done:,} of {plural(total, 'cell')}; {time_in_words(left)} left")

        def on_pass() -> None:
            nonlocal asking
            asking = True
            if asked():
                raise Stopped

        try:
            rows = fill(service, rows, columns, on_cell, on_pass, anew=arguments.anew)
        except Stopped:
            progress.end()
            note("Stopped. What was answered is kept: the same command goes on from there.")
            return 1
    if arguments.json:
        print_json(table_json(rows, columns))
    else:
        text = (table_csv if arguments.format == "csv" else table_markdown)(rows, columns)
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    return 0


def _rows(service: "Service", names: list[str]) -> "list[Row]":
    """Return a row for each document, without cells: for those named, or for all that were read to their end."""
    from app.asking.document_table import Row
    from app.asking.sweep import Place
    from app.listing import find_document, read_documents, reading_of

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


def _columns(text: str) -> "list[Column]":
    """Return the columns that a text lists, with semicolons between them.

    "sample size" asks "What is the sample size?", "Who was asked?" itself, and "asked: Who was asked?" has a heading.

    Raises:
        UsageError: there is none, or two have the same heading.
    """
    from app.asking.document_table import Column
    from app.asking.turns import checked_question

    found = []
    for each in filter(None, (part.strip() for part in text.split(";"))):
        heading, colon, question = (part.strip() for part in each.partition(": "))
        if not colon:
            question = each if each.endswith(("?", "？", "؟")) else f"What is the {each}?"
        found.append(Column(heading, checked_question(question, f"The question of column {heading!r}")))
    if not found:
        raise UsageError('There are no columns: write them as in --columns "author; sample size".')
    if twice := next((each.heading for each in found if [one.heading for one in found].count(each.heading) > 1), ""):
        raise UsageError(f'Two columns are called {twice!r}: give one another heading, as in "heading: question".')
    return found
