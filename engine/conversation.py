"""A conversation: a fork of a context with a tail of its own, questions in and answers out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.context import Context, restore
from engine.memory import NOT_IN_SOURCE, AttentionMass
from engine.passes import feed
from engine.reader import default_chunk
from engine.records import Answer, AnswerPiece, LoadedParts, Parts, Usage
from engine.sampling import Sampling, choose
from engine.sources import passages


class Conversation:
    """Turns over one context. The context is never written; a turn that is cancelled leaves no trace."""

    def __init__(self, context: Context) -> None:
        """A conversation without any turn yet."""
        self.context = context
        self.model, self.method = context.model, context.method
        self.memory = context.memory.fork()
        self.turns = 0

    def ask(self, question: str, sampling: Sampling | None = None) -> Iterator[AnswerPiece | Answer]:
        """Answer a question: pieces of text as they come, then one Answer.

        Closing the iterator before its end cancels: the conversation is as it was before the question.
        """
        before = self.memory.snapshot()
        finished = False
        try:
            yield from self._answer(question, sampling or Sampling())
            finished = True
        finally:
            self.memory.mass = None
            if finished:
                self.turns += 1
            else:
                self.memory = before

    def _answer(self, question: str, sampling: Sampling) -> Iterator[AnswerPiece | Answer]:
        started = time.perf_counter()
        prompt = self.model.chat.turn(question, first=self.turns == 0)
        generator = torch.Generator().manual_seed(sampling.seed)
        self._feed(prompt[:-1])
        self.memory.mass = AttentionMass(self.context.source_tokens, torch.device("cpu"))
        token = choose(self.model.logits(self._feed(prompt[-1:])), sampling, generator)
        first_token_sec = time.perf_counter() - started
        ids: list[int] = []
        shown, reason = 0, "length"
        while True:
            if token in self.model.stop_ids:
                reason = "stop"
                break
            ids.append(token)
            text, stopped = _cut(self.model.decode(ids).lstrip(), sampling.stop)
            if stopped:
                reason = "stop"
                break
            ready = _steady(text, sampling.stop)
            if ready > shown:
                yield AnswerPiece(text[shown:ready])
                shown = ready
            # The last token is remembered too, so that the next turn continues the whole answer.
            logits = self.model.logits(self._feed([token]))
            if len(ids) == sampling.max_tokens:
                break
            token = choose(logits, sampling, generator)
        text, _ = _cut(self.model.decode(ids).lstrip(), sampling.stop)
        if len(text) > shown:
            yield AnswerPiece(text[shown:])
        decode_sec = time.perf_counter() - started - first_token_sec
        yield Answer(
            text=text,
            finish_reason=reason,
            passages=passages(self.memory.mass.total),
            prompt_tokens=len(prompt),
            answer_tokens=len(ids),
            time_to_first_token_sec=first_token_sec,
            decode_sec=decode_sec,
            tokens_per_second=len(ids) / decode_sec if ids and decode_sec else 0.0,
            usage=self.memory.usage(),
        )

    def _feed(self, ids: list[int]) -> Tensor:
        """Commit tokens of the conversation; the hidden state [hidden] of the last."""
        hidden = None
        source = torch.full((len(ids),), NOT_IN_SOURCE, dtype=torch.int32)
        chunk = default_chunk(self.model.device.type == "cpu")
        for step in feed(self.model, self.method, self.memory, torch.tensor(ids), source, chunk):
            hidden = step.hidden if step.hidden is not None else hidden
        assert hidden is not None
        return hidden[-1]

    def usage(self) -> Usage:
        """Entries and bytes per tier, the shared context included."""
        return self.memory.usage()

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """The tail, to disk; the context is saved once, elsewhere."""
        parts, meta = self.memory.state()
        return parts, {"memory": meta, "turns": self.turns}

    @classmethod
    def load(cls, context: Context, parts: LoadedParts, meta: dict[str, Any]) -> Conversation:
        """Continue a saved conversation over the same context.

        Raises:
            ContextMismatch: the tail belongs to another context.
        """
        conversation = cls(context)
        restore(conversation.memory, parts, meta["memory"])
        conversation.turns = int(meta["turns"])
        return conversation


def _cut(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The text up to the first stop text, and whether there was one."""
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def _steady(text: str, stops: tuple[str, ...]) -> int:
    """How much of the text can be shown: not half a character, nor what may yet become a stop text."""
    if text.endswith("\N{REPLACEMENT CHARACTER}"):
        return len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
    longest = max((len(stop) for stop in stops), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return len(text) - size
    return len(text)
