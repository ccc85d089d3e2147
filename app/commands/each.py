"""`stockpot ask --each` and `--whole`: tables of short answers, and complete lists, by a sweep that can be stopped."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.asking.answer_options import AnswerOptions
from app.commands.answer_flags import options_of
from app.commands.common import Arguments, ProgressLine, note, open_service, print_json
from app.errors import UsageError
from app.formatting import plural, printable, time_in_words

if TYPE_CHECKING:
    from app.asking.sweep import Task
    from app.service import Service

ALONE = ("session", "pages", "documents", "up_to")
"""Arguments of one answer that a sweep has no use for."""


def add_sweep_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of tables and lists to the parser of `ask`."""
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
        "--whole",
        action="store_true",
        help="search the whole text, place by place, for all that the question asks for: a complete list, counted",
    )
    parser.add_argument(
        "--format",
        choices=("md", "csv"),
        help="print the table or list as Markdown or CSV (default: md; --json has more)",
    )
    parser.add_argument(
        "--anew", action="store_true", help="ask each again, also for findings that an earlier table or list has"
    )


def run_each(arguments: Arguments) -> int:
    """Print a table; return 1 if it was stopped."""
    from app.asking.document_table import columns_of, rows_of, table

    if arguments.each is None or arguments.columns is None:
        raise UsageError('A table needs both: --each with documents, or alone for all, and --columns "author; date".')
    _require_plain("--each", arguments, *ALONE, "context", "question", "whole")
    columns = columns_of(arguments.columns.split(";"))
    return (
        1 if _swept(arguments, "cell", lambda service: table(rows_of(service, arguments.each), columns)) is None else 0
    )


def run_whole(arguments: Arguments) -> int:
    """Print a complete list; return 1 if it was stopped."""
    from app.asking.turns import checked_question
    from app.asking.whole_list import whole_list
    from app.listing import find_context

    _require_plain("--whole", arguments, *ALONE)
    question = checked_question(arguments.question)

    def task(service: "Service") -> "Task":
        return whole_list(service, find_context(service, arguments.context).id, question)

    told = _swept(arguments, "place", task)
    if told is None:
        return 1
    left_out = f" {told['dropped']:,} left out, because they do not stand there." if told["dropped"] else ""
    note(f"{told['count']:,} found in {plural(told['places'], 'place')} of the text.{left_out}")
    return 0


def _require_plain(flag: str, arguments: Arguments, *names: str) -> None:
    """Raise UsageError if options are given that a sweep has no use for."""
    usual = replace(options_of(arguments), stop=()) == AnswerOptions() and not arguments.stop
    if not usual or any(getattr(arguments, name) for name in names):
        raise UsageError(f"{flag} asks every place by itself for a short answer: leave out all else but --format.")


def _swept(arguments: Arguments, noun: str, make: "Callable[[Service], Task]") -> dict[str, Any] | None:
    """Sweep, print the result and return it; None if it was stopped. noun: for a finding."""
    from app.asking.sweep import Pace, sweep
    from app.asking.table_text import written
    from app.reading.readings import Stopped
    from engine.signals import asked_to_stop

    with open_service(arguments) as service, asked_to_stop() as asked, ProgressLine() as progress:
        task, pace, findings = make(service), Pace(), []

        def on_pass() -> None:
            pace.on_pass()
            if asked():
                raise Stopped

        try:
            for found in sweep(service, task, on_pass, anew=arguments.anew):
                findings.append(found)
                left = time_in_words(pace.left(len(findings), task.total))
                progress.show(f"{len(findings):,} of {plural(task.total, noun)}{f'; {left} left' if left else ''}")
        except Stopped:
            progress.end()
            note("Stopped. What was answered is kept: the same command goes on from there.")
            return None
    told = task.told(findings)
    if arguments.json:
        print_json(told)
    else:
        text = written(told, arguments.format or "md")
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    return told
