"""The parser of the command line: suggestions for mistyped words, and examples below the help."""

import argparse
import difflib
from typing import Any, NoReturn

EXAMPLES = "examples:\n"
MORE = "Options for all commands, such as --home and --model, are in `stockpot --help`."


class Formatter(argparse.HelpFormatter):
    """A formatter that wraps text as argparse does, but keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith(EXAMPLES):
            return super()._fill_text(text, width, indent)
        *examples, more = text.splitlines()
        return "\n".join([*examples, "", super()._fill_text(more, width, indent)])


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistyped word with the nearest one."""

    def __init__(self, **options: Any) -> None:
        """Take the options of ArgumentParser."""
        super().__init__(**{"formatter_class": Formatter, **options})

    def error(self, message: str) -> NoReturn:
        """Print the message and how to get help, and exit with 2."""
        self.exit(2, f"{self.prog}: {message}. `{self.prog} --help` shows how it is used.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(each) for each in action.choices or ()]
        if not choices or value in (action.choices or ()):
            return
        near = difflib.get_close_matches(str(value), choices, n=1)
        meant = f"did you mean {near[0]}?" if near else f"choose from {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r} ({meant})")


def examples(*commands: str) -> str:
    """Return the text below a command's help: examples, each on its own line."""
    return EXAMPLES + "\n".join(f"  stockpot {each}" for each in commands) + f"\n{MORE}"
