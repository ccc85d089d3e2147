"""The length of a question in tokens, which is what an answer takes time and memory for."""

from app.errors import UsageError
from app.reading.methods import spec_of
from app.service import Service
from sessions import ContextRow

SHORT = 1024
"""Bytes of a question that are not counted; as many tokens are worked on in seconds."""


def require_fits(service: Service, context: ContextRow, question: str, called: str = "The question") -> None:
    """Refuse a question with more tokens than the model of a context can look at.

    Letters tell little: in some scripts each takes four tokens. A short question is not counted, as no token is shorter
    than a byte.

    called: its name in a refusal.

    Raises:
        UsageError: with the number of tokens, and the window.
    """
    if len(question.encode(errors="replace")) <= SHORT:
        return
    window = spec_of(context.model).window
    tokens = len(service.models.chat(context.model).turn(question))
    if tokens > window:
        raise UsageError(
            f"{called} has {tokens:,} tokens, and the model looks at {window:,} at a time: shorten it, or give a "
            "long text as a file."
        )
