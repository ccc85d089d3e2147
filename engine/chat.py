"""How documents and questions are put to a model, in the words of its own chat template.

The text goes into the system message, so that every question is a turn like any other; a template without a system
role gets it as the beginning of the first question. The prompt is cut where text and turns meet: what comes before the
text is read once with it, what comes after belongs to the conversation.
"""

from __future__ import annotations

from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from engine.errors import UnsupportedModel

INSTRUCTION = "Answer questions about the text below. If the answer is not in it, say so.\n\n"
TEXT, QUESTION, ANSWER, NEXT = "<<text>>", "<<question>>", "<<answer>>", "<<next>>"


class Chat:
    """The pieces of a prompt as token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Takes the template apart once.

        Raises:
            UnsupportedModel: the tokenizer has no chat template.
        """
        if not tokenizer.chat_template:
            raise UnsupportedModel("This model has no chat template: choose an instruction-tuned model.")
        self.tokenizer = tokenizer
        try:
            opening = [{"role": "system", "content": INSTRUCTION + TEXT}, {"role": "user", "content": QUESTION}]
            first = self._render(opening)
        except (jinja2.TemplateError, ValueError):
            opening = [{"role": "user", "content": f"{INSTRUCTION}{TEXT}\n\n{QUESTION}"}]
            first = self._render(opening)
        following = self._render(
            [*opening, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": NEXT}]
        )
        if not (TEXT in first and QUESTION in first and ANSWER in following and NEXT in following):
            raise UnsupportedModel("This model's chat template drops the text or the question; it cannot be used.")
        before, rest = first.split(TEXT, 1)
        self.prefix: list[int] = self._ids(before)
        self._first = tuple(rest.split(QUESTION, 1))
        self._following = tuple(following.split(ANSWER, 1)[1].split(NEXT, 1))

    def _render(self, messages: list[dict[str, str]]) -> str:
        rendered = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert isinstance(rendered, str)
        return rendered

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _plain(self, text: str) -> list[int]:
        """Ids of text by a person: special tokens spelled out in it stay text."""
        options: dict[str, Any] = {"add_special_tokens": False, "split_special_tokens": True}
        ids: list[int] = self.tokenizer(text, **options)["input_ids"]
        return ids

    def turn(self, text: str, first: bool = True) -> list[int]:
        """Ids of a question up to where the answer begins.

        first: True for the first turn after the text; False for later ones, which also close the answer before them.
        """
        before, after = self._first if first else self._following
        return [*self._ids(before), *self._plain(text), *self._ids(after)]
