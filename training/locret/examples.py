"""What retaining heads are trained on: a prompt, and the tokens whose queries tell what of it mattered.

Step s takes examples s * batch, s * batch + 1, ...; an example depends on the seed and its number alone, so a run that
was stopped and resumed sees what an uninterrupted one sees.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine import Model, SettingsError
from training.locret.settings import LocretSettings
from training.pocket.documents import Builder, Recipe
from training.pocket.facts import FactMaker
from training.pocket.prepare import prepare
from training.pocket.prose import DataMissing
from training.pocket.settings import PocketSettings

CUT_ROOM = 64  # tokens of a long text that must remain beside question and answer


@dataclass(frozen=True)
class Example:
    """One sequence.

    ids: int64 [T]; prompt: the first so many tokens are scored; asking: bool [T], the tokens whose queries say what
    mattered: for each answer its own tokens and the one before them, as the paper's label has it, or all of the turns.
    None of them is earlier than the prompt's last token.
    """

    ids: Tensor
    prompt: int
    asking: Tensor


class Examples(Protocol):
    """Where examples come from."""

    def draw(self, number: int) -> Example:
        """The example with that number, the same at every call."""

    def held_out(self, number: int) -> Example:
        """One that `draw` never gives."""


class Generated:
    """Documents with facts in prose and a conversation about them, as the pocket model was trained on."""

    def __init__(self, settings: LocretSettings, model: Model) -> None:
        """Loads the tokenised prose of the pocket model's training.

        Raises:
            SettingsError: there is none, nor books to make it from; or it was tokenised for another model.
        """
        try:
            materials = prepare(PocketSettings(data_dir=settings.data_dir, work_dir=settings.pocket_dir))
        except DataMissing as error:
            raise SettingsError(f"{error}. Or give examples of your own: data=FILE.jsonl.") from error
        if materials.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            raise SettingsError(
                f"The prose in {settings.pocket_dir} was tokenised for another model than {settings.model}: give "
                f"data=FILE.jsonl, or the pocket_dir of this model's own training."
            )
        self._seed, self._whole_turns = settings.seed, settings.queries == "turn"
        self._builder = materials.builder()
        self._measuring = Builder(materials.tokenizer, materials.held_out, FactMaker(materials.nouns), reserved=True)
        lengths = {256: (2, 5), 512: (3, 9), 1024: (4, 14)}
        self._recipes = [
            Recipe(length, "chat", facts=facts, turns=8, quotes=0.12, filler=0.05, reading=0.05)
            for length, facts in lengths.items()
            if length <= settings.max_tokens
        ]

    def draw(self, number: int) -> Example:
        """From the training share of the prose."""
        return self._make(self._builder, f"{self._seed}/{number}")

    def held_out(self, number: int) -> Example:
        """From held-out books, with names kept for measuring."""
        return self._make(self._measuring, f"held out/{self._seed}/{number}")

    def _make(self, builder: Builder, seed: str) -> Example:
        rng = random.Random(seed)
        while True:
            row = builder.build(rng, rng.choice(self._recipes))
            answers = torch.from_numpy(row.weights[: row.used]) > 0
            if answers.any() and row.document > 0:
                asking = torch.arange(row.used) >= row.document if self._whole_turns else answers.roll(-1)
                return Example(torch.from_numpy(row.ids[: row.used]), row.document, asking)


class Rows:
    """Text, question and answer from a JSONL file, put to the model in the words of its chat template."""

    def __init__(self, settings: LocretSettings, model: Model) -> None:
        """Checks every line once and remembers where it begins.

        Raises:
            SettingsError: no such file, a line that is not what it should be, or too few lines.
        """
        assert settings.data is not None
        if not settings.data.is_file():
            raise SettingsError(f"There is no file {settings.data}: give a JSONL file of text, question and answer.")
        self._settings, self._model, self._path = settings, model, settings.data
        starts = []
        with open(self._path, "rb") as file:
            at = 0
            for number, line in enumerate(file, start=1):
                if line.strip():
                    self._parse(line, number)
                    starts.append(at)
                at += len(line)
        random.Random(settings.seed).shuffle(starts)
        if len(starts) <= settings.held_out:
            raise SettingsError(
                f"{self._path} has {len(starts)} rows, and {settings.held_out} are held out: give more rows, or a "
                f"smaller held_out."
            )
        self._held_out, self._starts = starts[: settings.held_out], starts[settings.held_out :]

    def _parse(self, line: bytes, number: int) -> tuple[str, str, str]:
        """The text, question and answer of a line."""
        try:
            row = json.loads(line)
            fields = tuple(row[name] for name in ("text", "question", "answer"))
        except (ValueError, KeyError, TypeError):
            fields = ()
        if not (fields and all(isinstance(field, str) and field.strip() for field in fields)):
            raise SettingsError(
                f"Line {number} of {self._path} is not an object with the texts 'text', 'question' and 'answer'."
            )
        return fields[0], fields[1], fields[2]

    def draw(self, number: int) -> Example:
        """Every row in turn, in an order of the seed's."""
        return self._read(self._starts[number % len(self._starts)])

    def held_out(self, number: int) -> Example:
        """From rows set apart."""
        return self._read(self._held_out[number % len(self._held_out)])

    def _read(self, start: int) -> Example:
        with open(self._path, "rb") as file:
            file.seek(start)
            text, question, answer = self._parse(file.readline(), 0)
        turn = self._model.chat.turn(question)
        said = self._model.encode(answer).ids.tolist()[: self._settings.max_tokens // 4]
        room = self._settings.max_tokens - len(self._model.chat.prefix) - len(turn) - len(said)
        if room < CUT_ROOM:
            raise SettingsError(
                f"A question of {len(turn)} tokens leaves no room for its text in {self._settings.max_tokens} tokens: "
                f"raise max_tokens."
            )
        read = self._model.encode(text).ids[:room].tolist()
        ids = torch.tensor([*self._model.chat.prefix, *read, *turn, *said])
        place = torch.arange(len(ids))
        before_answer = len(ids) - len(said)
        if self._settings.queries == "answer":
            return Example(ids, before_answer, place >= before_answer - 1)
        prompt = before_answer - len(turn)
        return Example(ids, prompt, place >= prompt)


def open_examples(settings: LocretSettings, model: Model) -> Examples:
    """What the settings name."""
    return Generated(settings, model) if settings.data is None else Rows(settings, model)
