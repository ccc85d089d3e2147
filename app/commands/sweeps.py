"""Sweeps, which can be stopped: `stockpot ask --each` and `--whole`, `recap`, `compare` and `quiz`."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.asking.answer_options import AnswerOptions
from app.commands.answer_flags import options_of
from app.commands.common import (
    Arguments,
    Commands,
    ProgressLine,
    add_context,
    add_json_flag,
    note,
    open_service,
    print_json,
)
from app.commands.parser import examples
from app.errors import UsageError
from app.formatting import plural, printable, time_in_words

if TYPE_CHECKING:
    from app.asking.sweep import Task
    from app.service import Service

ALONE = ("session", "pages", "documents", "up_to")
"""Arguments of one answer that a sweep has no use for."""


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `recap`, `compare` and `quiz` to the parser."""
    recap = commands.add_parser(
        "recap",
        parents=[shared],
        help="sum up the chapters, up to a page",
        description="Print two sentences on each chapter, as its beginning and its end say it. Instead of a sentence "
        "whose names or numbers do not stand there, the chapter is quoted. Ctrl-C stops it; the same command goes on "
        "from there.",
        epilog=examples("recap 'Kim' --up-to 118"),
    )
    add_context(recap)
    recap.add_argument("--up-to", metavar="PAGE", default="", help="the last page that is known, as for `ask`")
    recap.set_defaults(run=run_recap, anew=False)
    compare = commands.add_parser(
        "compare",
        parents=[shared],
        help="print where two documents differ",
        description="Print the sentences of two documents that differ in some words, and those that one has alone, "
        "with their places. A number or a negation that differs is named. Where the other document has similar words, "
        "the model looks there for a sentence that says the same; what it does not find gets a question mark. A "
        "contradiction in other words is not found. Ctrl-C stops it; the same command goes on from there.",
        epilog=examples("compare 'Lease 2023' 'Lease 2024'", "compare d-dee6mb d-k2x4qa --format csv"),
    )
    for name in ("FIRST", "SECOND"):
        compare.add_argument(name.lower(), metavar=name, help="id of a document that was read, a prefix, or its title")
    compare.set_defaults(run=run_compare)
    _add_format_flags(compare)
    quiz = commands.add_parser(
        "quiz",
        parents=[shared],
        help="test what is known of a text, with questions made of it",
        description="Print questions that the model makes of passages all over a text, their answers with places, and "
        "the answers that it gives from memory alone and with the passages that are found for them. A question whose "
        "answer does not stand in its passage is left out. --format tsv prints cards for Anki and others. Ctrl-C stops "
        "it; the same command goes on from there.",
        epilog=examples("quiz 'Kim'", "quiz 'Kim' --cards 40 --format tsv > kim.tsv"),
    )
    add_context(quiz)
    quiz.add_argument("--cards", type=int, default=10, metavar="N", help="questions to make, 1 to 200 (default: 10)")
    quiz.set_defaults(run=run_quiz)
    _add_format_flags(quiz, "md", "csv", "tsv")
    for each in (recap, compare, quiz):
        add_json_flag(each)


def _add_format_flags(parser: argparse.ArgumentParser, *forms: str) -> None:
    parser.add_argument(
        "--format", choices=forms or ("md", "csv"), help="how to print it (default: md; --json has more)"
    )
    parser.add_argument("--anew", action="store_true", help="ask again what an earlier one has asked")


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
    _add_format_flags(parser)


def run_each(arguments: Arguments) -> int:
    """Print a table; return 1 if it was stopped."""
    from app.asking.document_table import columns_of, in_words, rows_of, table

    if arguments.each is None or arguments.columns is None:
        raise UsageError('A table needs both: --each with documents, or alone for all, and --columns "author; date".')
    _require_plain("--each", arguments, *ALONE, "context", "question", "whole")
    columns = columns_of(arguments.columns.split(";"))
    told = _swept(arguments, "cell", lambda service: table(rows_of(service, arguments.each), columns))
    for column, joined in zip(columns, told["joined"] if told else (), strict=False):
        note(f"{column.heading}: {in_words(joined)}.")
    return int(told is None)


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


def run_recap(arguments: Arguments) -> int:
    """Print a recap; return 1 if it was stopped."""
    from app.asking.recap import recap
    from app.listing import find_context

    def task(service: "Service") -> "Task":
        return recap(service, find_context(service, arguments.context), arguments.up_to)

    def show(told: dict[str, Any]) -> str:
        part = told["parts"][-1]
        return f"{part['title']}\n{' '.join(part['sentences'])}\n\n" if part["sentences"] else ""

    told = _swept(arguments, "chapter", task, show)
    if told and arguments.json:
        print_json(told["parts"])
    return int(told is None)


def run_compare(arguments: Arguments) -> int:
    """Print how two documents differ; return 1 if it was stopped."""
    from app.asking.comparison import comparison, two

    names = [arguments.first, arguments.second]
    told = _swept(arguments, "passage", lambda service: comparison(service, two(service, names)))
    if told is None:
        return 1
    alone = sum(each["kind"] == "alone" for each in told["rows"])
    note(f"{plural(len(told['rows']) - alone, 'sentence')} in another form, {plural(alone, 'passage')} in one alone.")
    return 0


def run_quiz(arguments: Arguments) -> int:
    """Print a self-test; return 1 if it was stopped."""
    from app.asking.self_test import check_testable, in_words, self_test
    from app.listing import find_context

    def task(service: "Service") -> "Task":
        context = find_context(service, arguments.context)
        check_testable(context, arguments.cards)
        return self_test(service, context, arguments.cards)

    told = _swept(arguments, "step", task)
    if told is None:
        return 1
    for each in (*told["chapters"], {"chapter": told["model"], **told["all"]}):
        note(f"{each['chapter'] or 'Text'}: of {plural(each['n'], 'question')} {in_words(each)}.")
    return 0


def _require_plain(flag: str, arguments: Arguments, *names: str) -> None:
    """Raise UsageError if options are given that a sweep has no use for."""
    usual = replace(options_of(arguments), stop=()) == AnswerOptions() and not arguments.stop
    if not usual or any(getattr(arguments, name) for name in names):
        raise UsageError(f"{flag} asks every place by itself for a short answer: leave out all else but --format.")


def _swept(
    arguments: Arguments,
    noun: str,
    make: "Callable[[Service], Task]",
    show: Callable[[dict[str, Any]], str] | None = None,
) -> dict[str, Any] | None:
    """Sweep, print the result and return it; None if it was stopped.

    Args:
        arguments: those of the command.
        noun: noun for a finding.
        make: returns the sweep.
        show: returns the text to print after each finding, instead of the result at the end.
    """
    from app.asking.sweep import Pace, sweep
    from app.asking.table_text import written
    from app.jobs.work import Stopped
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
                if show and not arguments.json and (text := show(task.told(findings))):
                    progress.end()
                    print(printable(text), end="", flush=True)
                progress.show(f"{len(findings):,} of {plural(task.total, noun)}{f'; {left} left' if left else ''}")
        except Stopped:
            progress.end()
            note("Stopped. What was answered is kept: the same command goes on from there.")
            return None
    told = task.told(findings)
    if show:
        return told
    if arguments.json:
        print_json(told)
    else:
        text = written(told, arguments.format or "md")
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    return told
