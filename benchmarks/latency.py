"""Reading speed, time to first token, decoding speed and memory by length, measured and planned.

    stockpot bench latency --methods exact,infinipot --tokens 100K,1M

Each measurement runs in its own process, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import deque
from typing import Any

from benchmarks import options as shared
from benchmarks.asking import answer_to
from benchmarks.haystack import Haystack
from benchmarks.report import named, publish
from engine import Answer, Conversation, EngineError, Machine, Planner, Reader, Sampling, measure_rates, memory_report

DECODED = 32  # tokens of the second answer, which is timed


class NotMeasured(EngineError):
    """The process of a measurement failed."""

    def __init__(self, method: str, tokens: int, status: int) -> None:
        """Build the message from `status`, the exit status of the process, negative for a signal."""
        why = "its process says above why" if status > 0 else f"its process was ended by signal {-status}"
        super().__init__(f"{method} at {tokens:,} tokens was not measured: {why}.")


def measure(options: argparse.Namespace, name: str, budget: int | None, tokens: int) -> dict[str, Any]:
    """Return one row, measured in this process."""
    model = shared.open_model(options)
    trial = Haystack(model, options.data).trial("prose", tokens, 0.5, options.seed)
    method = shared.variant(name, budget)
    machine = Machine.now(model.device, measure_rates(model.device, model.spec.dtype))
    plan = Planner.of_loaded(model, machine).plan(method, len(trial.ids), options.quantize, weights=False)
    reader = Reader(model, method, trial.ids)
    (progress,) = deque(reader.run(), maxlen=1)
    conversation = Conversation(reader.context())
    question = trial.questions[0].text
    answer_to(conversation, question, 2)  # one-time work of a first answer is not timed
    *_, second = conversation.ask(question, Sampling(temperature=1.5, max_tokens=DECODED, seed=1))
    assert isinstance(second, Answer)
    return {
        "method": name,
        "budget": budget,
        "settings": method.settings(),
        "tokens": tokens,
        "read_seconds": progress.seconds,
        "distill_seconds": progress.distill_seconds,
        "catalyst_seconds": progress.catalyst_seconds,
        "tokens_per_second": progress.tokens_per_second,
        "time_to_first_token_seconds": second.time_to_first_token_sec,
        "decode_tokens_per_second": second.tokens_per_second,
        "peak_memory_bytes": memory_report()["peak_process_bytes"],
        "kv_bytes": progress.usage.bytes,
        "planned_kv_bytes": plan.footprint.usage.bytes,
        "kv_entries": progress.usage.entries,
        "times_planned": {  # measured time divided by planned time
            "reading": progress.seconds / (plan.reading_sec or 0),
            "first_token": second.time_to_first_token_sec / (plan.first_token_sec or 0),
            "answering": (plan.answer_tokens_per_sec or 0) / second.tokens_per_second,
        },
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser(
        "Reading speed, first-token time, decoding speed and memory by method and length.", "stockpot bench latency"
    )
    parser.add_argument(
        "--methods",
        type=shared.words,
        default=["exact", "infinipot"],
        help=f"{shared.SEPARATED} (default: exact,infinipot)",
    )
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument("--tokens", type=shared.lengths, default=[16384, 65536], help="lengths (default: 16K,64K)")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    argv = sys.argv[1:] if argv is None else argv
    chosen = parser.parse_args(argv)
    if chosen.in_process:
        print(json.dumps(measure(chosen, chosen.methods[0], chosen.budget, chosen.tokens[0])))
        return 0
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    rows = []
    for name in chosen.methods:
        for tokens in chosen.tokens:
            own = ["--methods", name, "--tokens", str(tokens), "--budget", str(chosen.budget), "--in-process"]
            passed = ["--model", chosen.model, "--device", chosen.device, "--data", str(chosen.data)]
            passed += ["--quantize", chosen.quantize, "--seed", str(chosen.seed)]
            passed += ["--threads", str(chosen.threads)] if chosen.threads else []
            command = [sys.executable, "-m", "benchmarks.latency", *passed, *own]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                raise NotMeasured(name, tokens, done.returncode)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], file=sys.stderr, flush=True)
    publish("latency", rows, chosen.out, chosen.json, **named(shared.open_model(chosen)))
    return 0


if __name__ == "__main__":
    shared.run(main)
