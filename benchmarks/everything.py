"""All benchmarks behind docs/results.md, each written to `results/`; finished ones are skipped. `make bench`.

On two CPU cores the whole takes about a day; `--quick` takes the sizes of docs/results.md that fit into an hour.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from benchmarks import latency, needle, speed
from benchmarks.report import RESULTS

RUNS = {"needle": needle.main, "latency": latency.main, "speed": speed.main}
CONDENSING = "streaming,truncate,infinipot,infinipot-cap,infinipot-nuc"


@dataclass(frozen=True)
class Run:
    """One benchmark: its name under results/, the program, its options; quick ones are part of --quick."""

    name: str
    program: str
    options: str
    quick: bool = True


def passkey(name: str, methods: str, kind: str, tokens: str, trials: int, quick: bool) -> Run:
    """A pass-key table at all four budgets."""
    options = f"--methods {methods} --kinds {kind} --tokens {tokens} --trials {trials} --budgets 512,1024,2048,4096"
    return Run(name, "needle", options, quick)


PLAN = [
    Run("speed", "speed", ""),
    Run("latency", "latency", "--methods streaming,infinipot,exact --budget 1024 --tokens 100K,1M"),
    Run("facts-exact", "needle", "--methods exact --budgets 512 --tokens 2K,8K,32K --trials 20"),
    Run("facts-exact-128k", "needle", "--methods exact --budgets 512 --tokens 128K --trials 6"),
    Run("facts-exact-1m", "needle", "--methods exact --budgets 512 --tokens 1M --trials 2"),
    Run("facts-full", "needle", "--methods full --tokens 1K,2K,4K --trials 20"),
    Run("facts-condensing", "needle", f"--methods {CONDENSING} --budgets 512,2048 --tokens 2K,8K,32K --trials 5"),
    passkey("passkey-filler", f"full,exact,{CONDENSING}", "passkey", "2K,8K", 20, False),
    passkey("passkey-prose", f"full,exact,{CONDENSING}", "prose", "2K,8K", 20, False),
    passkey("passkey-filler-long", f"exact,{CONDENSING}", "passkey", "32K,128K", 20, False),
    passkey("passkey-prose-long", f"exact,{CONDENSING}", "prose", "32K,128K", 20, False),
    passkey("passkey-filler-1m", f"exact,{CONDENSING}", "passkey", "512K,1M", 3, False),
]


def main(argv: list[str] | None = None) -> int:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what fits into about an hour on two cores")
    parser.add_argument("--only", help="a single run by name")
    chosen = parser.parse_args(argv)
    for run in PLAN:
        out = RESULTS / f"{run.name}.json"
        wanted = run.name == chosen.only if chosen.only else run.quick or not chosen.quick
        if not wanted or out.exists():
            continue
        print(f"== {run.name}", file=sys.stderr, flush=True)
        RUNS[run.program]([*run.options.split(), "--out", str(out)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
