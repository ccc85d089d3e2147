"""Steps that many tests of the engine share."""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch import Tensor

from engine import Answer, Context, Method, Model, Part, Reader, Sampling
from engine.loops.conversation import Conversation
from engine.loops.passes import feed
from engine.memory import Memory
from engine.parts.mass import NOT_IN_SOURCE


def read(model: Model, method: Method, ids: Tensor, chunk: int = 64) -> Context:
    """Read a text to its end and return the context."""
    return finish(Reader(model, method, ids, chunk))


def read_once(model: Model, method: Method, ids: Tensor) -> Context:
    """Return what `read` returns, one context for all tests that ask for the same: they may change forks of it only.

    Tests that patch the engine read for themselves.
    """
    return _read_once(model, method, tuple(ids.tolist()))


@functools.lru_cache(256)
def _read_once(model: Model, method: Method, ids: tuple[int, ...]) -> Context:
    return read(model, method, torch.tensor(ids))


def finish(reader: Reader) -> Context:
    """Run a reader to its end and return the context."""
    for _ in reader.run():
        pass
    return reader.context()


def resumed(reader: Reader, steps: int, chunk: int | None = None) -> Reader:
    """Return a reader that resumes from disk after `steps` more steps of this one, with another chunk if given."""
    for _, _progress in zip(range(steps), reader.run(), strict=False):
        pass
    parts, meta = reader.state()
    return Reader.resume(reader.model, reader.method, reader.ids, loaded(parts), meta, chunk or reader.chunk)


def loaded(parts: dict[str, Part]) -> dict[str, dict[str, Tensor]]:
    """Return parts as they are after loading from disk."""
    return {name: {key: tensor.clone() for key, tensor in part.tensors.items()} for name, part in parts.items()}


def reopened(context: Context, conversation: Conversation) -> Conversation:
    """Return a conversation loaded from disk, over its context loaded from disk."""
    (parts, meta), (said, facts) = context.state(), conversation.state()
    return Conversation.load(Context.load(context.model, context.method, loaded(parts), meta), loaded(said), facts)


def next_logits(model: Model, method: Method, memory: Memory, ids: Tensor, chunk: int = 64) -> Tensor:
    """Return logits [T, vocabulary] after each of these tokens, which are fed to a fork."""
    return logits_of(model, method, memory.fork(), ids, chunk)


def logits_of(model: Model, method: Method, fork: Memory, ids: Tensor, chunk: int = 64) -> Tensor:
    """Return logits [T, vocabulary] after each of these tokens, which are fed to this memory."""
    source = torch.full((len(ids),), NOT_IN_SOURCE, dtype=torch.int32)
    hidden = [step.hidden for step in feed(model, method, fork, ids, source, chunk) if step.hidden is not None]
    return model.logits(torch.cat(hidden))


def with_budget(method: Method, budget: int | None) -> Method:
    """Return the same settings with another budget; without a budget, settings that never condense."""
    condensing = {"ratio": 0} if budget is None and "ratio" in method.settings() else {}
    return dataclasses.replace(method, budget=budget, **condensing)


def answer(conversation: Conversation, question: str, tokens: int = 8) -> str:
    """Return the whole answer to a question."""
    *_, last = conversation.ask(question, Sampling(max_tokens=tokens))
    assert isinstance(last, Answer)
    return last.text
