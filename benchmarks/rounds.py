"""A conversation far longer than its memory: 2,000 rounds of rock, paper, scissors, with facts to remember.

    python -m benchmarks.rounds --methods locret:stabilizers=0:local=0 --preference rock --turns 2000

SirLLM's game, as in Locret's appendix H: a budget of 1,024 and no entries kept for being recent (no stabilizers and no
last tokens, table 17). The player prefers one move: six times of ten, each of the others twice. In each round the model
states its move before it learns the player's; a reply that does not name exactly one of the three is no move. Every
EVERY rounds the player states a fact about an invented name. A question about it replaces a game 1, 4 or 16 rounds
later. Per block of rounds: seconds per round (median), bytes and entries of the memory at its end, games won, tied,
lost and not played by the model, and right answers.
"""

from __future__ import annotations

import random
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import options as shared
from benchmarks.asking import ANSWER, answer_to, read
from benchmarks.haystack import distinct_facts
from benchmarks.report import named, publish
from benchmarks.scoring import contains
from engine import Conversation, Model
from engine.records import DEVICE
from training.pocket import facts
from training.pocket.facts import FactMaker

OPENING = "This is a game of rock, paper, scissors. In some rounds the player says something worth remembering."
BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}
NONE = "none"  # no preferred move
PREFERRED = 0.6  # share of the preferred move; the two others share the rest
OUTCOMES = ("won", "tied", "lost", "no_move")  # from the model's side
LAGS = (1, 4, 16)  # rounds between a fact and the question about it
EVERY = 20  # rounds between two facts; more than the longest lag
REPLY = 8  # most tokens of a move


@dataclass(frozen=True)
class Round:
    """The player's message and move; for a question, the lag and answer instead of a move."""

    said: str
    move: str = ""
    lag: int = 0
    answer: str = ""


def played(turns: int, preference: str, seed: int) -> Iterator[Round]:
    """Yield rounds of a player who prefers a move, or none."""
    rng = random.Random(seed)
    told = distinct_facts(rng, turns // EVERY + 1, FactMaker([]))
    shares = [1.0 if preference == NONE else PREFERRED if move == preference else (1 - PREFERRED) / 2 for move in BEATS]
    asked: dict[int, Round] = {}
    before = ""
    for turn in range(turns):
        if turn in asked:
            yield asked.pop(turn)
            continue
        said = f"{before}Round {turn + 1}: do you play rock, paper or scissors?"
        if turn % EVERY == 0:
            fact, lag = next(told), LAGS[turn // EVERY % len(LAGS)]
            asked[turn + lag] = Round(facts.question(rng, fact.relation, fact.subject), lag=lag, answer=fact.value)
            said = f"{fact.statement} {said}"
        (move,) = rng.choices(list(BEATS), shares)
        yield Round(said, move)
        before = f"I played {move}. "


def outcome(reply: str, move: str) -> str:
    """Return the outcome for the model, one of OUTCOMES, of its reply against the player's move."""
    named = {word for word in re.findall(r"[a-z]+", reply.lower()) if word in BEATS}
    if len(named) != 1:
        return "no_move"
    (ours,) = named
    return "tied" if ours == move else "won" if BEATS[ours] == move else "lost"


def play(
    model: Model, name: str, budget: int, preference: str, turns: int, block: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield one row for each block of rounds."""
    reader = read(model, shared.variant(name, budget), model.encode(OPENING).ids)
    conversation = Conversation(reader.context())
    seconds: list[float] = []
    counts = dict.fromkeys([*OUTCOMES, *(f"{what}_{lag}" for lag in LAGS for what in ("asked", "correct"))], 0)
    for turn, each in enumerate(played(turns, preference, seed), 1):
        started = time.perf_counter()
        answer = answer_to(conversation, each.said, ANSWER if each.lag else REPLY)
        seconds.append(time.perf_counter() - started)
        if each.lag:
            counts[f"asked_{each.lag}"] += 1
            counts[f"correct_{each.lag}"] += contains(answer.text, each.answer)
        else:
            counts[outcome(answer.text, each.move)] += 1
        if turn % block == 0 or turn == turns:
            usage = conversation.usage()
            held = {"seconds": statistics.median(seconds), "kv_bytes": usage.bytes[DEVICE]}
            held["kv_entries"] = usage.entries[DEVICE]
            yield {
                "method": name,
                "budget": budget,
                "preference": preference,
                "turns": turn,
                "tokens": conversation.memory.seen,
                **held,
                **counts,
            }
            seconds, counts = [], dict.fromkeys(counts, 0)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("A conversation far longer than its memory, with something to remember now and then.")
    methods = ["locret:stabilizers=0:local=0", "infinipot", "streaming"]
    parser.add_argument("--methods", type=shared.words, default=methods, help=f"default: {','.join(methods)}")
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument(
        "--preference",
        choices=[*BEATS, NONE],
        help="the player's favourite move (default: one game with each of three)",
    )
    parser.add_argument("--turns", type=shared.count, default=2000, help="rounds (default: 2000)")
    parser.add_argument("--block", type=shared.count, default=100, help="rounds per row (default: 100)")
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    model = shared.open_model(chosen)
    rows: list[dict[str, Any]] = []
    for name in chosen.methods:
        for preference in [chosen.preference] if chosen.preference else BEATS:
            for row in play(model, name, chosen.budget, preference, chosen.turns, chosen.block, chosen.seed):
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    publish("rounds", rows, chosen.out, chosen.json, **named(model))
    return 0


if __name__ == "__main__":
    shared.run(main)
