"""What retaining heads are trained on: a prompt, and the tokens whose queries tell what of it mattered.

Step s takes examples s * batch, s * batch + 1, ...; an example depends on the seed and its number alone, so a run that
was stopped and resumed sees what an uninterrupted one sees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine import Model
from training.data import Row, RowFile, builders
from training.locret.settings import LocretSettings
from training.pocket.documents import Builder, Recipe


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
            SettingsError: see `training.data.builders`.
        """
        self._seed, self._whole_turns = settings.seed, settings.queries == "turn"
        self._builder, self._measuring = builders(settings.data_dir, settings.pocket_dir, model)
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
                turns = torch.arange(row.used) >= row.document
                asking = turns if self._whole_turns else answers | answers.roll(-1)
                return Example(torch.from_numpy(row.ids[: row.used]), row.document, asking)


class Rows:
    """Text, question and answer from a JSONL file, put to the model in the words of its chat template."""

    def __init__(self, settings: LocretSettings, model: Model) -> None:
        """Checks every line once.

        Raises:
            SettingsError: see `training.data.RowFile`.
        """
        assert settings.data is not None
        self._queries = settings.queries
        # Heads learn where the model looks, which beyond its own window says nothing.
        most = min(settings.max_tokens, model.spec.window)
        self._rows = RowFile(settings.data, settings.held_out, settings.seed, model, most)

    def draw(self, number: int) -> Example:
        """Every row in turn, in an order of the seed's."""
        return self._put(self._rows.draw(number))

    def held_out(self, number: int) -> Example:
        """From rows set apart."""
        return self._put(self._rows.held_out(number))

    def _put(self, row: Row) -> Example:
        text, turn, said = self._rows.in_template(row)
        ids = torch.tensor([*text, *turn, *said])
        place = torch.arange(len(ids))
        if self._queries == "answer":
            before_answer = len(text) + len(turn)
            return Example(ids, before_answer, place >= before_answer - 1)
        return Example(ids, len(text), place >= len(text))


def open_examples(settings: LocretSettings, model: Model) -> Examples:
    """What the settings name."""
    return Generated(settings, model) if settings.data is None else Rows(settings, model)
