"""Rows that train heads of real models."""

import itertools
import json
import lzma
from pathlib import Path

from benchmarks.haystack import held_out_prose
from benchmarks.training_rows import FACTS, rows
from training.pocket.prose import HELD_OUT_BOOKS


def test_a_row_tells_its_answer_in_prose_that_no_benchmark_reads(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    with lzma.open(tmp_path / "books" / "books.jsonl.xz", "wt") as file:
        for name, said in ((HELD_OUT_BOOKS[0], "The sea was calm. "), ("another", "Rain fell on the shore. ")):
            file.write(json.dumps({"id": name, "text": said * 300}) + "\n")
    made = list(itertools.islice(rows(tmp_path, 500, seed=1), 20))
    assert made == list(itertools.islice(rows(tmp_path, 500, seed=1), 20))
    assert "calm" in held_out_prose(tmp_path)
    for row in made:
        assert row["answer"].casefold() in row["text"].casefold()
        assert "calm" not in row["text"]
        assert len(row["text"].replace("Rain fell on the shore.", "")) > 20 * FACTS
