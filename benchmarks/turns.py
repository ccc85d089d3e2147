"""Several needles, one question a turn, three turns in one conversation: accuracy and seconds of each turn.

    python -m benchmarks.turns --methods full,locret --tokens 1920

Activation Beacon's Table 2. The first turn includes reading the text. Our memories are read once and asked repeatedly.
For comparison: `full`, and kvpress's SnapKV, which keeps the entries that the question attends to, and so has to read
text and conversation anew for every question. Without kvpress its rows are left out, and the reason is printed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from benchmarks import options as shared
from benchmarks.asking import ANSWER, answer_to, read
from benchmarks.haystack import Haystack, Question, Trial
from benchmarks.neighbours import own_method
from benchmarks.presses import Neighbours, open_neighbours
from benchmarks.report import named, publish
from engine import Conversation, Method, Model

TURNS = 3
PRESS = "snapkv"


def with_method(model: Model, method: Method, trial: Trial) -> list[tuple[bool, float]]:
    """Return correctness and seconds of each turn."""
    started = time.perf_counter()
    conversation = Conversation(read(model, method, trial.ids).context())
    found = []
    for question in _asked(trial):
        answer = answer_to(conversation, question.text)
        found.append((question.is_right(answer.text), time.perf_counter() - started))
        started = time.perf_counter()
    return found


def with_press(model: Model, neighbours: Neighbours, entries: int, trial: Trial) -> list[tuple[bool, float]]:
    """Return the same for the query-aware press; the question's last token passes after the cache was shortened."""
    ids, found = [*model.chat.prefix, *trial.ids.tolist()], []
    for number, question in enumerate(_asked(trial)):
        ids += model.chat.turn(question.text, first=number == 0)
        pressed, reading = neighbours.read(PRESS, torch.tensor(ids[:-1]), entries)
        tokens, answering = pressed.answer(ids[-1:], ANSWER)
        found.append((question.is_right(model.decode(tokens)), reading + answering))
        ids += tokens
    return found


def _asked(trial: Trial) -> list[Question]:
    return trial.questions[:TURNS]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Several needles, one question a turn: accuracy and seconds of each turn.")
    methods = ["full", "exact", "locret", "infinipot"]
    parser.add_argument("--methods", type=shared.words, default=methods, help=f"default: {','.join(methods)}")
    parser.add_argument("--budget", type=shared.size, default=512, help="entries, the press's too (default: 512)")
    parser.add_argument("--tokens", type=shared.lengths, default=[1536], help="lengths (default: 1536)")
    parser.add_argument("--trials", type=shared.count, default=10, help="documents per cell (default: 10)")
    parser.add_argument("--no-press", action="store_true", help="without kvpress, for texts beyond the model's window")
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    neighbours, reason = None, "not asked for"
    if not chosen.no_press:
        neighbours, reason = open_neighbours(model, shared.model_source(chosen))
    rows: list[dict[str, Any]] = []
    for tokens in chosen.tokens:
        trials = [haystack.trial("facts", tokens, 0.0, chosen.seed + number) for number in range(chosen.trials)]
        for name in chosen.methods:
            method = own_method(name, None if name == "full" else chosen.budget)
            found = [with_method(model, method, trial) for trial in trials]
            rows += _rows(name, method, None if name == "full" else chosen.budget, tokens, found)
        if neighbours is not None:
            found = [with_press(model, neighbours, chosen.budget, trial) for trial in trials]
            rows += _rows(f"{PRESS}, asked before reading", None, chosen.budget, tokens, found)
    publish("turns", rows, chosen.out, chosen.json, **named(model), without_kvpress=reason)
    return 0


def _rows(
    name: str, method: Method | None, budget: int | None, tokens: int, found: list[list[tuple[bool, float]]]
) -> list[dict[str, Any]]:
    rows, settings = [], {} if method is None else {"settings": method.settings()}
    for turn in range(TURNS):
        right = sum(trial[turn][0] for trial in found)
        seconds = sum(trial[turn][1] for trial in found) / len(found)
        row = {"method": name, "budget": budget, "tokens": tokens, "turn": turn + 1, **settings}
        rows.append(row | {"asked": len(found), "correct": right, "seconds": round(seconds, 3)})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    shared.run(main)
