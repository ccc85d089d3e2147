"""One text with the questions of all families: needles and passages spread over real prose."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from benchmarks.haystack import Haystack, held_out_prose
from benchmarks.suite.needles import MAKERS, Names, interleaved
from benchmarks.suite.qa import SOURCES, Source
from benchmarks.suite.tasks import Asked, Needles, NoRoom
from engine import Model

ROOM = 256
"""Tokens of a length that are left for a question and its answer, or for the continuation of the text."""

MOST_NEEDLES = 0.75
"""Share of a text; prose is the rest."""

TOKENS_PER_SET, MOST_SETS = 10_000, 4
"""A long text carries several sets of questions, because it takes longer to read than to ask."""


@dataclass(frozen=True)
class Text:
    """A text, its questions, and its continuation.

    Attributes:
        ids: int64 [T].
        asked: questions, in order.
        spans: for each question, the positions of the statements it needs.
        continuation: int64 [ROOM], the prose after the text.
    """

    ids: Tensor
    asked: list[Asked]
    spans: list[list[tuple[int, int]]]
    continuation: Tensor

    def digest(self) -> str:
        """Return a digest of the text and its questions."""
        digest = hashlib.sha256(json.dumps([asdict(asked) for asked in self.asked]).encode())
        for ids in (self.ids, self.continuation):
            digest.update(ids.int().numpy().tobytes())
        return digest.hexdigest()[:16]


class Texts:
    """Makes texts with one model's tokenizer."""

    def __init__(self, model: Model, data: Path) -> None:
        """Use `data`, the folder with books/ and qa/."""
        self.model, self.data = model, data
        self.haystack = Haystack(model, data)

    def missing(self) -> list[Source]:
        """Return the families whose files are not in the data folder."""
        return [source for source in SOURCES if not source.is_there(self.data)]

    def make(self, tokens: int, seed: int) -> Text:
        """Return the text for a length and a seed, the same every time.

        tokens: length of the prompt's beginning, the text, and the question or continuation.

        Raises:
            NoProse: there are no books in the data folder.
            NoRoom: needles would be most of it.
        """
        rng = random.Random(f"suite {tokens} {seed}")
        needles = self._needles(rng, tokens, question_sets(tokens))
        statements = interleaved(rng, [each.statements for each in needles])
        length = tokens - ROOM - len(self.model.chat.prefix)
        taken = sum(len(self.model.encode(statement).ids) for statement in statements)
        if taken > MOST_NEEDLES * length:
            least = int(taken / MOST_NEEDLES) + ROOM + len(self.model.chat.prefix) + 1
            raise NoRoom(
                f"The suite's needles are {taken:,} tokens for this model, too many for a text of {tokens:,}: "
                f"give --tokens {least:,} or more."
            )
        prose = self.haystack.stretch(length + ROOM, rng.randrange(1 << 30))
        ids, spans = self.haystack.scattered(rng, prose[:length], statements)
        where: dict[str, tuple[int, int]] = dict(zip(statements, spans, strict=True))
        asked = [asked for each in needles for asked in each.asked]
        rng.shuffle(asked)
        rest = length - taken
        needed = [[where[statement] for statement in each.needs] for each in asked]
        return Text(ids, asked, needed, prose[rest : rest + ROOM].clone())

    def _needles(self, rng: random.Random, tokens: int, sets: int) -> list[Needles]:
        names = Names(rng, held_out_prose(self.data))
        made = [maker(names) for _ in range(sets) for maker in MAKERS]
        there = [source for source in SOURCES if source.is_there(self.data)]
        return made + [source.draw(names, self.data / "qa" / source.file, tokens // sets) for source in there * sets]


def question_sets(tokens: int) -> int:
    """Return how many sets of questions a text of this length carries; a set has questions of all families."""
    return min(max(1, tokens // TOKENS_PER_SET), MOST_SETS)
