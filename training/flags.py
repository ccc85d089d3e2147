"""Trainings on the command line: options made from a dataclass of settings, and progress lines."""

import argparse
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine import EngineError, SettingsError

Settings = TypeVar("Settings")

EVERY = 20  # steps
METAVARS = {int: "N", float: "X", Path: "PATH"}


class Progress(Protocol):
    """Progress of a training after a step."""

    @property
    def step(self) -> int:
        """Steps made so far."""

    def in_words(self) -> str:
        """Return a line for people."""


def show(line: Progress) -> None:
    """Print every 20th step as a line on stderr."""
    if line.step % EVERY == 0:
        with suppress(OSError):  # a closed terminal must not end a training before its checkpoint
            print(line.in_words(), file=sys.stderr, flush=True)


def train_from_flags(
    settings: type[Settings], train: Callable[[Settings, Callable[[Progress], None]], Path], prog: str
) -> None:
    """Train with the settings on the command line, and print the path of the weights.

    Raises:
        SystemExit: with a message; status 2 for wrong usage, 1 for a training that is not possible.
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
    """End the program with a one-sentence message and status 1 instead of a traceback.

    Raises:
        SystemExit: with the message.
    """
    try:
        yield
    except (EngineError, OSError) as error:
        sys.exit(f"{prog}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{prog}: Stopped.")


def require_writable(folder: Path, advice: str) -> None:
    """Check that files can be written into a folder, which need not exist yet. advice: the next step.

    Raises:
        SettingsError: nothing can be written there.
    """
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise SettingsError(f"Nothing can be written to {folder} ({error.strerror}): {advice}.") from error


def settings_parser(settings: type[Any], prog: str) -> argparse.ArgumentParser:
    """Return a parser whose namespace holds exactly the fields of `settings`, a dataclass with defaults.

    Options are grouped by class; their help is the "Attributes" section of its docstring.
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
