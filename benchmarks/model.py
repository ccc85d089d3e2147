"""Prove one model on one machine: it reads as transformers does, finds what it read, and keeps to its plan.

    stockpot bench model qwen3.5-4b --out qwen3.5-4b.json

It takes about ten minutes where 100 tokens are read in a second. The first row compares logits with transformers' own
attention, for the same weights in the same type. A row for each method and length says how many of twelve needles were
found, how fast the text was read and the last answer given, and what was kept beside the plan. Texts are made of the
sample book, which is part of Stockpot. Whoever sends the file adds a row to docs/models.md.
"""

from __future__ import annotations

import argparse
import html
import itertools
import random
import re
import sys
from collections import deque
from typing import Any

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.asking import answer_to
from benchmarks.gguf import BOOK, compared
from benchmarks.haystack import Haystack, Question, Trial
from benchmarks.report import publish
from engine import DEFAULT_METHOD, Conversation, Machine, Model, Planner, Reader, memory_report
from engine.memory import Memory
from engine.models.configuration import read_config
from engine.models.loading import load_network
from engine.parts.mass import no_source
from engine.parts.slots import SlotStore

COMPARED = 500  # tokens whose logits are compared
PASS = 97  # tokens of a pass there, so that earlier passes are remembered
LEAST = 1024  # tokens of a text with twelve needles
ASKED = 512  # tokens of the window that are left for questions and answers
PLACES = (
    *("harbour", "library", "bakery", "museum", "orchard", "observatory"),
    *("tannery", "aquarium", "brewery", "chapel", "foundry", "lighthouse"),
)


def book() -> str:
    """Return the text of the sample book."""
    return html.unescape(re.sub(r"<[^>]+>", "", BOOK.read_text(encoding="utf-8")))


def first_tokens(model: Model) -> Tensor:
    """Return the tokens whose logits are compared, int64 [T]."""
    return model.encode(book()).ids[:COMPARED]


def needles(model: Model, tokens: int, seed: int) -> Trial:
    """Return a text of so many tokens with twelve codes in it, and a question about each, in another order."""
    rng = random.Random(f"codes {tokens} {seed}")
    ids = model.encode(book()).ids
    hay = ids.repeat(-(-tokens // len(ids)))[:tokens]
    codes = [str(code) for code in rng.sample(range(10000, 100000), len(PLACES))]
    places = rng.sample(PLACES, len(PLACES))
    pairs = list(zip(places, codes, strict=True))
    statements = [f" The door code of the {place} is {code}." for place, code in pairs]
    text, spans = Haystack(model).scattered(rng, hay, statements)
    questions = [
        Question(f"What is the door code of the {place}? Answer with the code alone.", code, *span)
        for (place, code), span in zip(pairs, spans, strict=True)
    ]
    rng.shuffle(questions)
    return Trial("codes", text, questions, None)


def stock_logits(options: argparse.Namespace, model: Model) -> Tensor:
    """Return the logits [T, vocabulary] of transformers' own attention for the first tokens of the book.

    model: the same one as the engine loads it; only its tokenizer and its type are used.
    """
    source, ids = shared.model_source(options), first_tokens(model)
    network = load_network(source, read_config(source), model.device, model.spec.dtype, options.quantize)
    with torch.no_grad():
        logits: Tensor = network(input_ids=ids[None].to(model.device), use_cache=False).logits[0]
    return logits.cpu()


def agreement(model: Model, theirs: Tensor) -> dict[str, Any]:
    """Return a row: the share of most likely tokens that agree, and how far the probabilities are apart."""
    ids, memory, hidden = first_tokens(model), Memory(model.spec, SlotStore(model.spec)), []
    for part in ids.split(PASS):  # type: ignore[no-untyped-call]
        hidden.append(model.forward(part, memory, no_source(len(part))))
        memory.end_pass()
    ours = model.logits(torch.cat(hidden)).cpu()
    same, total, largest = compared(ours, theirs)
    return {
        "what": "as transformers",
        "tokens": len(ids),
        "top_1_agreement": same / len(ids),
        "mean_kl": total / len(ids),
        "largest_kl": largest,
    }


def found(model: Model, name: str, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return a row: what a method found of a text, how fast it was, and what it took beside its plan."""
    trial = needles(model, tokens, options.seed)
    method = shared.variant(name, None if name == "full" else options.budget)
    machine = Machine.now(model.device)
    plan = Planner.of_loaded(model, machine).plan(method, len(trial.ids), options.quantize, weights=False)
    reader = Reader(model, method, trial.ids)
    (progress,) = deque(reader.run(), maxlen=1)
    conversation, right, sourced = Conversation(reader.context()), 0, 0
    for question in trial.questions:
        answer = answer_to(conversation, question.text)
        if question.is_right(answer.text):
            first = answer.passages[0] if answer.passages else None
            right += 1
            sourced += first is not None and first.start < question.end and question.start < first.end
    return {
        "what": name,
        "tokens": tokens,
        "asked": len(trial.questions),
        "right": right,
        "right_source": sourced,
        "read_per_second": progress.tokens_per_second,
        "first_token_seconds": answer.time_to_first_token_sec,
        "answer_per_second": answer.tokens_per_second,
        "kept_bytes": sum(progress.usage.bytes.values()),
        "planned_bytes": sum(plan.footprint.usage.bytes.values()),
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("A model's answers, speed and memory on this machine.", "stockpot bench model")
    methods = ["full", DEFAULT_METHOD]
    usual = ",".join(methods)
    parser.add_argument("--methods", type=shared.words, default=methods, help=f"{shared.SEPARATED} (default: {usual})")
    parser.add_argument("--budget", type=shared.size, default=1024, help="entries (default: 1024)")
    parser.add_argument("--tokens", type=shared.lengths, default=[4096, 16384], help="lengths (default: 4K,16K)")
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    if min(chosen.tokens) < LEAST:
        parser.error(f"--tokens: a text with {len(PLACES)} needles has {LEAST:,} tokens or more")
    theirs = stock_logits(chosen, shared.open_model(chosen))  # one after the other, for want of memory
    model = shared.open_model(chosen)
    rows = [agreement(model, theirs)]
    print(rows[-1], file=sys.stderr, flush=True)
    longest = max(LEAST, model.spec.window - ASKED)
    for tokens, method in itertools.product(
        dict.fromkeys(min(each, longest) for each in chosen.tokens), chosen.methods
    ):
        rows.append(found(model, method, tokens, chosen))
        print(rows[-1], file=sys.stderr, flush=True)
    columns = dict.fromkeys(name for row in rows for name in row)
    table = [{name: row.get(name) for name in columns} for row in rows]
    facts = {"model": model.name, "weights": model.fingerprint[:12], "quantize": chosen.quantize}
    publish("model", table, chosen.out, chosen.json, **facts, peak_bytes=memory_report()["peak_process_bytes"])
    return 0


if __name__ == "__main__":
    shared.run(main)
