"""Complete lists, measured: what is found in each way, and how it is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.asking.answer_options import AnswerOptions
from benchmarks.haystack import Haystack
from benchmarks.pages.answers import lists as page
from benchmarks.suite import lists
from benchmarks.suite.lists import KINDS, PLAIN, Planted, row_of
from engine import Model
from tests.engine.conftest import model as model  # the tiny model, as a fixture

PROSE = "The ferry left at nine. Nobody waved. It rained all day. " * 400


def short(options: AnswerOptions) -> AnswerOptions:
    return replace(options, max_tokens=8)


def test_all_planted_things_stand_in_the_text_and_its_places(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.haystack.held_out_prose", lambda data: PROSE)
    told = lists._told
    monkeypatch.setattr(lists, "_told", lambda context, asked, options=PLAIN: told(context, asked, short(options)))
    planted = Planted(model, Haystack(model, Path()), 0, 4000)
    assert {asked.counts for asked in planted.asked} == {True, False}
    for asked in planted.asked:
        [kind] = [kind for kind in KINDS if kind in asked.text]
        assert all(f" {thing}" in planted.text for thing in asked.things)
        others = set(KINDS[kind].split()) - set(asked.things)
        assert not [thing for thing in others if f" {thing}" in planted.text]
    edges = [span for span, _ in planted.places]
    assert len(edges) > 1
    assert "".join(planted.text[start:end] for start, end in edges) == planted.text
    lines = [planted.line(asked) for asked in planted.asked]
    assert [("count" in line["sweep"]) for line in lines] == [asked.counts for asked in planted.asked]
    for line, found in zip(lines, (3, 0, 1, 0, 2), strict=True):
        line["things"], line["sweep"]["found"], line["places"]["found"], line["whole"]["found"] = 4, found, 3, 1
    row = row_of(lines)
    assert (row["n"], row["things"], row["counted"]) == (5, 20, 2)
    (_, _, table) = page([{"tokens": 4000, **row, "model": "tiny", "machine": "a machine"}])
    assert "| tiny | ours: every place by itself, checked and joined | *30 [15–52] of 20* | 0.40 |" in table
