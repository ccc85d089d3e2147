"""Locret with trained retaining heads beside randomly initialised ones: the paper's Table 6.

    python -m benchmarks.random_heads --tokens 2K,8K --budget 512 --trials 5

Only the weights differ; random ones are drawn anew for each row. Facts as in `benchmarks.needle`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.haystack import Haystack
from benchmarks.needle import ask
from benchmarks.report import named, publish
from engine import make_method
from engine.trained.retaining import RetainingHeads, find_heads
from engine.trained.sidecar_weights import save_weights


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Locret with trained retaining heads and with random ones (the paper's Table 6).")
    parser.add_argument("--budget", type=shared.size, default=512, help="entries (default: 512)")
    parser.add_argument("--tokens", type=shared.lengths, default=[2048, 8192], help="lengths (default: 2K,8K)")
    parser.add_argument("--trials", type=shared.count, default=5, help="documents per cell (default: 5)")
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, ["locret"], [chosen.budget])
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    trained = find_heads(model.spec, "")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for tokens in chosen.tokens:
            torch.manual_seed(chosen.seed + tokens)
            file = Path(folder) / "heads.safetensors"
            save_weights(RetainingHeads(model.spec, trained.widths), file, model.spec, {})
            for kind, heads in (("trained", ""), ("random", str(file))):
                method = make_method("locret", budget=chosen.budget, heads=heads)
                asked = correct = 0
                for number in range(chosen.trials):
                    trial = haystack.trial("facts", tokens, 0.0, chosen.seed + number)
                    right, _, _ = ask(read(model, method, trial.ids).context(), trial)
                    asked, correct = asked + len(trial.questions), correct + right
                rows.append({"heads": kind, "budget": chosen.budget, "tokens": tokens})
                rows[-1] |= {"asked": asked, "correct": correct}
                print(rows[-1], file=sys.stderr, flush=True)
    publish("random-heads", rows, chosen.out, chosen.json, **named(model), trials=chosen.trials)
    return 0


if __name__ == "__main__":
    shared.run(main)
