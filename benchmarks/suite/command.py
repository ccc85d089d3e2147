"""The command line of the suite."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import options as shared
from benchmarks.haystack import held_out_prose
from benchmarks.report import machine, table
from benchmarks.suite.cells import OutOfTime, measure
from benchmarks.suite.store import Cell, Cells, signature
from benchmarks.suite.tables import FEW, rows_of, shown
from benchmarks.suite.texts import MOST_SETS, Text, Texts
from engine import METHODS, EngineError, Method, Model, SettingsError

READINGS = 5
LENGTH = 4096


def main(argv: list[str] | None = None) -> int:
    """Measure the cells that are not in the file yet; print a table of all, and one line of JSON."""
    parser = shared.parser(
        "Questions of many kinds about one long text: needles of several kinds, hops, lists, questions over stories "
        "and papers, and perplexity. An answer is right when it contains what is asked for. With --out every finished "
        "reading becomes a line of that file, and the same command goes on behind them.",
        "stockpot bench suite",
    )
    parser.add_argument("--methods", type=shared.words, default=["full"], help=f"{shared.SEPARATED} (default: full)")
    parser.add_argument(
        "--budgets", type=budgets, default=["1/4"], help="entries, or a share of the text: 1024,1/8 (default: 1/4)"
    )
    parser.add_argument("--tokens", type=shared.lengths, default=[LENGTH], help="lengths, 4K to 1M (default: 4K)")
    parser.add_argument(
        "--readings",
        type=shared.count,
        default=READINGS,
        help=f"texts a method and length, each with 1 to {MOST_SETS} sets of questions (default: {READINGS})",
    )
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on from there")
    chosen = parser.parse_args(argv)
    for name in chosen.methods:
        _check(parser, name)
    held_out_prose(chosen.data)  # fails at once if the books are missing
    model = shared.open_model(chosen)
    texts = Texts(model, chosen.data)
    for source in texts.missing():
        file = chosen.data / "qa" / source.file
        note(f"left out: {source.family}. {file} is not there: point --data at the folder of qa/.")
    run = Run(model, texts, chosen.out, deadline(chosen.minutes))
    cells = wanted(chosen.methods, chosen.budgets, chosen.tokens)
    if not run.all(cells, range(chosen.seed, chosen.seed + chosen.readings)):
        note("the time is over: the same command goes on from here.")
    publish(run.cells, run.left_out, chosen.json)
    return 0


Wanted: TypeAlias = tuple[str, str, int]
"""A method with settings, see `options.variant`; a budget, if those do not say one; a length."""


def wanted(methods: list[str], budgets: list[str], tokens: list[int]) -> Iterator[Wanted]:
    """Yield the cells to measure, by length, then method, then budget."""
    for length in tokens:
        for method in methods:
            for budget in budgets[:1] if method == "full" or own_budget(method) else budgets:
                yield method, budget, length


class Run:
    """Measures cells, or takes them from a file.

    Attributes:
        cells: requested cells that are done.
        left_out: cells that could not be measured, with the reason.
    """

    def __init__(self, model: Model, texts: Texts, out: Path | None, in_time: Callable[[], None]) -> None:
        """Use `out` as the file of cells; None keeps nothing."""
        self.model, self.texts, self.in_time = model, texts, in_time
        self.kept = Cells(out)
        self.cells: list[Cell] = []
        self.left_out: list[dict[str, Any]] = []

    def all(self, cells: Iterable[Wanted], seeds: range) -> bool:
        """Measure all cells in turn, with texts of these seeds. Returns False if the time ran out."""
        for name, budget, tokens in cells:
            try:
                method = made(name, budget, tokens)
                for seed in seeds:
                    self.cells.append(self._cell(method, tokens, seed))
            except OutOfTime:
                return False
            except EngineError as error:
                self.left_out.append({"method": name, "budget": budget, "tokens": tokens, "why": str(error)})
                note(f"left out: {name} at {tokens:,} tokens. {error}")
        return True

    def _cell(self, method: Method, tokens: int, seed: int) -> Cell:
        text = self.texts.make(tokens, seed)
        mark = signature(self.model, method, tokens, seed, text.digest())
        return self.kept.get(mark, lambda: self._measured(method, tokens, seed, text))

    def _measured(self, method: Method, tokens: int, seed: int, text: Text) -> Cell:
        self.in_time()
        settings = method.settings()
        cell: Cell = {
            "model": self.model.name,
            "weights": self.model.fingerprint[:12],
            "method": written(method),
            "settings": settings,
            "looks": settings.get("looks"),
            "tokens": tokens,
            "seed": seed,
            **measure(self.model, method, text, self.in_time),
            "machine": machine(),
        }
        seconds = cell["seconds"]
        note(
            f"{cell['method']} at {tokens:,} tokens, seed {seed}: read {seconds['read']} s, asked {seconds['asked']} s"
        )
        return cell


def made(name: str, budget: str, tokens: int) -> Method:
    """Return a method with its own budget, or else this one, which may be a share of the text.

    Raises:
        SettingsError: it cannot be made with this budget.
    """
    return shared.variant(name, own_budget(name) or entries(budget, tokens))


def own_budget(name: str) -> int | None:
    """Return the budget in a method's settings or preset; None if there is none."""
    method, *given = shared.parts(name)
    settings = dict(each.split("=", 1) for each in given)
    if "budget" in settings:
        return shared.size(settings["budget"])
    preset = METHODS[method].presets.get(settings.get("preset", ""), {}) if method in METHODS else {}
    return preset.get("budget")


def entries(budget: str, tokens: int) -> int:
    """Return a budget in entries; "1/4" is that share of a text of `tokens` tokens."""
    share, _, parts = budget.partition("/")
    return tokens * int(share) // int(parts) if parts else shared.size(share)


def written(method: Method) -> str:
    """Return a method as the command line names it, with the settings that differ from the defaults."""
    usual = type(method)().settings()
    own = [f"{key}={value}" for key, value in method.settings().items() if key == "budget" or value != usual.get(key)]
    return ":".join([method.name, *own]) if method.name != "full" else method.name


def budgets(text: str) -> list[str]:
    """Parse budgets separated by commas: entries, or shares such as 1/8."""
    given = text.split(",")
    for budget in given:
        share, _, parts = budget.partition("/")
        if parts and not (share.isdecimal() and parts.isdecimal() and 0 < int(share) <= int(parts)):
            raise argparse.ArgumentTypeError(f"a budget is a number of entries or a share such as 1/8, not {budget!r}")
        if not parts:
            shared.size(share)
    return given


def deadline(minutes: float | None) -> Callable[[], None]:
    """Return a function that raises OutOfTime after `minutes` minutes."""
    end = None if minutes is None else time.monotonic() + 60 * minutes

    def in_time() -> None:
        if end is not None and time.monotonic() >= end:
            raise OutOfTime

    return in_time


def publish(cells: list[Cell], left_out: list[dict[str, Any]], as_json: bool) -> None:
    """Print a table, unless only JSON was asked for, and one line of JSON."""
    rows = rows_of(cells)
    if not as_json:
        print(table(shown(rows)))
        print(f"In brackets: 95 % intervals. (few): fewer than {FEW} questions, so compare with care.")
    print(json.dumps({"benchmark": "suite", "rows": rows, "left_out": left_out}), flush=True)


def note(text: str) -> None:
    """Print a message that is not a result to stderr."""
    print(text, file=sys.stderr, flush=True)


def _check(parser: argparse.ArgumentParser, name: str) -> None:
    """Exit with wrong usage for an unknown method or setting; budgets are checked once their length is known."""
    try:
        shared.variant(name, 1 << 30)
    except SettingsError as error:
        parser.error(str(error))
