"""Put documents and questions to a model by its own chat template.

The text goes into the system message, so that every question is a turn like any other. If a template has no system
role, drops it, or moves it to the last question, the text begins the first question instead. The prompt is cut where
text and turns meet. The part before the text is read once with it; the part after belongs to the conversation.

A template may open an answer to come differently from an earlier answer, above all if the model is to reason first.
Both openings are kept. If a template tells the model the date, it is the date of the reading, so that the part before a
text never changes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from engine.errors import UnsupportedModel
from engine.models.load_errors import cause_of
from engine.models.template_process import render
from engine.models.thinking import find_marks

INSTRUCTION = "Answer questions about the text below. If the answer is not in it, say so.\n\n"
ENCODE_CHARACTERS = 200_000  # of text that are tokenised at a time; more only costs memory
TEXT, QUESTION, ANSWER, NEXT = "<<text>>", "<<question>>", "<<answer>>", "<<next>>"
SIGNS = re.compile("|".join((TEXT, QUESTION, ANSWER, NEXT)))
MARKER = re.compile(r"[<\[].+[>\]]", re.DOTALL)
TODAY = re.compile(
    r"""strftime_now\(\s*(?P<quote>["'])(?P<format>.*?)(?P=quote)\s*\)"""
)  # how templates ask for the date
OPENINGS = (  # the first that a template keeps in order is taken
    [{"role": "system", "content": INSTRUCTION + TEXT}, {"role": "user", "content": QUESTION}],
    [{"role": "user", "content": f"{INSTRUCTION}{TEXT}\n\n{QUESTION}"}],
)
LATER = [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": NEXT}]


@dataclass(frozen=True)
class Encoding:
    """The tokens of a text."""

    ids: Tensor  # int64 [T]
    starts: Tensor  # int64 [T], the first character of each token in the text


class Chat:
    """The parts of a prompt as token ids."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        day: date | None = None,
        openings: Sequence[list[dict[str, str]]] = (),
    ) -> None:
        """Split the template into its parts.

        Args:
            tokenizer: has the template.
            day: the date that it is told; None for today.
            openings: forms of the first question's messages, with the signs TEXT and QUESTION in them. The first form
                that the template keeps in order is used. Without any, those of OPENINGS are tried.

        Raises:
            UnsupportedModel: the tokenizer has no chat template, or one that fails or loses the text.
        """
        if not tokenizer.chat_template:
            name = tokenizer.name_or_path or "This model"
            raise UnsupportedModel(f"{name} has no chat template: choose an instruction-tuned model.")
        self.tokenizer, self.day = tokenizer, day or date.today()
        first, following = self._first_turns(openings or OPENINGS)
        before, rest = first.split(TEXT, 1)
        self.prefix: list[int] = self._ids(before)
        self._first, soon = rest.split(QUESTION, 1)
        past, future = following.split(ANSWER, 1)
        self._following, later = future.split(NEXT, 1)
        self._openings = (soon, later)
        self._answered = past.split(QUESTION, 1)[1]
        self.marks = find_marks(tokenizer, soon, self._answered)
        self._turn_lengths: dict[str, int] = {}

    def _first_turns(self, openings: Sequence[list[dict[str, str]]]) -> tuple[str, str]:
        """Return the prompts of the first question and of the next one, with signs in place of all contents."""
        try:
            template = self.tokenizer.get_chat_template()
            if not isinstance(template, str):
                raise ValueError(f"it is {template!r:.80}, and no text")
            dated = TODAY.sub(lambda call: repr(self.day.strftime(call["format"])), template)
            variables = self.tokenizer.special_tokens_map
            rendered = render(dated, [[*each, *more] for each in openings for more in ((), LATER)], variables)
        except ValueError as error:
            raise _unusable(cause_of(error)) from error
        cause = ""
        for first, following in zip(rendered[::2], rendered[1::2], strict=True):
            if failed := first.get("error") or following.get("error"):
                cause = cause_of(ValueError(failed))
                continue
            prompts = first["text"], following["text"]
            if [SIGNS.findall(each) for each in prompts] == [[TEXT, QUESTION], [TEXT, QUESTION, ANSWER, NEXT]]:
                return prompts
            cause = "it drops or doubles the text or a turn, or puts them into another order"
        raise _unusable(cause)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _plain(self, text: str) -> list[int]:
        """Return the ids of a person's text: special tokens spelled out in it stay text."""
        options: dict[str, Any] = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        inside = [found.start() + 1 for found in self._markers.finditer(text)] if self._markers else []
        cuts = [0, *inside, len(text)]  # behind the first letter of each
        pieces = [text[begin:end] for begin, end in itertools.pairwise(cuts)]
        return [number for piece in pieces for number in self.tokenizer(piece, **options)["input_ids"]]

    @cached_property
    def _markers(self) -> re.Pattern[str] | None:
        """Added tokens that are no special ones, such as </think>; `split_special_tokens` does not split these."""
        added = self.tokenizer.added_tokens_decoder.values()
        found = {each.content for each in added if not each.special and MARKER.fullmatch(each.content)}
        return re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True)))) if found else None

    def own_ids(self) -> set[int]:
        """Return the ids of everything that the template adds to contents."""
        pieces = self._first, self._following, self._answered, *self._openings
        return {*self.prefix, *self.closing(), *(number for piece in pieces for number in self._ids(piece))}

    def encode(self, text: str, on_piece: Callable[[int], None] = lambda characters: None) -> Encoding:
        """Return the tokens of a document's text. Special tokens spelled out in it stay text.

        on_piece: called now and then with the number of characters done; may raise to stop.
        """
        ids: list[Tensor] = []
        starts: list[Tensor] = []
        at = 0
        while at < len(text):
            end = len(text) if at + ENCODE_CHARACTERS >= len(text) else text.rfind("\n", at, at + ENCODE_CHARACTERS) + 1
            if end <= at:
                end = at + ENCODE_CHARACTERS
            if self._markers and (marker := self._markers.search(text, at, end)):
                end = marker.start() + 1
            piece = self.tokenizer(
                text[at:end],
                add_special_tokens=False,
                return_offsets_mapping=True,
                split_special_tokens=True,
                verbose=False,  # no warning about texts longer than the model's window
            )
            ids.append(torch.tensor(piece["input_ids"], dtype=torch.long))
            starts.append(torch.tensor([start for start, _ in piece["offset_mapping"]], dtype=torch.long) + at)
            at = end
            on_piece(at)
        empty = torch.zeros(0, dtype=torch.long)
        return Encoding(torch.cat(ids or [empty]), torch.cat(starts or [empty]))

    def question(self, text: str, first: bool = True) -> list[int]:
        """Return the ids of a question alone.

        first: True for the first turn after the text; False for later ones, which also close the answer before them.
        """
        return [*self._ids(self._first if first else self._following), *self._plain(text)]

    def opening(self, first: bool = True, reasoning: bool = True) -> list[int]:
        """Return the ids between a question and the answer to come. reasoning: False to answer at once."""
        opening = self._openings[not first]
        if reasoning or not self.marks:
            return self._ids(opening)
        if self._answered.rstrip().endswith(self.marks.close):  # as the template itself skips reasoning
            return self.answered()
        return self._ids(opening + self.marks.skipping(opening))

    def answered(self) -> list[int]:
        """Return the ids between a question and its answer in an earlier turn, without reasoning."""
        return self._ids(self._answered)

    def told(self, question: str, answer: str, first: bool) -> list[int]:
        """Return the ids of an earlier turn, up to the end of its answer and without reasoning; first: see `question`.

        If the answer tokenises to the ids that were generated, these are the ids that a conversation remembers.
        """
        between = self.answered() if self.marks else self.opening(first)
        return [*self.question(question, first), *between, *self._plain(answer)]

    def opens_reasoning(self, first: bool) -> bool:
        """Return whether the opening ends in the sign that begins reasoning."""
        return self.marks is not None and self.marks.opens(self._openings[not first])

    def closing(self) -> list[int]:
        """Return the ids that end reasoning early; none for a model that does not reason."""
        return self._ids(self.marks.ending) if self.marks else []

    @cached_property
    def end(self) -> int | None:
        """The special token that ends an answer in the template, None if none does."""
        number = next(iter(self._ids(self._following)), None)
        added = self.tokenizer.added_tokens_decoder
        return number if number in added and added[number].special else None

    def turn(self, text: str, first: bool = True) -> list[int]:
        """Return the ids of a question up to the answer; first: see `question`."""
        return [*self.question(text, first), *self.opening(first)]

    def turn_length(self, text: str) -> int:
        """Return the number of tokens that a text takes as a turn."""
        if text not in self._turn_lengths:
            self._turn_lengths[text] = len(self.turn(text))
        return self._turn_lengths[text]


def _unusable(cause: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"This model's chat template cannot be used: {cause}. Choose an instruction-tuned model, or put a template "
        f"that works into its chat_template.jinja."
    )
