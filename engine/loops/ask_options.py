"""Options of one question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.parts.sources import SentenceEnd


@dataclass(frozen=True)
class AskOptions:
    """Options of `Conversation.ask` beside the sampling.

    Attributes:
        on_pass: called after each pass over the question, before the first piece. An exception of it cancels the turn.
        on_passages: called before passages are read again, and after each pass over them, with the tokens that are read
            and all of them.
        sentence_end: finds the end of whole sentences; the answer then has sources for each sentence. None for none.
        repetition_start: called at each token with the answer so far, or with the reasoning before it. It returns how
            many characters to keep because the rest only repeats them, or None to go on. The answer is cut there and
            ends; the reasoning ends uncut.
        pass_tokens: most tokens of a pass over the question, rounded up to whole blocks of the method's queries. None
            for as many as keep the device busy; with fewer, `on_pass` is called sooner.
        text_ids: int64 [T], tokens of the text, for drafts of an answer; None for drafts from the chat alone.
        rules: text to put before the question, which the conversation does not remember.
    """

    on_pass: Callable[[], None] = lambda: None
    on_passages: Callable[[int, int], None] = lambda done, total: None
    sentence_end: SentenceEnd | None = None
    repetition_start: Callable[[str], int | None] = lambda text: None
    pass_tokens: int | None = None
    text_ids: Tensor | None = None
    rules: str = ""

    def ruled(self, question: str) -> str:
        """Return a question with the rules before it."""
        return f"{self.rules}\n\n{question}" if self.rules else question
