"""Steps that most benchmarks share: read a whole text, and ask for one answer."""

from __future__ import annotations

from torch import Tensor

from engine import (
    Answer,
    AskOptions,
    Context,
    Conversation,
    Method,
    Model,
    Reader,
    ReadText,
    Sampling,
    answer_from_text,
    make_method,
)
from engine.loops.context import new_memory

ANSWER = 32  # tokens at most


def read(model: Model, method: Method, ids: Tensor) -> Reader:
    """Return a reader that has read a whole text with a method."""
    return read_on(Reader(model, method, ids))


def read_on(reader: Reader) -> Reader:
    """Run a reader to its end and return it."""
    for _ in reader.run():
        pass
    return reader


def having_read_nothing(model: Model, tokens: int) -> Context:
    """Return the context of a text of so many tokens without any of it in its memory, so that passages answer."""
    method = make_method("full")
    return Context(model, method, new_memory(model, method), tokens)


def answer_to(
    conversation: Conversation,
    question: str,
    most: int = ANSWER,
    text: ReadText | None = None,
) -> Answer:
    """Return the greedy answer, of at most `most` tokens.

    Args:
        conversation: goes on with the question and its answer.
        question: of a person, without a template.
        most: tokens of the answer, at most.
        text: where passages are found, to answer from them as the app does; None to answer from the memory.
    """
    sampling, options = Sampling(max_tokens=most), AskOptions()
    if text is None:
        *_, answer = conversation.ask(question, sampling, options)
    else:
        *_, answer = answer_from_text(conversation, question, text, sampling, options)
    assert isinstance(answer, Answer)
    return answer
