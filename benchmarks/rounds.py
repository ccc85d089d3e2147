"""A conversation far longer than its memory: 2,000 rounds of rock, paper, scissors, with something to remember.

    python -m benchmarks.rounds --methods locret --turns 2000

After SirLLM's game, which Locret's appendix H plays with a budget of 1,024 and no stabilizers. The papers count how
often a large model wins against a biased player, which a pocket model cannot be asked; here it is asked what it was
told. Every so many rounds a round states a fact about an invented name, and 1, 4 or 16 rounds later there is a
question about it. Per block of rounds: seconds per round (median), bytes and entries of the memory at its end, and
right answers.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import options as shared
from benchmarks.haystack import distinct_facts, is_right
from benchmarks.report import named, publish
from engine import Answer, Conversation, Model, Reader, Sampling
from engine.records import DEVICE
from training.pocket import facts
from training.pocket.facts import FactMaker

OPENING = "This is a game of rock, paper, scissors. In some rounds the player says something worth remembering."
MOVES = ("rock", "paper", "scissors")
LAGS = (1, 4, 16)  # rounds between a fact and the question about it
EVERY = 20  # rounds between two facts; more than the longest lag
REPLY = 4  # tokens of an answer to a mere move
ANSWER = 32


def messages(turns: int, seed: int) -> Iterator[tuple[str, int, str]]:
    """What the player says in each round; the lag and the answer where it is a question, else 0 and nothing."""
    rng = random.Random(seed)
    told = distinct_facts(rng, turns // EVERY + 1, FactMaker([]))
    asked: dict[int, tuple[str, int, str]] = {}
    for turn in range(turns):
        said = f"Round {turn + 1}. I play {rng.choice(MOVES)}."
        if turn % EVERY == 0:
            fact, lag = next(told), LAGS[turn // EVERY % len(LAGS)]
            asked[turn + lag] = (facts.question(rng, fact.relation, fact.subject), lag, fact.value)
            said = f"{said} {fact.statement}"
        yield asked.pop(turn, (said, 0, ""))


def play(model: Model, name: str, budget: int, turns: int, block: int, seed: int) -> Iterator[dict[str, Any]]:
    """One row per block of rounds."""
    reader = Reader(model, shared.variant(name, budget), model.encode(OPENING).ids)
    for _ in reader.run():
        pass
    conversation = Conversation(reader.context())
    seconds: list[float] = []
    counts = {f"{what}_{lag}": 0 for lag in LAGS for what in ("asked", "correct")}
    for turn, (said, lag, expected) in enumerate(messages(turns, seed), 1):
        started = time.perf_counter()
        *_, answer = conversation.ask(said, Sampling(max_tokens=ANSWER if lag else REPLY))
        assert isinstance(answer, Answer)
        if lag:
            counts[f"asked_{lag}"] += 1
            counts[f"correct_{lag}"] += is_right(answer.text, expected)
        else:
            seconds.append(time.perf_counter() - started)
        if turn % block == 0 or turn == turns:
            usage = conversation.usage()
            held = {"seconds": statistics.median(seconds), "kv_bytes": usage.bytes[DEVICE]}
            held["kv_entries"] = usage.entries[DEVICE]
            yield {
                "method": name,
                "budget": budget,
                "turns": turn,
                "tokens": conversation.memory.seen,
                **held,
                **counts,
            }
            seconds, counts = [], dict.fromkeys(counts, 0)


def main(argv: list[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = shared.parser("A conversation far longer than its memory, with something to remember now and then.")
    methods = ["locret:stabilizers=0", "infinipot", "streaming"]
    parser.add_argument("--methods", type=shared.words, default=methods, help=f"default: {','.join(methods)}")
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument("--turns", type=int, default=2000, help="rounds (default: 2000)")
    parser.add_argument("--block", type=int, default=100, help="rounds per row (default: 100)")
    chosen = parser.parse_args(argv)
    model = shared.open_model(chosen)
    rows: list[dict[str, Any]] = []
    for name in chosen.methods:
        for row in play(model, name, chosen.budget, chosen.turns, chosen.block, chosen.seed):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    publish("rounds", rows, chosen.out, chosen.json, **named(model))
    return 0


if __name__ == "__main__":
    sys.exit(main())
