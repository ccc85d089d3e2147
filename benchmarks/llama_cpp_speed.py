"""Speed beside llama.cpp: the same GGUF file, text, question and threads, in turn.

    python -m benchmarks.llama_cpp_speed --model FILE.gguf --llama-cpp-python PATH_TO_PYTHON --tokens 1K,4K

Each round measures both, each in a process of its own, so that a machine that slows down slows both; ratios are taken
within a round. Stockpot is timed as the app uses it: chat template, sampling and sources of an answer are in its times.
llama.cpp gets as many question tokens and takes the most likely token, without a server around it. For a later question
it keeps the text in its cache, as its server does when a prompt begins like the one before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import deque
from typing import Any

import torch

from benchmarks import options as shared
from benchmarks.haystack import Haystack
from benchmarks.llama_cpp import add_interpreter, run_script
from benchmarks.report import named, publish
from engine import Answer, Conversation, Model, Reader, Sampling

DECODED = 32  # tokens of an answer
ROUNDS = 3
QUESTION = "In which year and where was the person born who is named first in this text?"
SCRIPT = """
import json, sys, time
from llama_cpp import Llama
asked = json.load(sys.stdin)
ids, question = asked["ids"], asked["question"]
model = Llama(asked["model"], n_ctx=len(ids) + len(question) + asked["decoded"] + 64, n_batch=512,
              n_threads=asked["threads"], n_threads_batch=asked["threads"], verbose=False)
started = time.perf_counter()
model.eval(ids)
reading = time.perf_counter() - started
for _ in range(2):  # the second time is measured: a later question
    model._ctx.kv_cache_seq_rm(-1, len(ids), -1)
    model.n_tokens = len(ids)
    started = time.perf_counter()
    model.eval(question)
    token = model.sample(temp=0.0)
    first = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(asked["decoded"]):
        model.eval([token])
        token = model.sample(temp=0.0)
    answering = time.perf_counter() - started
print(json.dumps({"reading": len(ids) / reading, "first_token": first, "answering": asked["decoded"] / answering}))
"""


def own_speed(model: Model, name: str, ids: list[int]) -> dict[str, float]:
    """Return tokens a second of reading and answering, and seconds to the first token of a later question."""
    reader = Reader(model, shared.variant(name, None), torch.tensor(ids))
    started = time.perf_counter()
    deque(reader.run(), maxlen=0)
    reading = time.perf_counter() - started
    for _ in range(2):  # the second time is measured: a later question, in another conversation
        sampling = Sampling(temperature=1.5, max_tokens=DECODED, seed=1)  # so hot that no answer ends early
        *_, answer = Conversation(reader.context()).ask(QUESTION, sampling)
    assert isinstance(answer, Answer)
    return {
        "reading": len(ids) / reading,
        "first_token": answer.time_to_first_token_sec,
        "answering": answer.tokens_per_second,
    }


def compared(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the medians of both, and the ratios of each round; above 1, Stockpot is ahead."""
    row: dict[str, Any] = {}
    for name in ours[0]:
        own, other = [each[name] for each in ours], [each[name] for each in theirs]
        pairs = zip(other, own, strict=True) if name == "first_token" else zip(own, other, strict=True)
        row[name] = {"ours": statistics.median(own), "theirs": statistics.median(other)}
        row[name]["ratios"] = sorted(ahead / behind for ahead, behind in pairs)
    return row


def own_process(options: argparse.Namespace, name: str, tokens: int) -> dict[str, float]:
    """Return `own_speed`, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.llama_cpp_speed", "--in-process", "--model", options.model]
    command += ["--methods", name, "--tokens", str(tokens), "--quantize", options.quantize, "--data", str(options.data)]
    command += ["--threads", str(torch.get_num_threads()), "--llama-cpp-python", str(options.llama_cpp_python)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def text_ids(model: Model, options: argparse.Namespace, tokens: int) -> list[int]:
    """Return the tokens of a text of prose."""
    return Haystack(model, options.data).trial("prose", tokens, 0.5, options.seed).ids.tolist()


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Speed beside llama.cpp, with the same GGUF file, text, question and threads.")
    add_interpreter(parser)
    parser.add_argument("--methods", type=shared.words, default=["full"], help=f"{shared.SEPARATED} (default: full)")
    parser.add_argument("--tokens", type=shared.lengths, default=[1024, 4096], help="lengths (default: 1K,4K)")
    parser.add_argument("--rounds", type=shared.count, default=ROUNDS, help=f"measured in turn (default: {ROUNDS})")
    parser.add_argument("--quantize", default="none", help="our weights: none, int8, int4 or blocks (default: none)")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    model = shared.open_model(chosen)
    if chosen.in_process:
        print(json.dumps(own_speed(model, chosen.methods[0], text_ids(model, chosen, chosen.tokens[0]))))
        return 0
    question = model.chat.turn(QUESTION)
    rows = []
    for tokens in chosen.tokens:
        ids = text_ids(model, chosen, tokens)
        limits = {"decoded": DECODED, "threads": torch.get_num_threads()}
        asked = {"model": str(chosen.model), "ids": ids, "question": question, **limits}
        for name in chosen.methods:
            ours, theirs = [], []
            for _ in range(chosen.rounds):
                ours.append(own_process(chosen, name, tokens))
                theirs.append(json.loads(run_script(chosen.llama_cpp_python, SCRIPT, asked).splitlines()[-1]))
            facts = {"file": model.name, "method": name, "quantize": chosen.quantize, "tokens": tokens}
            rows.append({**facts, "rounds": chosen.rounds, **compared(ours, theirs)})
            print(rows[-1], file=sys.stderr, flush=True)
    publish("llama-cpp-speed", rows, chosen.out, chosen.json, **named(model))
    return 0


if __name__ == "__main__":
    shared.run(main)
