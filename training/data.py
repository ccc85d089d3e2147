"""Sources of training examples for a frozen model: generated documents, or rows of a file."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from engine import Model, SettingsError
from training.pocket.documents import Builder
from training.pocket.facts import FactMaker
from training.pocket.prepare import prepare
from training.pocket.prose import DataMissing
from training.pocket.settings import PocketSettings
from training.pocket.tokenizer import is_pocket

CUT_ROOM = 64  # least tokens of a long text left beside question and answer
OWN = "give examples of your own: --data FILE.jsonl"


def builders(data_dir: Path, pocket_dir: Path, model: Model) -> tuple[Builder, Builder]:
    """Return builders of pocket-model documents: for training, and for held-out books with reserved names.

    Missing prose is tokenised with the model's tokenizer first.

    Raises:
        SettingsError: the model is not a pocket model, there are neither tokenised prose nor books, or the prose
            was tokenised for another model.
    """
    if not is_pocket(model.tokenizer):
        raise SettingsError(f"What is made on the spot is for pocket models, and not for {model.name}: {OWN}.")
    try:
        materials = prepare(PocketSettings(data_dir=data_dir, work_dir=pocket_dir, start=model.spec.folder))
    except DataMissing as error:
        raise SettingsError(f"{error} Or {OWN}.") from error
    measuring = Builder(materials.tokenizer, materials.held_out, FactMaker(materials.nouns), reserved=True)
    return materials.builder(), measuring


@dataclass(frozen=True)
class Row:
    """A line of a file of examples. Where nothing is asked, there is only a text."""

    text: str
    question: str = ""
    answer: str = ""


class RowFile:
    """Text, question and answer from a JSONL file, in the model's chat template."""

    def __init__(self, path: Path, held_out: int, seed: int, model: Model, max_tokens: int, asks: bool = True) -> None:
        """Check every line once and store its offset.

        Args:
            path: JSONL file of text, question and answer.
            held_out: number of rows set apart.
            seed: of their order.
            model: whose tokenizer counts.
            max_tokens: longest example.
            asks: whether question and answer are needed; else only the text is taken.

        Raises:
            SettingsError: no such file, an invalid line, or too few lines.
        """
        self._names = ("text", "question", "answer") if asks else ("text",)
        if not path.is_file():
            raise SettingsError(f"There is no file {path}: give a JSONL file of text, question and answer.")
        self._path, self._model, self._max_tokens = path, model, max_tokens
        starts = []
        with open(path, "rb") as file:
            at = 0
            for number, line in enumerate(file, start=1):
                if line.strip():
                    self._check_room(self._parse(line, number), number)
                    starts.append(at)
                at += len(line)
        random.Random(seed).shuffle(starts)
        if len(starts) <= held_out:
            raise SettingsError(
                f"{path} has {len(starts)} rows, and {held_out} are held out: give more rows, or a smaller --held-out."
            )
        self._held_out, self._starts = starts[:held_out], starts[held_out:]

    def _parse(self, line: bytes, number: int) -> Row:
        try:
            row = json.loads(line)
            fields = tuple(row[name] for name in self._names)
        except (ValueError, KeyError, TypeError):
            fields = ()
        if not (fields and all(isinstance(field, str) and field.strip() for field in fields)):
            *others, last = map(repr, self._names)
            named = f"the texts {', '.join(others)} and {last}" if others else f"the text {last}"
            raise SettingsError(f"Line {number} of {self._path} is not an object with {named}.")
        return Row(*fields)

    def draw(self, number: int) -> Row:
        """Return training row `number`, in an order fixed by the seed; numbers beyond the last row start again."""
        return self._read(self._starts[number % len(self._starts)])

    def held_out(self, number: int) -> Row:
        """Return held-out row `number`; numbers beyond the last row start again."""
        return self._read(self._held_out[number % len(self._held_out)])

    def _read(self, start: int) -> Row:
        with open(self._path, "rb") as file:
            file.seek(start)
            return self._parse(file.readline(), 0)

    def in_template(self, row: Row) -> tuple[list[int], list[int], list[int]]:
        """Return ids of text, question and answer in the chat template, at most `max_tokens` in all.

        A longer text loses its end. An answer is cut to a quarter of `max_tokens`.
        """
        prefix, (turn, said) = self._model.chat.prefix, self._turn(row)
        room = self._max_tokens - len(prefix) - len(turn) - len(said)
        return [*prefix, *self._model.encode(row.text).ids[:room].tolist()], turn, said

    def _turn(self, row: Row) -> tuple[list[int], list[int]]:
        if not row.question:
            return [], []
        said = self._model.encode(row.answer).ids.tolist()[: self._max_tokens // 4]
        return self._model.chat.turn(row.question), said

    def _check_room(self, row: Row, number: int) -> None:
        turn, said = self._turn(row)
        least = len(self._model.chat.prefix) + len(turn) + len(said) + CUT_ROOM
        if least > self._max_tokens:
            raise SettingsError(
                f"Line {number} of {self._path}: a question of {len(turn):,} tokens leaves no room for its text in "
                f"{self._max_tokens:,} tokens: shorten it, or raise --max-tokens."
            )
