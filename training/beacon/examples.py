"""What beacons are trained on: token ids with loss weights; plain text first, then questions and answers.

An example depends on the seed and its number alone, so a run that was stopped and resumed sees what an uninterrupted
one sees.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine import Model, SettingsError, make_method
from engine.methods.beacon import Beacon
from training.beacon.settings import BeaconSettings
from training.data import Row, RowFile, builders
from training.pocket.documents import Builder, Recipe

LOOKED_AT = 32  # examples whose length is looked at before a training

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """One sequence. ids: int64 [T]; weights: float32 [T], as `training/scoring.py` reads them."""

    ids: Tensor
    weights: Tensor


class Examples(Protocol):
    """Where examples come from."""

    def draw(self, number: int, plain: bool) -> Example:
        """The example with that number, the same at every call; plain: of the first phase."""

    def held_out(self, number: int) -> Example:
        """One with questions, which `draw` never gives."""


class Generated:
    """Documents with facts in prose, as the pocket model was trained on.

    Plain text is prose, and above all lists of facts that come again in another order: what a beacon has to keep is
    asked for there without any question.
    """

    def __init__(self, settings: BeaconSettings, model: Model) -> None:
        """Loads the tokenised prose of the pocket model's training.

        Raises:
            SettingsError: see `training.data.builders`.
        """
        self._seed, self._window = settings.seed, window_of(settings, model)
        self._builder, self._measuring = builders(settings.data_dir, settings.pocket_dir, model)
        lengths = [length for length in (384, 512, 768, 1024) if length <= settings.max_tokens] or [256]
        again = [Recipe(length, "again", alike=0.3, language=0.05) for length in lengths[:2]]
        self._plain = [*again, *again, *again, Recipe(lengths[-1], "text")]
        self._asked = [
            Recipe(length, "chat", dense=0.35, facts=(length // 96, length // 48), turns=10, absent=0.04, language=0.1)
            for length in lengths
        ]

    def draw(self, number: int, plain: bool) -> Example:
        """From the training share of the prose."""
        example = self._make(self._builder, f"{self._seed}/{number}", self._plain if plain else self._asked)
        return past_window(example, self._window) if plain else example

    def held_out(self, number: int) -> Example:
        """From held-out books, with names kept for measuring."""
        return self._make(self._measuring, f"held out/{self._seed}/{number}", self._asked)

    def _make(self, builder: Builder, seed: str, recipes: list[Recipe]) -> Example:
        rng = random.Random(seed)
        row = builder.build(rng, rng.choice(recipes))
        return Example(torch.from_numpy(row.ids[: row.used]), torch.from_numpy(row.weights[: row.used]))


class Rows:
    """Text, question and answer from a JSONL file; plain text is the text alone."""

    def __init__(self, settings: BeaconSettings, model: Model) -> None:
        """Checks every line once.

        Raises:
            SettingsError: see `training.data.RowFile`.
        """
        assert settings.data is not None
        self._settings, self._model, self._window = settings, model, window_of(settings, model)
        self._rows = RowFile(settings.data, settings.held_out, settings.seed, model, settings.max_tokens)

    def draw(self, number: int, plain: bool) -> Example:
        """Every row in turn, in an order of the seed's."""
        row = self._rows.draw(number)
        return self._text(row) if plain else self._asked(row)

    def held_out(self, number: int) -> Example:
        """From rows set apart."""
        return self._asked(self._rows.held_out(number))

    def _text(self, row: Row) -> Example:
        """A text that is not cut has its end said too, as the authors append it."""
        prefix, end = self._model.chat.prefix, self._end()
        ids = [*prefix, *self._model.encode(row.text).ids.tolist(), *end][: self._settings.max_tokens]
        weights = torch.full((len(ids),), -1.0)
        weights[: len(prefix)] = 0.0
        return past_window(Example(torch.tensor(ids), weights), self._window)

    def _asked(self, row: Row) -> Example:
        """The loss is on the answer and on the token that ends it."""
        text, turn, said = self._rows.in_template(row)
        said = [*said, *self._end()]
        ids = torch.tensor([*text, *turn, *said])
        return Example(ids, (torch.arange(len(ids)) >= len(ids) - len(said)).float())

    def _end(self) -> list[int]:
        """The model's token for the end of a text, if it has one."""
        end = self._model.tokenizer.eos_token_id
        return [] if end is None else [int(end)]


def past_window(example: Example, window: int) -> Example:
    """The example without the loss of its first window, as the paper's equation 11 has it and the authors' code not."""
    weights = example.weights.clone()
    weights[:window] = 0.0
    return Example(example.ids, weights)


def window_of(settings: BeaconSettings, model: Model) -> int:
    """The window to train with: the one that readings will have."""
    method = make_method("beacon", window=settings.window)
    assert isinstance(method, Beacon)
    return method.window_tokens(model.spec)


def open_examples(settings: BeaconSettings, model: Model) -> Examples:
    """What the settings name."""
    return Generated(settings, model) if settings.data is None else Rows(settings, model)


def check_lengths(settings: BeaconSettings, window: int, examples: Examples) -> None:
    """See that something is condensed in training at all; warn where it seldom is.

    Raises:
        SettingsError: examples that end within their first window.
    """
    if settings.max_tokens <= window:
        raise SettingsError(
            f"Examples of at most {settings.max_tokens} tokens end within a window of {window}, so that nothing would "
            f"be condensed: raise --max-tokens, or lower --window."
        )
    longer = sum(len(examples.draw(number, plain=False).ids) > window for number in range(LOOKED_AT))
    if longer == 0:
        raise SettingsError(
            f"None of the first {LOOKED_AT} examples is longer than a window of {window} tokens, so that nothing would "
            f"be condensed: give longer texts, or lower --window."
        )
    if longer < LOOKED_AT / 2:
        log.warning(
            "of the first %d examples only %d are longer than a window of %d tokens; the others teach beacons nothing",
            LOOKED_AT,
            longer,
            window,
        )
