"""Trainings on the command line: options made from a dataclass of settings, and a line of progress now and then."""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine import EngineError

Settings = TypeVar("Settings")

EVERY = 20  # steps
METAVARS = {int: "N", float: "X", Path: "PATH"}


class Progress(Protocol):
    """What a training says after a step."""

    @property
    def step(self) -> int:
        """How many steps have been made."""

    def in_words(self) -> str:
        """For people."""


def show(line: Progress) -> None:
    """Every 20th step as a line on stderr."""
    if line.step % EVERY == 0:
        with suppress(OSError):  # the terminal was closed, which must not end a training before its checkpoint
            print(line.in_words(), file=sys.stderr, flush=True)


def train_from_flags(
    settings: type[Settings], train: Callable[[Settings, Callable[[Progress], None]], Path], prog: str
) -> None:
    """Train with the settings that the command line gives, and print where the weights are.

    Raises:
        SystemExit: with a sentence, and 2 for wrong usage or 1 for what cannot be trained.
    """
    parser = settings_parser(settings, prog)
    arguments = parser.parse_args()
    try:
        chosen = settings(**vars(arguments))
    except ValueError as error:
        parser.error(str(error))
    with sentences(prog):
        print(train(chosen, show))


@contextmanager
def sentences(prog: str) -> Iterator[None]:
    """End a program with a sentence and status 1, and not with a traceback, where something cannot be done.

    Raises:
        SystemExit: with the sentence.
    """
    try:
        yield
    except (EngineError, OSError) as error:
        sys.exit(f"{prog}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{prog}: Stopped.")


def settings_parser(settings: type[Any], prog: str) -> argparse.ArgumentParser:
    """A parser whose namespace holds exactly the fields of `settings`, a dataclass in which each has a default.

    Options stand in the groups of the classes that document them, with what is said there under "Attributes".
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        epilog="Ctrl-C stops after the step in progress; the same command with --resume goes on from there.",
    )
    defaults = {field.name: field.default for field in fields(settings)}
    for each in filter(is_dataclass, settings.__mro__):
        said, _, attributes = inspect.cleandoc(each.__doc__ or "").partition("\n\nAttributes:\n")
        title, _, rest = said.partition(".")
        group = parser.add_argument_group(title[0].lower() + title[1:], rest.strip() or None)
        for name, said in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE):
            _add_option(group, name, defaults[name], re.sub(r"`(\w+)`", lambda found: _flag(found[1]), said))
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_option(group: Any, name: str, default: Any, said: str) -> None:
    said = said.rstrip(".").replace("%", "%%")
    if default is False:
        group.add_argument(_flag(name), action="store_true", help=said)
        return
    kind = Path if default is None or isinstance(default, Path) else type(default)
    said += "" if default is None else " (default: %(default)s)"
    group.add_argument(_flag(name), type=kind, default=default, metavar=METAVARS.get(kind), help=said)
