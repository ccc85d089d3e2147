"""Helpers of all commands: open the home, print results, and show progress on standard error."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from app.formatting import printable, shorten

if TYPE_CHECKING:
    from app.service import Service
    from sessions import ContextRow

Arguments: TypeAlias = argparse.Namespace
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

BETWEEN = "  "
LEAST_CUT = 16
"""Cells of at most this many characters are never cut: ids, numbers and dates."""
LINE_SEC = 5.0
"""Seconds between two lines of progress if standard error is no terminal."""


@contextmanager
def open_service(arguments: Arguments) -> "Iterator[Service]":
    """Open the home that the global options name, and close it afterwards."""
    from app.machine.model_names import named_model
    from app.service import Service

    model = named_model(arguments.model, arguments.quantize, arguments.home)
    with closing(Service(arguments.home, model, arguments.device, arguments.seed)) as service:
        yield service


def chosen_model(arguments: Arguments) -> str | None:
    """Return the model that --model and --quantize name, by its whole name; None without them.

    Raises:
        AppError: a short name means no model, or several.
    """
    from app.machine.model_names import canonical_model, named_model

    name = named_model(arguments.model, arguments.quantize, arguments.home)
    return canonical_model(name, arguments.home) if name else None


def note_other_model(arguments: Arguments, context: "ContextRow") -> None:
    """Say that --model and --quantize do not change the model of an existing context."""
    from app.machine.model_names import canonical_model, named_model

    wanted = named_model(arguments.model or context.model, arguments.quantize)
    if wanted and canonical_model(wanted) != context.model:
        note(
            f"note: context {context.id} stays with its model, {context.model}; --model and --quantize are for new "
            "readings."
        )


def add_context(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument CONTEXT to a command. nargs: see argparse."""
    parser.add_argument("context", metavar="CONTEXT", nargs=nargs, help="id of a context, a prefix of it, or its title")


def add_json_flag(parser: argparse.ArgumentParser, default: object = False) -> None:
    """Add the flag --json to a command. default: argparse.SUPPRESS below a command that has the flag too."""
    parser.add_argument("--json", action="store_true", default=default, help="print one JSON value instead of text")


def print_json(value: Any) -> None:
    """Print the result as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def note(text: str) -> None:
    """Print a message on standard error; it is not part of the result."""
    print(printable(text), file=sys.stderr, flush=True)


def note_warnings(warnings: list[str]) -> None:
    """Print warnings about a reading or an answer on standard error."""
    for warning in warnings:
        note(f"warning: {warning}")


def source_line(source: Mapping[str, Any], before: Mapping[str, str]) -> str:
    """Return the line of a place that an answer attended to. before: words before a place, by document."""
    place = before.get(source["document"], "") + source["place"]
    return f"  {place} ({source['weight']:.0%} of the attention): {' '.join(source['quote'].split())}"


def columns_of(stream: TextIO) -> int | None:
    """Return the number of columns of a stream's terminal; None if it is no terminal."""
    if not stream.isatty():
        return None
    return os.get_terminal_size(stream.fileno()).columns or 80  # 0 if unknown


def table(rows: list[dict[str, Any]], columns: dict[str, str], width: int | None = None) -> str:
    """Return rows as aligned text; long cells are cut if that makes the rows fit.

    Args:
        rows: the rows.
        columns: key -> heading; the last column is not padded.
        width: columns of the terminal; None cuts nothing.
    """
    if not rows:
        return ""
    cells = [[*columns.values()]] + [
        ["" if row.get(key) is None else str(row.get(key)) for key in columns] for row in rows
    ]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    too_wide = 0 if width is None else sum(widths) + len(BETWEEN) * (len(widths) - 1) - width
    for index in sorted(range(len(widths)), key=lambda index: -widths[index]):
        cut = max(0, min(too_wide, widths[index] - LEAST_CUT))
        widths[index], too_wide = widths[index] - cut, too_wide - cut
    return "\n".join(
        BETWEEN.join(shorten(cell, most).ljust(most) for cell, most in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


class ProgressLine:
    """Progress on standard error: one line that is overwritten in a terminal, a line every few seconds elsewhere.

    As a context manager it ends the line when it is left.
    """

    def __init__(self) -> None:
        """Start without a line."""
        self._terminal = sys.stderr.isatty()
        self._shown_at = 0.0
        self._width = 0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the line, if there is one, before something else is printed."""
        if self._width:
            self._width = 0
            with suppress(OSError):  # the terminal was closed
                print(file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Show a line of progress, if anybody can see it."""
        with suppress(OSError):
            self._show(text)

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if now - self._shown_at < (0.1 if self._terminal else LINE_SEC):
            return
        self._shown_at = now
        if not self._terminal:
            note(text)
            return
        columns = columns_of(sys.stderr) or 80
        text = shorten(" ".join(printable(text).split()), columns - 1)  # a wrapped line could not be overwritten
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)
