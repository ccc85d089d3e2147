"""Rows to train retaining heads for any model: facts and tables in novels and papers, one of them asked for.

    python -m benchmarks.training_rows --data DIR --out rows.jsonl
    stockpot train locret --model PATH --data rows.jsonl --labels reconstruction --out heads.safetensors

No benchmark reads these novels and papers. Names are made of other syllables than those of the benchmarks, and
relations have other wordings than the suite's needles.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks import options as shared
from benchmarks.haystack import DATA
from benchmarks.suite.qa import PAPERS as PAPERS_FILE
from benchmarks.suite.qa import is_measured
from training.pocket.facts import Fact, FactMaker, make_subject, question
from training.pocket.prose import HELD_OUT_BOOKS, read_books, split_sentences

ROWS = 400
CHARACTERS = 5000  # most of the prose of a row, some 1,200 tokens
FACTS = 6
PAPERS, TABLES = 0.25, 0.4  # shares of rows over a paper, and of rows with a table
FEWEST_LINES, MOST_LINES = 5, 20  # of a table
COLUMNS = ("age", "rank", "score", "seat", "weight", "year", "debt", "floor", "points")


def rows(data: Path, characters: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield rows without end: `text` with facts and tables at random places, `question` about one, and its `answer`.

    Args:
        data: the folder with books/.
        characters: most of the prose of a row; the least is half of it.
        seed: the same seed gives the same rows.
    """
    rng, maker = random.Random(f"training rows {seed}"), FactMaker([])
    books = [split_sentences(text) for name, text in read_books(data) if name not in HELD_OUT_BOOKS]
    texts = papers(data / "qa" / PAPERS_FILE)
    while True:
        source = rng.choice(texts if texts and rng.random() < PAPERS else books)
        sentences = stretch(rng, source, rng.randint(characters // 2, characters))
        facts = distinct(rng, maker)
        asked = [(f" {fact.statement}", question(rng, fact.relation, fact.subject), fact.value) for fact in facts]
        if rng.random() < TABLES:
            asked.append(table(rng))
        for statement, _, _ in asked:
            sentences.insert(rng.randrange(len(sentences) + 1), statement)
        _, wanted, answer = rng.choice(asked)
        yield {"text": "".join(sentences).strip(), "question": wanted, "answer": answer}


def papers(file: Path) -> list[list[str]]:
    """Return the sentences of papers that the suite does not ask about; none if the file is not there."""
    if not file.is_file():
        return []
    with lzma.open(file, "rt", encoding="utf-8") as text:
        found = [paragraph["context"] for paper in json.load(text)["data"] for paragraph in paper["paragraphs"]]
    return [split_sentences(text) for text in found if not is_measured(text.split("\n")[0].strip())]


def table(rng: random.Random) -> tuple[str, str, str]:
    """Return a table of people with their numbers, a question about a cell, and its content."""
    columns = rng.sample(COLUMNS, 3)
    names = list(dict.fromkeys(make_subject(rng, False).name for _ in range(rng.randint(FEWEST_LINES, MOST_LINES))))
    cells = [[str(rng.randrange(10 ** rng.randint(1, 5))) for _ in columns] for _ in names]
    lines = [["name", *columns], ["---"] * 4, *([name, *row] for name, row in zip(names, cells, strict=True))]
    line, column = rng.randrange(len(names)), rng.randrange(3)
    text = "\n\n" + "\n".join(f"| {' | '.join(each)} |" for each in lines) + "\n\n"
    return text, f"Which {columns[column]} has {names[line]} in the table?", cells[line][column]


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
        "--characters", type=shared.count, default=CHARACTERS, help="most of the prose of a row (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--out", type=shared.file, required=True, help="JSONL file")
    chosen = parser.parse_args(argv)
    made = itertools.islice(rows(chosen.data, chosen.characters, chosen.seed), chosen.rows)
    chosen.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    shared.run(main)
