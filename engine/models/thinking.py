"""Models that reason before they answer: where the reasoning begins and ends, found in the model's own words.

Which signs a model puts around its reasoning is read from its tokenizer and chat template (`</think>`, `[/THINK]`,
`</reasoning>` and the like name themselves), so no model is known here by name. Reasoning stands at the beginning of an
answer: the model writes the opening sign, or its template has written it already.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

CLOSING = re.compile(r"(?P<left>[<\[])/(?P<name>[A-Za-z_]*(?:think|reason|thought)[A-Za-z_]*)(?P<right>[>\]])", re.I)

MOST_BLANK = 32  # tokens of line ends between reasoning and answer


@dataclass(frozen=True)
class Marks:
    """The signs around a model's reasoning, as text."""

    open: str
    close: str


def find_marks(tokenizer: PreTrainedTokenizerBase) -> Marks | None:
    """The signs of a model that reasons: tokens of its own, or else named by its template; None if it has none."""
    added = " ".join(sorted(tokenizer.get_added_vocab()))
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

    def add(self, token: int) -> None:
        """The next token."""
        if self.marks is None or self.thinking is False:
            self._say(token)
            return
        self.reasoned.append(token)
        text = str(self.tokenizer.decode(self.reasoned, skip_special_tokens=False)).lstrip()
        if text.startswith(self.marks.open):
            self.thinking, text = True, text.removeprefix(self.marks.open)
        elif self.marks.open.startswith(text):
            return  # it may yet become the opening sign
        elif self.thinking is None:
            self.thinking, tokens, self.reasoned = False, self.reasoned, []
            for each in tokens:
                self._say(each)
        if self.thinking:
            self._reasoning, closing, _ = text.partition(self.marks.close)
            self.thinking = not closing

    def end(self) -> None:
        """Nothing follows: what might have become an opening sign was said after all."""
        if self.thinking is None:
            self.said, self.reasoned = self.reasoned, []

    def _say(self, token: int) -> None:
        if self.said or not self.reasoned or str(self.tokenizer.decode([token])).strip():
            self.said.append(token)
        else:
            self.blank += 1

    def is_over(self, max_tokens: int, max_reasoning: int) -> bool:
        """Whether as much has been said as may be, or nothing but line ends, so that nothing else is expected."""
        undecided = len(self.reasoned) if self.thinking is None else 0
        return len(self.said) >= max_tokens or self.blank >= MOST_BLANK or undecided >= max_reasoning

    @property
    def reasoning(self) -> str:
        """The reasoning so far, without its signs; half a sign or half a character at its end is held back."""
        text = self._reasoning.rstrip("\N{REPLACEMENT CHARACTER}")
        if self.thinking and self.marks:
            halves = (self.marks.close[:size] for size in range(len(self.marks.close) - 1, 0, -1))
            text = text.removesuffix(next((half for half in halves if text.endswith(half)), ""))
        return text.strip()
