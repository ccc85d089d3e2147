"""Our condensing methods beside kvpress's presses, with the same model, documents, questions and number of entries.

    python -m benchmarks.neighbours --entries 256,512 --tokens 1K,2K

Each question is asked about the text alone, not after other questions. `full` runs on both sides, to check that only
the choice of entries differs. A press chooses after the whole text, so it runs only up to the model's window; ours
choose while reading. KVzip passes the text a second time after itself: beyond half of the window it scores at positions
the model was not trained for. Without kvpress its rows are left out, and the reason is printed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from benchmarks import options as shared
from benchmarks.asking import ANSWER, answer_to, read
from benchmarks.haystack import Haystack, Trial
from benchmarks.presses import PRESSES, Neighbours, open_neighbours
from benchmarks.report import named, publish
from engine import Conversation, Method, Model
from engine.methods.locret import Locret
from engine.records import DEVICE

OURS = ("locret", "infinipot")


def own_method(name: str, entries: int | None) -> Method:
    """Return a method that holds at most `entries` entries after the text; None for no limit."""
    method = shared.variant(name, entries)
    # Locret's last tokens come on top of its budget.
    return shared.variant(name, (entries or 0) - method.local) if isinstance(method, Locret) and entries else method


def with_ours(model: Model, method: Method, trial: Trial) -> dict[str, float]:
    """Return right answers, entries held, and seconds of the reading."""
    started = time.perf_counter()
    reader = read(model, method, trial.ids)
    seconds = time.perf_counter() - started
    context, right = reader.context(), 0
    for question in trial.questions:
        answer = answer_to(Conversation(context), question.text)
        right += question.is_right(answer.text)
    return {"correct": right, "held": context.usage().entries[DEVICE], "read_seconds": seconds}


def with_press(
    model: Model, neighbours: Neighbours, press: str | None, entries: int | None, trial: Trial
) -> dict[str, float]:
    """Return the same for a press; None for full attention."""
    ids = torch.cat([torch.tensor(model.chat.prefix), trial.ids])
    pressed, seconds = neighbours.read(press, ids, entries or len(ids))
    right = 0
    for question in trial.questions:
        tokens, _ = pressed.answer(model.chat.turn(question.text), ANSWER)
        right += question.is_right(model.decode(tokens))
    return {"correct": right, "held": pressed.held(), "read_seconds": seconds}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Our condensing methods beside kvpress's presses at the same number of entries.")
    parser.add_argument("--entries", type=shared.sizes, default=[256, 512], help="kept (default: 256,512)")
    parser.add_argument("--tokens", type=shared.lengths, default=[1024, 1536], help="lengths (default: 1K,1536)")
    parser.add_argument("--trials", type=shared.count, default=5, help="documents per cell (default: 5)")
    chosen = parser.parse_args(argv)
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    rows: list[dict[str, Any]] = []
    neighbours, reason = open_neighbours(model, shared.model_source(chosen))
    for tokens in chosen.tokens:
        trials = [haystack.trial("facts", tokens, 0.0, chosen.seed + number) for number in range(chosen.trials)]
        for entries in [None, *chosen.entries]:
            for name in ("full",) if entries is None else OURS:
                method = own_method(name, entries)
                rows.append(_row("stockpot", name, entries, trials, [with_ours(model, method, t) for t in trials]))
            if neighbours is None:
                continue
            for press in (None,) if entries is None else PRESSES:
                found = [with_press(model, neighbours, press, entries, trial) for trial in trials]
                rows.append(_row("kvpress", press or "full", entries, trials, found))
    publish("neighbours", rows, chosen.out, chosen.json, **named(model), without_kvpress=reason)
    return 0


def _row(
    package: str, method: str, entries: int | None, trials: list[Trial], found: list[dict[str, float]]
) -> dict[str, Any]:
    count = len(trials)
    row: dict[str, Any] = {"package": package, "method": method, "tokens": len(trials[0].ids), "entries": entries}
    row["held"] = round(sum(each["held"] for each in found) / count)
    row["asked"] = sum(len(trial.questions) for trial in trials)
    row["correct"] = sum(int(each["correct"]) for each in found)
    row["read_seconds"] = round(sum(each["read_seconds"] for each in found) / count, 3)
    print(row, file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    shared.run(main)
