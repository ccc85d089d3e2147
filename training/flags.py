"""Trainings on the command line: options made from a dataclass of settings, and a line of progress now and then."""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine import EngineError

Settings = TypeVar("Settings")

EVERY = 20  # steps


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
    """A parser whose namespace holds exactly the fields of `settings`, a dataclass in which each has a default."""
    said = [inspect.cleandoc(each.__doc__ or "") for each in settings.__mro__ if is_dataclass(each)]
    parser = argparse.ArgumentParser(
        prog=prog, description="\n\n".join(said), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for field in fields(settings):
        flag, default = "--" + field.name.replace("_", "-"), field.default
        assert default is not MISSING, f"{field.name} has no default"
        if isinstance(default, bool):
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=default, help="default: %(default)s"
            )
        else:
            kind = Path if default is None or isinstance(default, Path) else type(default)
            parser.add_argument(flag, type=kind, default=default, help="default: %(default)s")
    return parser
