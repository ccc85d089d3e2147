"""One cell of the suite: a text read once with one method, all its questions, and its continuation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.asking import answer_to
from benchmarks.suite.texts import Text
from engine import Context, Conversation, Method, Model, Reader
from engine.loops.passes import feed
from engine.parts.mass import no_source

CONTINUED = 64  # tokens of the continuation in a pass; they share one look-up


class OutOfTime(Exception):
    """The given time is over; an unfinished cell is not kept."""


def measure(model: Model, method: Method, text: Text, in_time: Callable[[], None]) -> dict[str, Any]:
    """Read a text and ask every question on its own fork of that reading, greedily.

    Args:
        model: reads and answers.
        method: decides what of the text is kept.
        text: ids, questions and a continuation.
        in_time: called between passes and questions; raises OutOfTime.

    Returns:
        `questions`, with answers and scores; `perplexity`: sums over the tokens of the continuation; `kv_bytes` by
        tier; `seconds`: of reading and of the rest.
    """
    started = time.perf_counter()
    reader = Reader(model, method, text.ids)
    for _ in reader.run():
        in_time()
    context = reader.context()
    read = time.perf_counter()
    questions = []
    for asked, spans in zip(text.asked, text.spans, strict=True):
        in_time()
        answer = answer_to(Conversation(context), asked.text, asked.most).text
        found = {"family": asked.family, "question": asked.text, "references": asked.references, "answer": answer}
        depth = sum(start for start, _ in spans) / max(1, len(spans)) / len(text.ids)
        questions.append({**found, "depth": round(depth, 3), **asked.scores(answer)})
    in_time()
    losses = continued(context, text.continuation)
    return {
        "questions": questions,
        "perplexity": {"tokens": len(losses), "sum": float(losses.sum()), "squares": float(losses.square().sum())},
        "kv_bytes": context.usage().bytes,
        "seconds": {"read": round(read - started, 1), "asked": round(time.perf_counter() - read, 1)},
    }


def continued(context: Context, ids: Tensor) -> Tensor:
    """Return -log p of the tokens after a text, float64 [T - 1], predicted by a fork of its reading.

    The first token is only an input: a method that condenses at a text's end no longer has the entry to predict it.
    """
    model, memory = context.model, context.memory.fork()
    passes = feed(model, context.method, memory, ids, no_source(len(ids)), CONTINUED)
    losses, at, last = [], 0, None
    for step in passes:
        if step.hidden is None:
            continue
        hidden = step.hidden if last is None else torch.cat([last, step.hidden])
        targets = ids[at + step.tokens - len(hidden) + 1 : at + step.tokens]
        logits = model.logits(hidden[:-1]).float()
        losses.append(F.cross_entropy(logits, targets.to(logits.device), reduction="none").double().cpu())
        at, last = at + step.tokens, step.hidden[-1:]
    return torch.cat(losses)
