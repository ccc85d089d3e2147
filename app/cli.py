"""The command line: `stockpot COMMAND ...`.

Standard output gets only the result; progress and messages go to standard error. The exit status is 0 for success, 1
for an error and 2 for wrong usage. Each group of commands is a file in `commands/`. Heavy modules (torch, gradio) are
imported inside the command that needs them, so that `stockpot --help` is instant.
"""

import argparse
import importlib.metadata
import io
import logging
import os
import sys
from collections.abc import Sequence

from app.commands import (
    agents,
    asking,
    backup,
    bench,
    library,
    link,
    machine,
    models,
    notes,
    plan,
    reading,
    serve,
    sweeps,
    train,
)
from app.commands.parser import MORE, Parser
from app.errors import expected, phrase, wrong_usage
from app.formatting import printable
from app.machine.model_names import QUANTIZED
from training.checks import MOST_SEED

DESCRIPTION = "Read long documents once, talk with them for ever."
SPIN = "10000"
"""Turns that a thread of PyTorch waits for another one before it sleeps, some tenths of a millisecond; else 300,000.
While other programs use the cores, the wait takes the core from the very thread that is waited for.
"""
GROUPS = (serve, agents, reading, link, asking, sweeps, library, notes, backup, plan, models, machine, bench, train)


def seed(text: str) -> int:
    """Return a seed: a whole number that every generator accepts."""
    if not text.isdecimal() or int(text) > MOST_SEED:
        raise argparse.ArgumentTypeError(f"a whole number from 0 to {MOST_SEED:,} is needed, not {text!r}")
    return int(text)


def global_options(*, suppress: bool) -> argparse.ArgumentParser:
    """Return a parser with the options that every command takes, before or after its name.

    Args:
        suppress: leave absent options unset, so that a subcommand's parser keeps the values given before it, and leave
            the
            options out of its help.
    """

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    def described(text: str) -> str:
        return argparse.SUPPRESS if suppress else text

    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("global options")
    group.add_argument(
        "--home",
        metavar="DIR",
        default=default(None),
        help=described("where everything is kept (default: $STOCKPOT_HOME, else ~/.stockpot)"),
    )
    group.add_argument(
        "--model",
        metavar="NAME|PATH|HUB_ID",
        default=default(None),
        help=described(
            "model to read and answer with: smollm2, pocket, a path, a hub id, or a short name of a model that "
            "`stockpot models` lists, such as qwen3-8b (default: $STOCKPOT_MODEL, else "
            "smollm2, else pocket; for a context, the one that read it)"
        ),
    )
    group.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default=default("auto"),
        help=described("where the model runs (default: auto)"),
    )
    group.add_argument(
        "--quantize",
        choices=("none", *QUANTIZED),
        default=default(None),
        help=described(
            "keep the weights of --model in 8 or 4 bits: int4 on a GPU, or int8 on a CPU, where they make answers "
            "faster; 8bit or nf4 on any device (these need bitsandbytes); blocks keeps those of a GGUF file as they "
            "are, on a CPU (default: none; blocks for a GGUF file if a CPU computes in float32)"
        ),
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=seed,
        default=default(None),
        help=described(
            f"seed of everything random, 0 to {MOST_SEED} (default: another for each answer with a temperature; 0 for "
            "all else, but `train pocket` has its own)"
        ),
    )
    group.add_argument(
        "--verbose",
        action="store_true",
        default=default(False),
        help=described("log what happens to standard error, with tracebacks"),
    )
    return parser


def build_parser() -> argparse.ArgumentParser:
    """Return the whole parser, with the commands of every group."""
    parser = Parser(prog="stockpot", description=DESCRIPTION, parents=[global_options(suppress=False)])
    version = f"%(prog)s {importlib.metadata.version('stockpot')}"
    parser.add_argument("--version", action="version", version=version, help="show which version this is, and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    shared = global_options(suppress=True)
    for group in GROUPS:
        group.register(commands, shared)
    for command in commands.choices.values():
        command.epilog = command.epilog or MORE
    return parser


def _write_whatever_comes() -> None:
    """Print files and pipes in UTF-8; a terminal with another encoding shows "?" for other characters."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="replace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (0 success, 1 error, 2 wrong usage)."""
    _write_whatever_comes()
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN)  # read as PyTorch is imported
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        return int(arguments.run(arguments) or 0)
    except BrokenPipeError:
        # The reader of our output went away (`stockpot list ... | head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if arguments.verbose or not (expected(error) or isinstance(error, KeyboardInterrupt)):
            logging.getLogger(__name__).error("%s failed", arguments.command, exc_info=error)
        print(printable(f"stockpot: {phrase(error)}"), file=sys.stderr)
        return 2 if wrong_usage(error) else 1
