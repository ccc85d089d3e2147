"""Needle documents: something worth asking about, hidden at a known depth in a text of a known length.

Three kinds. `passkey`: InfiniPot's own, one pass key in repeated filler. `prose`: one pass key in real novels.
`facts`: eight facts about invented names spread over real novels, asked one after another in one conversation.
Prose is of books that the pocket model never saw; names are from the syllables kept for measuring.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine import EngineError, Model
from training.pocket import facts
from training.pocket.prose import HELD_OUT_BOOKS, read_books

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
FACTS = 8
KINDS = ("passkey", "prose", "facts")


class NoProse(EngineError):
    """The books that prose is taken from are not there."""


@dataclass(frozen=True)
class Question:
    """A question, its answer word for word, and the tokens that state it (end exclusive)."""

    text: str
    answer: str
    start: int
    end: int


@dataclass(frozen=True)
class Trial:
    """A document of `len(ids)` tokens and what to ask about it. depth: 0 to 1, None for spread facts."""

    kind: str
    ids: Tensor
    questions: list[Question]
    depth: float | None


class Haystack:
    """Makes trials for one model's tokenizer; the prose is tokenised once."""

    def __init__(self, model: Model, data: Path = DATA) -> None:
        """data: the folder with books/.

        Raises:
            NoProse: when prose is first needed and the books are not there.
        """
        self.model, self.data = model, data
        self._prose: Tensor | None = None

    def trial(self, kind: str, tokens: int, depth: float, seed: int) -> Trial:
        """One document of exactly `tokens` tokens; the same seed gives the same document."""
        rng = random.Random(f"{kind} {tokens} {depth} {seed}")
        if kind == "facts":
            return self._facts(rng, tokens)
        hay = self._filler(tokens) if kind == "passkey" else self._stretch(rng, tokens)
        key = str(rng.randrange(10000, 100000))
        needle = self._ids(f" The pass key is {key}. Remember it. {key} is the pass key.")
        room = tokens - len(needle)
        at = self._sentence_end(hay[:room], int(depth * room))
        ids = torch.cat([hay[:at], needle, hay[at:room]])
        return Trial(kind, ids, [Question("What is the pass key?", key, at, at + len(needle))], depth)

    def _facts(self, rng: random.Random, tokens: int) -> Trial:
        hay = self._stretch(rng, tokens)
        chosen = list(distinct_facts(rng, FACTS))
        needles = [self._ids(" " + fact.statement) for fact in chosen]
        room = tokens - sum(map(len, needles))
        ends = sorted(self._sentence_end(hay[:room], rng.randrange(room)) for _ in chosen)
        pieces: list[Tensor] = []
        questions: list[Question] = []
        done = before = 0
        for fact, needle, end in zip(chosen, needles, ends, strict=True):
            pieces += [hay[before:end], needle]
            done += end - before
            text = facts.question(rng, fact.relation, fact.subject)
            questions.append(Question(text, fact.value, done, done + len(needle)))
            done, before = done + len(needle), end
        pieces.append(hay[before:room])
        rng.shuffle(questions)
        return Trial("facts", torch.cat(pieces), questions, None)

    def _ids(self, text: str) -> Tensor:
        return self.model.encode(text).ids

    def _filler(self, tokens: int) -> Tensor:
        piece = self._ids(FILLER * 8)
        return piece.repeat(-(-tokens // len(piece)))[:tokens]

    def _stretch(self, rng: random.Random, tokens: int) -> Tensor:
        """`tokens` tokens of real prose from a random place, going round at the end."""
        if self._prose is None:
            if not (self.data / "books").is_dir():
                raise NoProse(f"{self.data / 'books'} is not there: point --data at the folder that holds books/.")
            text = "\n\n".join(text for name, text in read_books(self.data) if name in HELD_OUT_BOOKS)
            self._prose = self._ids(text)
        start = rng.randrange(len(self._prose))
        around = self._prose.roll(-start)
        return around.repeat(-(-tokens // len(around)))[:tokens]

    def _sentence_end(self, hay: Tensor, near: int) -> int:
        """The place after the first full stop from `near` on, else after the last before it, else `near` itself."""
        ahead, behind = range(near, min(near + 200, len(hay))), range(near - 1, max(near - 200, -1), -1)
        for at in itertools.chain(ahead, behind):
            if self.model.decode([int(hay[at])]).strip().endswith("."):
                return at + 1
        return near


def distinct_facts(rng: random.Random, count: int) -> Iterator[facts.Fact]:
    """Facts about as many different names."""
    maker = facts.FactMaker([])
    names: set[str] = set()
    while len(names) < count:
        subject = facts.make_subject(rng, True)
        if subject.name in names:
            continue
        names.add(subject.name)
        yield maker.fact(rng, subject, maker.relation(rng, subject.kind, set()), True)


def is_right(answer: str, expected: str) -> bool:
    """Exact but for case, surrounding space, quotation marks and a final full stop."""
    return _plain(answer) == _plain(expected)


def _plain(text: str) -> str:
    return " ".join(text.casefold().strip().strip("\"'“”").rstrip(".").split())
