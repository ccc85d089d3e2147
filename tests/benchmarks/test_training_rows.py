"""Rows that train heads of real models."""

import itertools
import json
import lzma
import re
from pathlib import Path

from benchmarks.haystack import held_out_prose
from benchmarks.suite.qa import PAPERS, is_measured
from benchmarks.training_rows import FACTS, rows
from training.pocket.prose import HELD_OUT_BOOKS


def test_a_row_tells_its_answer_in_prose_that_no_benchmark_reads(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    with lzma.open(tmp_path / "books" / "books.jsonl.xz", "wt") as file:
        for name, said in ((HELD_OUT_BOOKS[0], "The sea was calm. "), ("another", "Rain fell on the shore. ")):
            file.write(json.dumps({"id": name, "text": said * 300}) + "\n")
    (tmp_path / "qa").mkdir()
    with lzma.open(tmp_path / "qa" / PAPERS, "wt") as file:
        titles = [next(name for name in map(str, range(99)) if is_measured(name) == told) for told in (True, False)]
        said = ("calm", "Cells divide")
        contexts = [f"{title}\n\n" + f"{each}. " * 300 for title, each in zip(titles, said, strict=True)]
        json.dump({"data": [{"paragraphs": [{"context": context} for context in contexts]}]}, file)
    made = list(itertools.islice(rows(tmp_path, 1000, seed=1), 40))
    assert made == list(itertools.islice(rows(tmp_path, 1000, seed=1), 40))
    texts = [row["text"] for row in made]
    assert any("Cells divide" in text for text in texts)
    assert any("| --- |" in text for text in texts)
    assert "calm" in held_out_prose(tmp_path)
    for row in made:
        assert row["answer"].casefold() in row["text"].casefold()
        assert "calm" not in row["text"]
        assert len(re.sub(r"Rain fell on the shore\.|Cells divide\.", "", row["text"])) > 20 * FACTS
