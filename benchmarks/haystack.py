"""Needle documents: facts to ask about, hidden at a known depth in a text of a known length.

There are seven kinds:

- `passkey`: one pass key in repeated filler.
- `prose`: one pass key in real novels.
- `facts`: eight facts about invented names spread over real novels, asked one after another in one conversation.
- `relations`, `wordings`: the same with relations, or with wordings and questions, that training did not contain.
- `two`: two pass keys in real novels, to be given in order.
- `pairs`: only keys and values, with keys that differ in their last four digits (as hard as RULER's NIAH-MK3, which
  has UUIDs); four of them are asked for.

Prose is from books that the pocket model never saw, and names are made of syllables kept for measuring. Subjects
without a name (one fact in seven is about "the rusty shed" or "garden 990") use words and numbers that training has
too.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.scoring import contains
from engine import EngineError, Model
from training.pocket import facts
from training.pocket.prose import HELD_OUT_BOOKS, read_books

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
FACTS = 8
PAIRS = 4  # questions in a document of pairs
UNSEEN = ("relations", "wordings")  # facts unlike those of training
KINDS = ("passkey", "prose", "facts", *UNSEEN, "two", "pairs")
INVENTED = ("facts", *UNSEEN)  # kinds with needles worded by the pocket model's training code
SPREAD = (*INVENTED, "two", "pairs")  # kinds with needles at random places


class NoProse(EngineError):
    """The books for the prose are missing."""


@dataclass(frozen=True)
class Question:
    """A question, its answer, and the tokens that state it (end exclusive).

    Attributes:
        numbers: compare only the numbers of an answer, in order.
        start, end: of the first needle if there are several.
    """

    text: str
    answer: str
    start: int
    end: int
    numbers: bool = False

    def is_right(self, answer: str) -> bool:
        """Return whether an answer is right for this question."""
        if self.numbers:
            return re.findall(r"\d+", answer) == re.findall(r"\d+", self.answer)
        return contains(answer, self.answer)


@dataclass(frozen=True)
class Trial:
    """A document of `len(ids)` tokens and its questions.

    Attributes:
        depth: 0 to 1, None for spread facts.
        alike: number of first tokens that all trials of the same kind, length and depth share.
    """

    kind: str
    ids: Tensor
    questions: list[Question]
    depth: float | None
    alike: int = 0


class Haystack:
    """Makes trials with one model's tokenizer."""

    def __init__(self, model: Model, data: Path = DATA) -> None:
        """Use `data`, the folder with books/.

        Raises:
            NoProse: when prose is first needed and the books are not there.
        """
        self.model, self.data = model, data

    def trial(self, kind: str, tokens: int, depth: float, seed: int) -> Trial:
        """Return a document of exactly `tokens` tokens; the same seed gives the same document."""
        rng = random.Random(f"{kind} {tokens} {depth} {seed}")
        if kind == "facts" or kind in UNSEEN:
            return self._facts(rng, tokens, kind)
        if kind in SPREAD:
            return {"two": self._two, "pairs": self._pairs}[kind](rng, tokens)
        hay = self._filler(tokens) if kind == "passkey" else self._stretch(rng, tokens)
        key = str(rng.randrange(10000, 100000))
        needle = self._ids(f" The pass key is {key}. Remember it. {key} is the pass key.")
        room = tokens - len(needle)
        at = self._sentence_end(hay[:room], int(depth * room))
        ids = torch.cat([hay[:at], needle, hay[at:room]])
        question = Question("What is the pass key?", key, at, at + len(needle))
        return Trial(kind, ids, [question], depth, alike=at if kind == "passkey" else 0)

    def stretch(self, tokens: int, seed: int) -> Tensor:
        """Return real prose without needles; the same seed gives the same text."""
        return self._stretch(random.Random(f"stretch {tokens} {seed}"), tokens)

    def _facts(self, rng: random.Random, tokens: int, kind: str) -> Trial:
        hay = self._stretch(rng, tokens)
        chosen = list(distinct_facts(rng, FACTS, facts.FactMaker([], kind == "relations", kind == "wordings")))
        ids, spans = self.scattered(rng, hay, [" " + fact.statement for fact in chosen])
        questions = [
            Question(facts.question(rng, fact.relation, fact.subject), fact.value, *span)
            for fact, span in zip(chosen, spans, strict=True)
        ]
        rng.shuffle(questions)
        return Trial(kind, ids, questions, None)

    def _two(self, rng: random.Random, tokens: int) -> Trial:
        hay = self._stretch(rng, tokens)
        first, second = (str(key) for key in rng.sample(range(10000, 100000), 2))
        statements = [f" The first pass key is {first}.", f" The second pass key is {second}."]
        ids, spans = self.scattered(rng, hay, statements)
        text = "What are the first and the second pass key?"
        return Trial("two", ids, [Question(text, f"{first} and {second}", *spans[0], numbers=True)], None)

    def _pairs(self, rng: random.Random, tokens: int) -> Trial:
        """Return a document of as many pairs as fit, padded with filler."""
        alike = f"{rng.randrange(0x10000, 0x100000):x}"
        line = len(self._ids(f" The value of {alike}0000 is 00000."))
        numbers = rng.sample(range(0x10000), min(0x10000, max(PAIRS, tokens // (line - 4))))
        pairs = [(f"{alike}{number:04x}", str(rng.randrange(10000, 100000))) for number in numbers]
        lines = [self._ids(f" The value of {key} is {value}.") for key, value in pairs]
        ends = list(itertools.takewhile(lambda end: end <= tokens, itertools.accumulate(map(len, lines))))
        asked = rng.sample(range(len(ends)), min(PAIRS, len(ends)))
        questions = [
            Question(f"What is the value of {pairs[at][0]}?", pairs[at][1], ends[at] - len(lines[at]), ends[at])
            for at in asked
        ]
        rest = self._filler(tokens - ends[-1])
        return Trial("pairs", torch.cat([*lines[: len(ends)], rest]), questions, None)

    def scattered(self, rng: random.Random, hay: Tensor, statements: list[str]) -> tuple[Tensor, list[tuple[int, int]]]:
        """Return the hay with statements at random places, in order, and their spans. The length stays the same."""
        needles = [self._ids(statement) for statement in statements]
        room = len(hay) - sum(map(len, needles))
        ends = sorted(self._sentence_end(hay[:room], rng.randrange(room)) for _ in needles)
        pieces: list[Tensor] = []
        spans: list[tuple[int, int]] = []
        done = before = 0
        for needle, end in zip(needles, ends, strict=True):
            pieces += [hay[before:end], needle]
            done += end - before
            spans.append((done, done + len(needle)))
            done, before = done + len(needle), end
        pieces.append(hay[before:room])
        return torch.cat(pieces), spans

    def _ids(self, text: str) -> Tensor:
        return self.model.encode(text).ids

    def _filler(self, tokens: int) -> Tensor:
        piece = self._ids(FILLER * 8)
        return piece.repeat(-(-tokens // len(piece)))[:tokens]

    def _stretch(self, rng: random.Random, tokens: int) -> Tensor:
        """Return `tokens` tokens of real prose from a random place; at the end of the books it wraps around."""
        prose = held_out_prose(self.data)
        start = prose.index(" ", rng.randrange(len(prose) - 1000))
        around = prose[start:] + prose[:start]
        taken = 8 * tokens  # characters; few tokens have that many
        while len(ids := self._ids(around[:taken])) < tokens:
            around, taken = around * (1 + taken // len(around)), 2 * taken
        return ids[:tokens]

    def _sentence_end(self, hay: Tensor, near: int) -> int:
        """Return the position after the first full stop from `near` on, else after the last one before, else `near`."""
        ahead, behind = range(near, min(near + 200, len(hay))), range(near - 1, max(near - 200, -1), -1)
        for at in itertools.chain(ahead, behind):
            if self.model.decode([int(hay[at])]).strip().endswith("."):
                return at + 1
        return near


@functools.cache
def held_out_prose(data: Path) -> str:
    """Return the books that the pocket model never saw, one after another.

    Raises:
        NoProse: `data` has no books/.
    """
    if not (data / "books").is_dir():
        raise NoProse(f"{data / 'books'} is not there: point --data at the folder of books/ (see docs/models.md).")
    return "\n\n".join(text for name, text in read_books(data) if name in HELD_OUT_BOOKS)


def distinct_facts(rng: random.Random, count: int, maker: facts.FactMaker) -> Iterator[facts.Fact]:
    """Yield facts about `count` different names."""
    names: set[str] = set()
    while len(names) < count:
        subject = facts.make_subject(rng, True)
        if subject.name in names:
            continue
        names.add(subject.name)
        yield maker.fact(rng, subject, maker.relation(rng, subject.kind, set()), True)


def wording() -> str:
    """Return a digest of how facts and questions are worded; it changes when a seed gives other documents."""
    digest = hashlib.sha256()
    for kind in INVENTED:
        rng = random.Random(kind)
        for fact in distinct_facts(rng, 200, facts.FactMaker([], kind == "relations", kind == "wordings")):
            digest.update(f"{fact.statement}\n{facts.question(rng, fact.relation, fact.subject)}\n".encode())
    return digest.hexdigest()[:12]
