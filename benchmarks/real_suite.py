"""All methods on real models: a day's worth of suite cells, the most informative first.

    python -m benchmarks.real_suite --models DIR,DIR --out suite.jsonl --minutes 600

The first model is measured at 4K, then the second, then both at 8K, 16K and 32K. Every method has a budget of a quarter
of the text, then of an eighth. Settings recommended here run beside those of the papers, with one look. InfLLM: 4
representatives for each of 16 units, chosen as the paper says and as its code does, with the unit length scaled with
the budget from the paper's 128 (and unscaled, if the text is long enough). InfiniteHiP: three stages scaled likewise,
and its own presets. InfiniPot: a pot of 4,096 without pooling. `locret` and `recall` need retaining heads for the
model: `stockpot train locret`. Cells that cannot be measured are left out with the reason. Beyond a model's window
`full` is left out, as the others never exceed their budget.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from benchmarks import options as shared
from benchmarks.haystack import held_out_prose
from benchmarks.suite.command import READINGS, Run, Wanted, deadline, note, own_budget, publish
from benchmarks.suite.store import Cell
from benchmarks.suite.texts import Texts

LENGTHS = [4096, 8192, 16384, 32768]
SHARES = (4, 8)
INFINIPOT_POT = 4096
PUBLISHED = (
    "infllm:preset=minicpm",
    "infllm:preset=llama-3",
    "infinitehip:preset=3k-flash",
    "infinitehip:preset=3k",
    "infinitehip:preset=5k",
    f"infinipot:budget={INFINIPOT_POT}:pooling=1",
)
"""Settings of the papers, which are measured where a text has twice as many tokens as they see."""


def recommended(budget: int) -> list[str]:
    """Return the methods with the settings recommended here, scaled to a budget, most informative first."""
    return [
        f"exact:budget={budget}",
        f"infllm:budget={budget}:units={budget // 16}",
        f"infinitehip:budget={budget}:stages=32:16:{budget}:8 32:4:{budget // 4}:4",
        f"infinipot:budget={budget}",
        f"streaming:budget={budget}",
        f"truncate:budget={budget}",
    ]


def published(budget: int) -> list[str]:
    """Return the retrieving methods as in their papers, scaled to a budget: one look and the papers' shares."""
    stages = f"32:64:{4 * budget}:16 32:16:{budget}:8 32:4:{budget // 4}:4"
    infllm = f"infllm:budget={budget}:looks=1:block={budget // 32}:representatives=4:units=16"
    return [
        f"exact:budget={budget}:looks=1",
        infllm,
        f"{infllm}:scores=probabilities",
        f"infinitehip:budget={budget}:looks=1:first_layers=3:stages={stages}",
    ]


def with_heads(budget: int) -> list[str]:
    """Return the methods that need retaining heads."""
    return [f"recall:budget={budget}", f"locret:budget={budget}"]


def plan(tokens: int, window: int) -> Iterator[Wanted]:
    """Yield the cells for one length and a model with this window."""
    quarter, eighth = (tokens // share for share in SHARES)
    own = [name for name in PUBLISHED if 2 * (own_budget(name) or 0) <= tokens]
    names = ["full", *recommended(quarter), *published(quarter), *own]
    names += [*recommended(eighth), *published(eighth), *with_heads(quarter), *with_heads(eighth)]
    for name in names:
        if tokens <= window or name != "full":
            yield name, f"1/{SHARES[0]}", tokens


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("All methods on real models, the most telling cells first.")
    parser.add_argument("--models", type=shared.words, required=True, help="folders or hub ids, separated by commas")
    parser.add_argument("--tokens", type=shared.lengths, default=LENGTHS, help="lengths (default: 4K,8K,16K,32K)")
    parser.add_argument(
        "--readings", type=shared.count, default=READINGS, help=f"texts a method and length (default: {READINGS})"
    )
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on from there")
    chosen = parser.parse_args(argv)
    if chosen.out is None:
        parser.error("name the file of results with --out FILE")
    held_out_prose(chosen.data)  # fails at once if the books are missing
    in_time, seeds = deadline(chosen.minutes), range(chosen.seed, chosen.seed + chosen.readings)
    cells: list[Cell] = []
    left_out: list[dict[str, Any]] = []
    for tokens, source in itertools.product(chosen.tokens, chosen.models):
        chosen.model = source
        model = shared.open_model(chosen)
        run = Run(model, Texts(model, chosen.data), chosen.out, in_time)
        there = run.all(plan(tokens, model.spec.window), seeds)
        cells += run.cells
        left_out += [{"model": model.name, **each} for each in run.left_out]
        if not there:
            note("the time is over: the same command goes on from here.")
            break
        del model, run  # one model in memory at a time
    publish(cells, left_out, chosen.json)
    return 0


if __name__ == "__main__":
    shared.run(main)
