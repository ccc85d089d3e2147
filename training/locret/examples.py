"""Training examples for retaining heads: a prompt, and the tokens whose attention gives its labels.

Step s uses examples s * batch, s * batch + 1, ... An example depends only on the seed and its number, so a resumed run
sees the same examples as an uninterrupted one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine import Model
from training.data import Row, RowFile, builders
from training.locret.settings import RECONSTRUCTION, LocretSettings
from training.pocket.documents import Builder, Recipe

REQUEST = "Repeat the text word for word."
NOTHING = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Example:
    """One sequence.

    Attributes:
        ids: int64 [T].
        prompt: number of prompt tokens, which are scored.
        asking: bool [T], tokens whose queries give the labels: each answer and the token before it, as in the
            paper, or whole turns. None is before the last prompt token, and none asks in a reconstruction.
        request: int64 [R], the turn that asks for a repetition of the prompt; empty if `asking` gives the labels.
        prefix: number of prompt tokens before the text, which are not repeated.
    """

    ids: Tensor
    prompt: int
    asking: Tensor
    request: Tensor = NOTHING
    prefix: int = 0


def repeated(model: Model, ids: Tensor) -> Example:
    """Return an example whose labels are the attention of a repetition of this prompt."""
    request = torch.tensor(model.chat.turn(REQUEST))
    return Example(ids, len(ids), torch.zeros(len(ids), dtype=torch.bool), request, len(model.chat.prefix))


class Examples(Protocol):
    """A source of examples."""

    def draw(self, number: int) -> Example:
        """Return the example with this number, the same at every call."""

    def held_out(self, number: int) -> Example:
        """Return an example that `draw` never returns."""


class Generated:
    """Documents with facts in prose and a conversation about them, as in the pocket model's training."""

    def __init__(self, settings: LocretSettings, model: Model) -> None:
        """Load the tokenised prose of the pocket model's training.

        Raises:
            SettingsError: see `training.data.builders`.
        """
        self._seed, self._labels, self._model = settings.seed, settings.labels, model
        self._builder, self._measuring = builders(settings.data_dir, settings.pocket_dir, model)
        lengths = {256: (2, 5), 512: (3, 9), 1024: (4, 14)}
        self._recipes = [
            Recipe(length, "chat", facts=facts, turns=8, quotes=0.12, filler=0.05, reading=0.05)
            for length, facts in lengths.items()
            if length <= settings.max_tokens
        ]

    def draw(self, number: int) -> Example:
        """Return an example from the training share of the prose."""
        return self._make(self._builder, f"{self._seed}/{number}")

    def held_out(self, number: int) -> Example:
        """Return an example from held-out books, with reserved names."""
        return self._make(self._measuring, f"held out/{self._seed}/{number}")

    def _make(self, builder: Builder, seed: str) -> Example:
        rng = random.Random(seed)
        while True:
            row = builder.build(rng, rng.choice(self._recipes))
            answers = torch.from_numpy(row.weights[: row.used]) > 0
            if answers.any() and row.document > 0:
                turns = torch.arange(row.used) >= row.document
                ids = torch.from_numpy(row.ids[: row.used])
                if self._labels == RECONSTRUCTION:
                    return repeated(self._model, ids[: row.document])
                return Example(ids, row.document, turns if self._labels == "turn" else answers | answers.roll(-1))


class Rows:
    """Text, question and answer from a JSONL file, in the model's chat template; for a reconstruction only the text."""

    def __init__(self, settings: LocretSettings, model: Model) -> None:
        """Check every line of the file once.

        Raises:
            SettingsError: see `training.data.RowFile`.
        """
        assert settings.data is not None
        self._labels, self._model = settings.labels, model
        repeats = self._labels == RECONSTRUCTION
        # Labels are the model's attention, which is meaningless beyond its own window.
        behind = settings.window + len(model.chat.turn(REQUEST)) if repeats else 0
        most = min(settings.max_tokens, model.spec.window - behind)
        self._rows = RowFile(settings.data, settings.held_out, settings.seed, model, most, asks=not repeats)

    def draw(self, number: int) -> Example:
        """Return training row `number`, in an order fixed by the seed."""
        return self._put(self._rows.draw(number))

    def held_out(self, number: int) -> Example:
        """Return held-out row `number`; numbers beyond the last row start again."""
        return self._put(self._rows.held_out(number))

    def _put(self, row: Row) -> Example:
        text, turn, said = self._rows.in_template(row)
        if self._labels == RECONSTRUCTION:
            return repeated(self._model, torch.tensor(text))
        ids = torch.tensor([*text, *turn, *said])
        place = torch.arange(len(ids))
        if self._labels == "answer":
            before_answer = len(text) + len(turn)
            return Example(ids, before_answer, place >= before_answer - 1)
        return Example(ids, len(text), place >= len(text))


def open_examples(settings: LocretSettings, model: Model) -> Examples:
    """Return the examples that the settings name."""
    return Generated(settings, model) if settings.data is None else Rows(settings, model)
