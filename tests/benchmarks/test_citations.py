"""Sentences of an answer rest on the fact that they state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import citations
from benchmarks.haystack import DATA, Question
from benchmarks.pages import accuracy
from engine import Answer, Passage, Sentence, Usage


def answer(*sentences: Sentence) -> Answer:
    text = "It was Orla. And Bergen. Or no one."
    whole = [Passage(40, 50, 0.5)]
    return Answer(text, "stop", whole, list(sentences), 1, 1, 0.0, 0.0, 0.0, Usage({}, {}))


def test_only_what_says_a_fact_counts_and_only_where_there_are_several() -> None:
    facts = [Question("Who?", "orla", 10, 20), Question("Where?", "Bergen", 30, 45)]
    first = Sentence(0, 12, [Passage(0, 11, 0.3), Passage(30, 35, 0.1)])
    second = Sentence(12, 24, [Passage(0, 11, 0.3)])
    third = Sentence(24, 35, [Passage(10, 20, 0.3)])
    assert citations.cited(answer(first, second, third), facts) == [(True, False), (False, True)]
    assert citations.cited(answer(Sentence(0, 35, [Passage(0, 11, 0.3)])), facts) == []


def test_a_text_is_parted_at_its_full_stops() -> None:
    assert [citations.whole(text, 0) for text in ("One", "One.", "One. T", "1.5 m")] == [0, 0, 4, 0]
    assert citations.whole("One. Two", 4) == 4


@pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")
def test_the_model_that_ships_rests_on_what_it_says(tmp_path: Path) -> None:
    out = tmp_path / "citations.json"
    assert citations.main(["--methods", "full", "--tokens", "512", "--trials", "4", "--out", str(out)]) == 0
    [row] = json.loads(out.read_text())["rows"]
    assert row["sentences"] >= row["own"] > 0.7 * row["sentences"] > 0
    page = "\n".join(accuracy.citations([row | {"model": "pocket", "machine": "a CPU"}]))
    assert f"] of {row['sentences']}" in page
