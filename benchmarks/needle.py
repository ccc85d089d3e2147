"""Needle in a haystack: what each method still knows of what it has read.

    stockpot bench needle --methods exact,infinipot --budgets 512,1024 --tokens 2K,32K --kinds facts --trials 20

Answers are generated, and right only when exact (of two pass keys: both numbers, in order, and no other). Of right
answers it is also counted whether the first source that is shown holds the fact.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from benchmarks import options as shared
from benchmarks.asking import answer_to, read
from benchmarks.haystack import KINDS, SPREAD, Haystack, Trial
from benchmarks.report import named, publish
from engine import Conversation, Method, Model


def ask(model: Model, method: Method, trial: Trial) -> tuple[int, int, dict[str, int]]:
    """Read a trial's document once and ask its questions in turn.

    Returns:
        Right answers, right ones with a right source, and the bytes of the finished reading by tier.
    """
    context = read(model, method, trial.ids).context()
    conversation = Conversation(context)
    right = sourced = 0
    for question in trial.questions:
        answer = answer_to(conversation, question.text)
        if question.is_right(answer.text):
            right += 1
            first = answer.passages[0] if answer.passages else None
            sourced += first is not None and first.start < question.end and question.start < first.end
    return right, sourced, context.usage().bytes


def measure(haystack: Haystack, cell: dict[str, Any], seeds: range) -> dict[str, Any]:
    """The row of a cell: of documents with these seeds, what was asked, right, and right with a right source.

    Args:
        cell: method, budget, tokens, depth and kind.
    """
    started = time.perf_counter()
    method = shared.variant(cell["method"], cell["budget"])
    asked = correct = sourced = 0
    kv_bytes: dict[str, int] = {}
    for seed in seeds:
        trial = haystack.trial(cell["kind"], cell["tokens"], cell["depth"] or 0.0, seed)
        right, found, kv_bytes = ask(haystack.model, method, trial)
        asked, correct, sourced = asked + len(trial.questions), correct + right, sourced + found
    row = {**cell, "settings": method.settings(), "asked": asked, "correct": correct, "sourced": sourced}
    return row | {"kv_bytes": kv_bytes, "seconds": round(time.perf_counter() - started, 1)}


def main(argv: list[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = shared.parser(
        "Needle in a haystack: accuracy by method, budget, length, depth and kind of document.", "stockpot bench needle"
    )
    parser.add_argument("--methods", type=shared.words, default=["exact"], help="parted by commas (default: exact)")
    parser.add_argument("--budgets", type=shared.sizes, default=[1024], help="entries (default: 1024)")
    parser.add_argument("--tokens", type=shared.lengths, default=[2048], help="lengths such as 2K,32K,1M (default: 2K)")
    parser.add_argument("--depths", type=shared.depths, default=[0.1, 0.5, 0.9], help="0 to 1, parted by commas")
    parser.add_argument("--kinds", type=shared.words, default=["facts"], help=f"of {', '.join(KINDS)} (default: facts)")
    parser.add_argument("--trials", type=shared.count, default=5, help="documents per cell (default: 5)")
    chosen = parser.parse_args(argv)
    unknown = set(chosen.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kind {', '.join(sorted(unknown))}: choose of {', '.join(KINDS)}")
    shared.check_methods(parser, chosen.methods, chosen.budgets)
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    rows: list[dict[str, Any]] = []
    for name, budget in itertools.product(chosen.methods, chosen.budgets):
        if name == "full" and budget != chosen.budgets[0]:
            continue  # it takes none, so once is enough
        for kind, tokens in itertools.product(chosen.kinds, chosen.tokens):
            for depth in [None] if kind in SPREAD else chosen.depths:
                cell = {"method": name, "budget": None if name == "full" else budget}
                cell |= {"tokens": tokens, "depth": depth, "kind": kind}
                rows.append(measure(haystack, cell, range(chosen.seed, chosen.seed + chosen.trials)))
                print(rows[-1], file=sys.stderr, flush=True)
    publish("needle", rows, chosen.out, chosen.json, **named(model), trials=chosen.trials)
    return 0


if __name__ == "__main__":
    shared.run(main)
