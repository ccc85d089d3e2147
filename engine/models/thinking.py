"""Separate reasoning from answers.

The signs around a model's reasoning come from its tokenizer and chat template (`</think>`, `[/THINK]`, `</reasoning>`
and the like, or a channel of thought). No model is known here by name. Reasoning begins an answer: the model writes the
opening sign, or its template has written it. A model may instead write several messages and name the channel of each:
the last, `final`, is its answer, and those before it are reasoning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

CLOSING = re.compile(r"(?P<left>[<\[])/(?P<name>[A-Za-z_]*(?:think|reason|thought)[A-Za-z_]*)(?P<right>[>\]])", re.I)

THOUGHT = ("<|channel>", "<channel|>")  # tokens around the name of a channel and its message, in Gemma 4

CHANNEL = re.compile(r"(?P<open><[^<>]+>)final(?P<named><[^<>]+>)")

MOST_BLANK = 32  # tokens of line ends between reasoning and answer


@dataclass(frozen=True)
class Marks:
    """The signs around a model's reasoning, as text."""

    open: str
    close: str
    gap: str = field(default="\n", kw_only=True)  # after a sign on a line of its own

    @property
    def ending(self) -> str:
        """Text that ends reasoning early."""
        return f"\n{self.close}{2 * self.gap}"

    def opens(self, opening: str) -> bool:
        """Return whether an opening ends in the sign that begins reasoning."""
        return opening.rstrip().endswith(self.open.rstrip())

    def skipping(self, opening: str) -> str:
        """Return the text that follows an opening to make the model answer at once."""
        if opening.rstrip().endswith(self.close):
            return ""
        return self.ending if self.opens(opening) else f"{self.open.rstrip()}{self.gap}{self.ending}"

    def answers(self, text: str) -> bool:
        """Return whether a text is a sign that begins an answer without reasoning."""
        return False

    def begun(self, text: str) -> str | None:
        """Return the reasoning at the beginning of a text; None if it has not begun."""
        return text.removeprefix(self.open) if text.startswith(self.open) else None

    def may_begin(self, text: str) -> bool:
        """Return whether a longer text may still turn out to be reasoning."""
        return self.open.startswith(text)

    def never_said(self, text: str) -> bool:
        """Return whether an undecided text at the end is no answer."""
        return False

    def parted(self, text: str) -> tuple[str, bool]:
        """Return the reasoning in a text, and whether it has ended."""
        reasoning, closing, _ = text.partition(self.close)
        return reasoning, bool(closing)

    def messages(self, reasoning: str) -> list[str]:
        """Return the messages of a reasoning, without signs."""
        return [reasoning]

    def without_half(self, reasoning: str) -> str:
        """Return a reasoning that may go on, without a part of the closing sign at its end."""
        halves = (self.close[:size] for size in range(len(self.close) - 1, 0, -1))
        return reasoning.removesuffix(next((half for half in halves if reasoning.endswith(half)), ""))


@dataclass(frozen=True)
class Channels(Marks):
    """The signs of a model that writes several messages, each on a channel; `final` is the answer.

    open: before the name of a channel; close: from the end of the reasoning to the beginning of the answer.
    """

    named: str  # after the name of a channel, which more words may follow

    @property
    def ending(self) -> str:
        """Everything up to the answer."""
        return self.close

    def skipping(self, opening: str) -> str:
        """Return the sign of the answer's channel."""
        return self.close.removeprefix(self._before)

    def answers(self, text: str) -> bool:
        """Return whether a text is the sign of the answer's channel."""
        return bool(re.fullmatch(self._final, text, re.DOTALL))

    def begun(self, text: str) -> str | None:
        """Return the text after the name of its channel; None if there is none yet."""
        return text.partition(self.named)[2] if text.startswith(self.open) and self.named in text else None

    def may_begin(self, text: str) -> bool:
        """Return True also while the channel is being named."""
        return super().may_begin(text) or self.never_said(text)

    def never_said(self, text: str) -> bool:
        """Return whether a text names a channel, or begins to."""
        return text.startswith(self.open)

    def parted(self, text: str) -> tuple[str, bool]:
        """Return the text before a message on the answer's channel, and whether there is one."""
        found = re.search(re.escape(self._before) + self._final, text, re.DOTALL)
        return (text, False) if found is None else (text[: found.start()], True)

    def messages(self, reasoning: str) -> list[str]:
        """Return the messages of a reasoning; the last is empty while its channel is being named."""
        sign = re.escape(self._before + self.open)
        return re.split(f"{sign}.*?(?:{re.escape(self.named)}|$)", reasoning, flags=re.DOTALL)

    @property
    def _before(self) -> str:
        """Text before the channel of every message but the first."""
        return self.close[: self.close.rindex(self.open)]

    @property
    def _final(self) -> str:
        """Pattern of the sign of the answer's channel."""
        return rf"{re.escape(self.open)}final\b.*?{re.escape(self.named)}"


def find_marks(tokenizer: PreTrainedTokenizerBase, opening: str = "", answered: str = "") -> Marks | None:
    """Return the signs of a model that reasons, None if it does not: its own tokens, or named by its template.

    opening, answered: texts that its template puts before an answer to come, and before an earlier answer.
    """
    channel = CHANNEL.fullmatch(answered.removeprefix(opening))
    if channel is not None:
        return Channels(channel["open"], answered, channel["named"])
    vocabulary = tokenizer.get_added_vocab()
    if all(sign in vocabulary for sign in THOUGHT):
        return Marks(f"{THOUGHT[0]}thought\n", THOUGHT[1], gap="")
    added = " ".join(sorted(vocabulary))
    template = tokenizer.chat_template
    for text in (added, template if isinstance(template, str) else ""):
        found = CLOSING.search(text)
        if found is not None:
            return Marks(f"{found['left']}{found['name']}{found['right']}", found[0])
    return None


class Speech:
    """Separates the tokens of one answer, as they come, into reasoning and answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, marks: Marks | None, opened: bool) -> None:
        """Prepare for one answer.

        marks: None for a model that does not reason; opened: the prompt ended in the opening sign.
        """
        self.tokenizer, self.marks = tokenizer, marks
        self.thinking: bool | None = (opened or None) if marks else False  # None: undecided
        self.reasoned: list[int] = []  # ids of the reasoning, signs included
        self.said: list[int] = []  # ids of the answer itself
        self.blank = 0  # tokens of line ends between both, which belong to neither
        self._reasoning = ""

    @property
    def decided(self) -> bool:
        """True if the next token belongs to the answer, or if nothing has been written yet."""
        return self.thinking is False or (self.thinking is None and not self.reasoned)

    def add(self, token: int) -> None:
        """Take the next token."""
        if self.marks is None or self.thinking is False:
            self._say(token)
            return
        self.reasoned.append(token)
        text = self._text()
        if self.thinking is None and self.marks.answers(text):
            self.thinking, self.reasoned = False, []
        elif (begun := self.marks.begun(text)) is not None:
            self.thinking, text = True, begun
        elif self.marks.may_begin(text):
            return
        elif self.thinking is None:
            self.thinking, tokens, self.reasoned = False, self.reasoned, []
            for each in tokens:
                self._say(each)
        if self.thinking:
            self._reasoning, closed = self.marks.parted(text)
            self.thinking = not closed

    def _text(self) -> str:
        """Return the text that may be reasoning, signs included."""
        return str(self.tokenizer.decode(self.reasoned, skip_special_tokens=False)).lstrip()

    def end(self) -> None:
        """End the answer: an unfinished opening sign is a part of it, unless it names a channel."""
        if self.thinking is None and self.marks and not self.marks.never_said(self._text()):
            self.said, self.reasoned = self.reasoned, []

    def _say(self, token: int) -> None:
        if self.said or not self.reasoned or str(self.tokenizer.decode([token])).strip():
            self.said.append(token)
        else:
            self.blank += 1

    def is_over(self, max_tokens: int, max_reasoning: int) -> bool:
        """Return whether the answer has reached its limit, or goes on with line ends only."""
        undecided = len(self.reasoned) if self.thinking is None else 0
        return len(self.said) >= max_tokens or self.blank >= MOST_BLANK or undecided >= max(max_reasoning, MOST_BLANK)

    @property
    def reasoning(self) -> str:
        """Reasoning so far, without its signs; a part of a sign or character at its end is held back."""
        text = self._reasoning.rstrip("\N{REPLACEMENT CHARACTER}")
        if self.marks is None:
            return ""
        text = self.marks.without_half(text) if self.thinking else text
        return "\n\n".join(each.strip() for each in self.marks.messages(text)).strip()
