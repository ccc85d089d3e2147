"""Rows to train retaining heads for any model: facts told in novels that no benchmark reads, one of them asked for.

    python -m benchmarks.training_rows --data DIR --out rows.jsonl
    stockpot train locret --model PATH --data rows.jsonl --queries turn --out heads.safetensors

Names are made of other syllables than those of the benchmarks, and relations have other wordings than the suite's
needles.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks import options as shared
from benchmarks.haystack import DATA
from training.pocket.facts import Fact, FactMaker, make_subject, question
from training.pocket.prose import HELD_OUT_BOOKS, read_books, split_sentences

ROWS = 400
CHARACTERS = 5000  # of the prose of a row, some 1,200 tokens
FACTS = 6


def rows(data: Path, characters: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield rows without end: `text` with facts at random places, `question` about one, and its `answer`.

    Args:
        data: the folder with books/.
        characters: of the prose of a row.
        seed: the same seed gives the same rows.
    """
    rng, maker = random.Random(f"training rows {seed}"), FactMaker([])
    books = [split_sentences(text) for name, text in read_books(data) if name not in HELD_OUT_BOOKS]
    while True:
        sentences = stretch(rng, rng.choice(books), characters)
        facts = distinct(rng, maker)
        for fact in facts:
            sentences.insert(rng.randrange(len(sentences) + 1), f" {fact.statement}")
        asked = rng.choice(facts)
        wanted = question(rng, asked.relation, asked.subject)
        yield {"text": "".join(sentences).strip(), "question": wanted, "answer": asked.value}


def stretch(rng: random.Random, sentences: list[str], characters: int) -> list[str]:
    """Return sentences from a random place that have this many characters, or the rest of the book."""
    first = rng.randrange(len(sentences))
    ends = itertools.accumulate(map(len, sentences[first:]))
    count = sum(1 for _ in itertools.takewhile(lambda end: end <= characters, ends))
    return sentences[first : first + max(1, count)]


def distinct(rng: random.Random, maker: FactMaker) -> list[Fact]:
    """Return facts about different names."""
    facts: dict[str, Fact] = {}
    while len(facts) < FACTS:
        subject = make_subject(rng, False)
        if subject.name not in facts:
            facts[subject.name] = maker.fact(rng, subject, maker.relation(rng, subject.kind, set()), False)
    return list(facts.values())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Rows to train retaining heads for any model.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with books/ (default: %(default)s)")
    parser.add_argument("--rows", type=shared.count, default=ROWS, help="(default: %(default)s)")
    parser.add_argument(
        "--characters", type=shared.count, default=CHARACTERS, help="of the prose of a row (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--out", type=shared.file, required=True, help="JSONL file")
    chosen = parser.parse_args(argv)
    made = itertools.islice(rows(chosen.data, chosen.characters, chosen.seed), chosen.rows)
    chosen.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    shared.run(main)
