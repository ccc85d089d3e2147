"""One command for each trial; see the package's docstring."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path

import torch

import benchmarks.trust
from benchmarks.report import RESULTS, table, write

TRIALS = {
    "kills": 108,
    "contexts": 3000,
    "databases": 500,
    "documents": 500,
    "formats": 250,
    "people": 600,
    "files": 1,
    "restart": 1,
}
"""Trials and their usual number: of cases, or of seconds for `people`."""


def main() -> int:
    """Run one of the trials, or write the table of all."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.trust", description=benchmarks.trust.__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("trial", choices=(*TRIALS, "table"))
    options.add_argument("--seed", type=int, default=1, help="draws the cases (default: 1)")
    options.add_argument("--trials", type=int, help="number of cases; seconds for `people`, tokens for `restart`")
    options.add_argument("--folder", type=Path, help="for homes, which are removed (default: a temporary one)")
    options.add_argument("--add", action="store_true", help="add the cases to those of the published result")
    given = options.parse_args()
    if given.trial == "table":
        importlib.import_module("benchmarks.trust.page").main()
        return 0
    torch.set_num_threads(1)
    module = importlib.import_module(f"benchmarks.trust.{given.trial}")
    with tempfile.TemporaryDirectory(prefix="stockpot-trust-", dir=given.folder) as folder:
        tally = module.run(Path(folder), given.trials or TRIALS[given.trial], given.seed)
    print(table(tally.rows()))
    print(tally.facts())
    out, seeds = RESULTS / f"trust-{given.trial}.json", [given.seed]
    if given.add and out.exists():
        kept = json.loads(out.read_text())
        tally.add_result(kept)
        seeds = [*kept["seeds"], given.seed]
    write("trust", tally.rows(), out, trial=given.trial, seeds=seeds, **tally.facts())
    return 0 if not tally.facts()["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
