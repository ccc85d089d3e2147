"""Models that reason before they answer: where the reasoning begins and ends, found in the model's own words.

Which signs a model puts around its reasoning is read from its tokenizer and chat template (`</think>`, `[/THINK]`,
`</reasoning>` and the like name themselves, and so does a channel of thought), so no model is known here by name.
Reasoning stands at the beginning of an answer: the model writes the opening sign, or its template has written it
already. A model may instead say several messages, and name the channel of each: the last, `final`, is its answer, and
what comes before is reasoning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

CLOSING = re.compile(r"(?P<left>[<\[])/(?P<name>[A-Za-z_]*(?:think|reason|thought)[A-Za-z_]*)(?P<right>[>\]])", re.I)

THOUGHT = ("<|channel>", "<channel|>")  # tokens around the name of a channel and what is said on it: Gemma 4's

CHANNEL = re.compile(r"(?P<open><[^<>]+>)final(?P<named><[^<>]+>)")

MOST_BLANK = 32  # tokens of line ends between reasoning and answer


@dataclass(frozen=True)
class Marks:
    """The signs around a model's reasoning, as text.

    open: stands before it; close: behind it; gap: between a sign that stands by itself and what follows.
    """

    open: str
    close: str
    gap: str = field(default="\n", kw_only=True)

    @property
    def ending(self) -> str:
        """What ends a reasoning from outside."""
        return f"\n{self.close}{2 * self.gap}"

    def opens(self, opening: str) -> bool:
        """Whether an opening ends in the sign after which the model reasons."""
        return opening.rstrip().endswith(self.open.rstrip())

    def skipping(self, opening: str) -> str:
        """What follows an opening where the model is to answer at once."""
        if opening.rstrip().endswith(self.close):
            return ""
        return self.ending if self.opens(opening) else f"{self.open.rstrip()}{self.gap}{self.ending}"

    def answers(self, text: str) -> bool:
        """Whether a text is a sign with which an answer begins where nothing was reasoned."""
        return False

    def begun(self, text: str) -> str | None:
        """What is reasoned in a text that begins so; None as long as it has not begun."""
        return text.removeprefix(self.open) if text.startswith(self.open) else None

    def may_begin(self, text: str) -> bool:
        """Whether more of a text may decide what it is."""
        return self.open.startswith(text)

    def never_said(self, text: str) -> bool:
        """Whether a text that was not decided is no answer, though nothing follows it."""
        return False

    def parted(self, text: str) -> tuple[str, bool]:
        """A reasoning up to where it ends, and whether it does."""
        reasoning, closing, _ = text.partition(self.close)
        return reasoning, bool(closing)

    def messages(self, reasoning: str) -> list[str]:
        """What a reasoning consists of, without signs between."""
        return [reasoning]

    def without_half(self, reasoning: str) -> str:
        """A reasoning that may go on, without what may be half of the closing sign at its end."""
        halves = (self.close[:size] for size in range(len(self.close) - 1, 0, -1))
        return reasoning.removesuffix(next((half for half in halves if reasoning.endswith(half)), ""))


@dataclass(frozen=True)
class Channels(Marks):
    """Those of a model that says several messages, each on a channel, of which `final` is the answer's.

    open, named: stand before and behind the name of a channel, which may have words behind it; close: behind the
    reasoning, up to where the answer begins.
    """

    named: str

    @property
    def ending(self) -> str:
        """All up to the answer."""
        return self.close

    def skipping(self, opening: str) -> str:
        """The sign of the answer's channel."""
        return self.close.removeprefix(self._before)

    def answers(self, text: str) -> bool:
        """Whether it is the sign of the answer's channel."""
        return bool(re.fullmatch(self._final, text, re.DOTALL))

    def begun(self, text: str) -> str | None:
        """What stands behind the name of its channel."""
        return text.partition(self.named)[2] if text.startswith(self.open) and self.named in text else None

    def may_begin(self, text: str) -> bool:
        """Also while the channel is named."""
        return super().may_begin(text) or self.never_said(text)

    def never_said(self, text: str) -> bool:
        """Whether it names a channel, or begins to."""
        return text.startswith(self.open)

    def parted(self, text: str) -> tuple[str, bool]:
        """Up to a message on the answer's channel."""
        found = re.search(re.escape(self._before) + self._final, text, re.DOTALL)
        return (text, False) if found is None else (text[: found.start()], True)

    def messages(self, reasoning: str) -> list[str]:
        """Those of a reasoning; the last is empty where the name of its channel is still to come."""
        sign = re.escape(self._before + self.open)
        return re.split(f"{sign}.*?(?:{re.escape(self.named)}|$)", reasoning, flags=re.DOTALL)

    @property
    def _before(self) -> str:
        """What stands before the sign of the channel of every message but the first."""
        return self.close[: self.close.rindex(self.open)]

    @property
    def _final(self) -> str:
        """A pattern of the sign of the answer's channel."""
        return rf"{re.escape(self.open)}final\b.*?{re.escape(self.named)}"


def find_marks(tokenizer: PreTrainedTokenizerBase, opening: str = "", answered: str = "") -> Marks | None:
    """The signs of a model that reasons: tokens of its own, or else named by its template; None if it has none.

    Args:
        opening: what its template puts before an answer that is to come; answered: before one that has been given.
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
    """The tokens of one answer as they come, parted into reasoning and what is said."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, marks: Marks | None, opened: bool) -> None:
        """marks: None for a model that does not reason; opened: whether the prompt ended in the opening sign."""
        self.tokenizer, self.marks = tokenizer, marks
        self.thinking: bool | None = (opened or None) if marks else False  # None: not known yet
        self.reasoned: list[int] = []  # ids of the reasoning, signs included
        self.said: list[int] = []  # ids of the answer itself
        self.blank = 0  # tokens of line ends between both, which belong to neither
        self._reasoning = ""

    @property
    def decided(self) -> bool:
        """Whether it is known to be the answer that goes on, or nothing has been said yet."""
        return self.thinking is False or (self.thinking is None and not self.reasoned)

    def add(self, token: int) -> None:
        """The next token."""
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
        """What may be reasoning, signs included."""
        return str(self.tokenizer.decode(self.reasoned, skip_special_tokens=False)).lstrip()

    def end(self) -> None:
        """Nothing follows: what might have become an opening sign was said after all, unless it names a channel."""
        if self.thinking is None and self.marks and not self.marks.never_said(self._text()):
            self.said, self.reasoned = self.reasoned, []

    def _say(self, token: int) -> None:
        if self.said or not self.reasoned or str(self.tokenizer.decode([token])).strip():
            self.said.append(token)
        else:
            self.blank += 1

    def is_over(self, max_tokens: int, max_reasoning: int) -> bool:
        """Whether as much has been said as may be, or nothing but line ends, so that nothing else is expected."""
        undecided = len(self.reasoned) if self.thinking is None else 0
        return len(self.said) >= max_tokens or self.blank >= MOST_BLANK or undecided >= max(max_reasoning, MOST_BLANK)

    @property
    def reasoning(self) -> str:
        """The reasoning so far, without its signs; half a sign or half a character at its end is held back."""
        text = self._reasoning.rstrip("\N{REPLACEMENT CHARACTER}")
        if self.marks is None:
            return ""
        text = self.marks.without_half(text) if self.thinking else text
        return "\n\n".join(each.strip() for each in self.marks.messages(text)).strip()
