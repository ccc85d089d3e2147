"""What most benchmarks do to a model: read a text to its end, and ask for one answer."""

from __future__ import annotations

from torch import Tensor

from engine import Answer, Conversation, Method, Model, Reader, Sampling

ANSWER = 32  # tokens at most


def read(model: Model, method: Method, ids: Tensor) -> Reader:
    """A reader that has read a whole text with a method."""
    return read_on(Reader(model, method, ids))


def read_on(reader: Reader) -> Reader:
    """The same reader, when it has read to its end."""
    for _ in reader.run():
        pass
    return reader


def answer_to(
    conversation: Conversation,
    question: str,
    most: int = ANSWER,
    text: Tensor | None = None,
    named: Tensor | None = None,
) -> Answer:
    """The greedy answer of at most so many tokens. text: may be read again, what is looked at or these tokens of it."""
    *_, answer = conversation.ask(question, Sampling(max_tokens=most), text=text, named=named)
    assert isinstance(answer, Answer)
    return answer
