"""Command-line options that several benchmarks share."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.haystack import DATA
from engine import Method, Model, SettingsError, load_model, make_method
from training.flags import require_writable, sentences
from training.token_count import token_count

SHORTEST = 256
"""Tokens that any kind of text needs for what is asked about it."""

POCKET = Path(__file__).resolve().parent.parent / "assets" / "pocket"


def parser(description: str, prog: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks.

    prog: name of the command, or None. Commands can quantise the model; the others compare it with plain weights of
    another package.
    """
    options = argparse.ArgumentParser(prog=prog, description=description)
    options.add_argument("--model", default="pocket", help="pocket, a folder or a hub id (default: pocket)")
    if prog is None:
        options.set_defaults(quantize="none")
    else:
        options.add_argument("--quantize", default="none", help="its weights: none, 8bit or nf4 (default: none)")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    options.add_argument("--seed", type=int, default=0, help="fixes texts and whatever is drawn (default: 0)")
    options.add_argument("--threads", type=count, help="CPU threads (default: all)")
    options.add_argument("--data", type=Path, default=DATA, help="folder with books/ for prose (default: %(default)s)")
    options.add_argument("--out", type=file, help="also write the result to this file, as JSON")
    options.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return options


def run(main: Callable[[], int]) -> None:
    """Run a benchmark as a program: an error it foresees becomes one sentence and status 1."""
    with sentences(Path(sys.argv[0]).name):
        sys.exit(main())


def file(text: str) -> Path:
    """Parse the path of a file to write."""
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    target_folder(str(Path(text).parent))
    return Path(text)


def target_folder(text: str) -> Path:
    """Parse the path of a folder to write into, which need not exist yet."""
    try:
        require_writable(Path(text), "name another place")
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error).removesuffix(".")) from error
    return Path(text)


def size(text: str) -> int:
    """Parse a number of tokens, as `token_count` does."""
    try:
        return token_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def sizes(text: str) -> list[int]:
    """Parse numbers of tokens, separated by commas."""
    return [size(part) for part in text.split(",")]


def length(text: str) -> int:
    """Parse a length of a text, which must leave room for a question."""
    if (tokens := size(text)) < SHORTEST:
        raise argparse.ArgumentTypeError(f"a text to ask about has {SHORTEST} tokens or more, not {text}")
    return tokens


def lengths(text: str) -> list[int]:
    """Parse lengths of texts, separated by commas."""
    return [length(part) for part in text.split(",")]


def count(text: str) -> int:
    """Parse a count of one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, not {text!r}")
    return int(text)


def depths(text: str) -> list[float]:
    """Parse depths in a text, 0 for its beginning and 1 for its end, separated by commas."""
    found = [float(part) for part in text.split(",")]  # argparse reports a ValueError with the value given
    if not all(0 <= depth <= 1 for depth in found):
        raise argparse.ArgumentTypeError(f"depths lie between 0 and 1, as 0.1,0.5,0.9 do, not {text!r}")
    return found


def words(text: str) -> list[str]:
    """Parse words separated by commas."""
    return text.split(",")


def model_source(options: argparse.Namespace) -> str:
    """Return the folder or hub id that --model names."""
    return str(POCKET if options.model == "pocket" else options.model)


def open_model(options: argparse.Namespace) -> Model:
    """Load the model that --model, --quantize, --device and --threads select."""
    if options.threads:
        torch.set_num_threads(options.threads)
    return load_model(model_source(options), options.device, quantize=options.quantize)


SEPARATED = "separated by commas, settings after colons, as in locret:pooling=1"
"""How methods are named, in a help."""

VARIANTS = {
    "infinipot-cap": "infinipot:novelty_share=0",
    "infinipot-nuc": "infinipot:novelty_share=1",
}


def parts(name: str) -> list[str]:
    """Return the name of a method and its settings, each as name=value."""
    return re.split(r":(?=\w+=)", VARIANTS.get(name, name))


def variant(name: str, budget: int | None) -> Method:
    """Return a method by name with settings after colons, as in locret:pooling=1:share=heads; a budget there wins.

    Colons inside a value are kept: infinitehip:stages=32:16:1024:8 32:4:256:4. infinipot-cap and infinipot-nuc are
    InfiniPot with only one of its two scores.
    """
    method, *given = parts(name)
    usual: dict[str, Any] = {"budget": None if method == "full" else budget}
    return make_method(method, **usual | {key: value for key, _, value in (one.partition("=") for one in given)})


def check_methods(options: argparse.ArgumentParser, names: list[str], budgets: list[int]) -> None:
    """Exit with wrong usage if one of these methods cannot be made, before any work."""
    try:
        for name in names:
            for budget in budgets:
                variant(name, budget)
    except SettingsError as error:
        options.error(str(error))
