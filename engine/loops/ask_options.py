"""Options of one question: callbacks, the text to read again, and the tokens that a person named."""

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
        sentence_end: finds the end of whole sentences; the answer then has sources for each sentence. None for none.
        text: int64 [source tokens], the text as far as it has been read, so that passages can be read again. None to
            answer from the memory alone.
        named: int64 [N], ascending positions in the text that a person named. They are read again whatever the memory
            holds of them, or searched alone if the method keeps everything. None for the passages that the question
            attends to, if the method forgets.
        repetition_start: called at each token with the answer so far, or with the reasoning before it. It returns how
            many characters to keep because the rest only repeats them, or None to go on. The answer is cut there and
            ends; the reasoning ends uncut.
        pass_tokens: most tokens of a pass over the question, rounded up to whole blocks of the method's queries. None
            for as many as keep the device busy; with fewer, `on_pass` is called sooner.
    """

    on_pass: Callable[[], None] = lambda: None
    sentence_end: SentenceEnd | None = None
    text: Tensor | None = None
    named: Tensor | None = None
    repetition_start: Callable[[str], int | None] = lambda text: None
    pass_tokens: int | None = None
