"""Training examples for beacons: token ids with loss weights; plain text first, then questions and answers.

An example depends only on the seed and its number, so a resumed run sees the same examples as an uninterrupted one.
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

LOOKED_AT = 32  # examples whose length is checked before a training

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """One sequence.

    Attributes:
        ids: int64 [T].
        weights: float32 [T], loss weights as in `training/scoring.py`.
    """

    ids: Tensor
    weights: Tensor


class Examples(Protocol):
    """A source of examples."""

    def draw(self, number: int, plain: bool) -> Example:
        """Return the example with this number, the same at every call. `plain` selects the first phase."""

    def held_out(self, number: int) -> Example:
        """Return an example with questions that `draw` never returns."""


class Generated:
    """Documents with facts in prose, as in the pocket model's training.

    Plain text is prose and, mostly, lists of facts repeated in another order: predicting the repetition needs the facts
    in the beacons, without any question.
    """

    def __init__(self, settings: BeaconSettings, model: Model) -> None:
        """Load the tokenised prose of the pocket model's training.

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
        """Return an example from the training share of the prose."""
        example = self._make(self._builder, f"{self._seed}/{number}", self._plain if plain else self._asked)
        return past_window(example, self._window) if plain else example

    def held_out(self, number: int) -> Example:
        """Return an example from held-out books, with reserved names."""
        return self._make(self._measuring, f"held out/{self._seed}/{number}", self._asked)

    def _make(self, builder: Builder, seed: str, recipes: list[Recipe]) -> Example:
        rng = random.Random(seed)
        row = builder.build(rng, rng.choice(recipes))
        return Example(torch.from_numpy(row.ids[: row.used]), torch.from_numpy(row.weights[: row.used]))


class Rows:
    """Text, question and answer from a JSONL file; in the first phase the text alone."""

    def __init__(self, settings: BeaconSettings, model: Model) -> None:
        """Check every line of the file once.

        Raises:
            SettingsError: see `training.data.RowFile`.
        """
        assert settings.data is not None
        self._settings, self._model, self._window = settings, model, window_of(settings, model)
        self._rows = RowFile(settings.data, settings.held_out, settings.seed, model, settings.max_tokens)

    def draw(self, number: int, plain: bool) -> Example:
        """Return training row `number`, in an order fixed by the seed."""
        row = self._rows.draw(number)
        return self._text(row) if plain else self._asked(row)

    def held_out(self, number: int) -> Example:
        """Return held-out row `number` with its question."""
        return self._asked(self._rows.held_out(number))

    def _text(self, row: Row) -> Example:
        """Return plain text; an uncut text is followed by the end token, as in the authors' code."""
        prefix, end = self._model.chat.prefix, self._end()
        ids = [*prefix, *self._model.encode(row.text).ids.tolist(), *end][: self._settings.max_tokens]
        weights = torch.full((len(ids),), -1.0)
        weights[: len(prefix)] = 0.0
        return past_window(Example(torch.tensor(ids), weights), self._window)

    def _asked(self, row: Row) -> Example:
        """Return an example with the loss on the answer and its end token."""
        text, turn, said = self._rows.in_template(row)
        said = [*said, *self._end()]
        ids = torch.tensor([*text, *turn, *said])
        return Example(ids, (torch.arange(len(ids)) >= len(ids) - len(said)).float())

    def _end(self) -> list[int]:
        """Return the model's end-of-text token as a list, empty if it has none."""
        end = self._model.tokenizer.eos_token_id
        return [] if end is None else [int(end)]


def past_window(example: Example, window: int) -> Example:
    """Return the example without loss in its first window (equation 11 of the paper; the authors' code keeps it)."""
    weights = example.weights.clone()
    weights[:window] = 0.0
    return Example(example.ids, weights)


def window_of(settings: BeaconSettings, model: Model) -> int:
    """Return the window to train with, the same as for reading, in tokens."""
    method = make_method("beacon", window=settings.window)
    assert isinstance(method, Beacon)
    return method.windows(model.spec).window


def open_examples(settings: BeaconSettings, model: Model) -> Examples:
    """Return the examples that the settings name."""
    return Generated(settings, model) if settings.data is None else Rows(settings, model)


def check_lengths(settings: BeaconSettings, window: int, examples: Examples) -> None:
    """Check that examples are longer than a window, so that training condenses; warn if few are.

    Raises:
        SettingsError: all examples end within their first window.
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
