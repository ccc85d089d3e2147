"""Counts answers of the way in: right, cited, and how long the first took."""

from __future__ import annotations

from benchmarks.pages.real import way_in
from benchmarks.way_in.__main__ import counted, graded
from benchmarks.way_in.questions import PAPER, Question

MAKE = Question("What make of car?", ("Dodge",), "an old Dodge")


def test_an_answer_is_right_by_its_words_and_cited_by_the_passages_beside_it() -> None:
    assert MAKE.is_right("It was a  DODGE.")
    assert not MAKE.is_right("A Ford.")
    assert PAPER[2].is_right("By 9%–19% absolute.")
    assert PAPER[2].is_in("greatly by 9%–19% absolute")
    second = graded(MAKE, "A Dodge.", ["Nothing here.", "I had an\nold Dodge."], 9.0, 3.0)
    assert (second["right"], second["cited"], second["first"]) == (True, True, False)


def test_the_first_right_answer_counts_only_with_its_source() -> None:
    answers = [
        graded(MAKE, "A Ford.", ["an old Dodge"], 1.0, 1.0),
        graded(MAKE, "A Dodge.", ["a Finnish woman"], 2.0, 2.0),
        graded(MAKE, "A Dodge.", ["an old Dodge"], 3.0, 2.6),
    ]
    row = {"model": "tiny", "text": "novel", "tokens": 1234, "machine": "CPU, 1 thread", **counted(answers)}
    assert [row[name] for name in ("right", "cited", "first", "asked")] == [2, 2, 2, 3]
    assert (row["first_right_cpu_sec"], row["first_right_cited_cpu_sec"]) == (2.0, 2.6)
    [_, _, table] = way_in([{**row, "tool": "stockpot"}, {**row, "tool": "llama.cpp"}])
    ours, theirs = table.splitlines()[-2:]
    assert ours.endswith("| *67 [21–94] of 3* | *67 [21–94] of 3* | *67 [21–94] of 3* | 3 s |")
    assert theirs.endswith("| *67 [21–94] of 3* | – | – | 2 s |")
