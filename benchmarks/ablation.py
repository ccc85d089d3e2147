"""InfiniteHiP's Table 5: accuracy on facts for every pair of position rules, of pruning and of attention.

    python -m benchmarks.ablation --tokens 4K --trials 2

The pruning rule is the same in all layers or, as in the paper's default, chunk-indexed in the first layers and relative
in the others.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.haystack import Haystack
from benchmarks.needle import ask
from benchmarks.report import named, publish
from engine import make_method
from engine.parts.positions import ATTENTION_RULES, PRUNING_RULES

MIXED = "chunk, then relative"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser(
        "Accuracy of InfiniteHiP under every combination of its position rules.", "stockpot bench ablation"
    )
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument("--tokens", type=shared.length, default=4096, help="length of the text (default: 4K)")
    parser.add_argument("--trials", type=shared.count, default=2, help="documents of eight facts (default: 2)")
    parser.add_argument(
        "--rules", type=shared.words, default=[*PRUNING_RULES, MIXED], help="while pruning (default: all)"
    )
    chosen = parser.parse_args(argv)
    if unknown := set(chosen.rules) - {*PRUNING_RULES, MIXED}:
        parser.error(f"unknown rule {', '.join(sorted(unknown))}: choose of {', '.join(PRUNING_RULES)}")
    shared.check_methods(parser, ["infinitehip"], [chosen.budget])
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    trials = [haystack.trial("facts", chosen.tokens, 0.0, chosen.seed + number) for number in range(chosen.trials)]
    rows: list[dict[str, Any]] = []
    for pruning in chosen.rules:
        first, other = ("chunk", "relative") if pruning == MIXED else (pruning, pruning)
        for attention in ATTENTION_RULES:
            started = time.perf_counter()
            rules = {"first_pruning": first, "pruning": other, "attention": attention, "extend_always": True}
            method = make_method("infinitehip", budget=chosen.budget, looks=1, **rules)
            right = sum(ask(read(model, method, trial.ids).context(), trial)[0] for trial in trials)
            row = {"pruning": pruning, "attention": attention, "tokens": chosen.tokens, "budget": chosen.budget}
            asked = sum(len(trial.questions) for trial in trials)
            seconds = round(time.perf_counter() - started, 1)
            rows.append(row | {"asked": asked, "correct": right, "seconds": seconds})
            print(rows[-1], file=sys.stderr, flush=True)
    publish("ablation", rows, chosen.out, chosen.json, **named(model), trials=chosen.trials)
    return 0


if __name__ == "__main__":
    shared.run(main)
