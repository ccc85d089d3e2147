"""Steps that most benchmarks share: read a whole text, and ask for one answer."""

from __future__ import annotations

from torch import Tensor

from engine import Answer, AskOptions, Conversation, Method, Model, Reader, Sampling

ANSWER = 32  # tokens at most


def read(model: Model, method: Method, ids: Tensor) -> Reader:
    """Return a reader that has read a whole text with a method."""
    return read_on(Reader(model, method, ids))


def read_on(reader: Reader) -> Reader:
    """Run a reader to its end and return it."""
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
    """Return the greedy answer, of at most `most` tokens.

    Args:
        conversation: goes on with the question and its answer.
        question: of a person, without a template.
        most: tokens of the answer, at most.
        text: ids of the text, to read passages again before the answer; None not to.
        named: int64 [N], tokens of `text` to read again; None for passages that the question attends to.
    """
    *_, answer = conversation.ask(question, Sampling(max_tokens=most), AskOptions(text=text, named=named))
    assert isinstance(answer, Answer)
    return answer
