"""Drafts, measured: what counts as quoted, and the table."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.asking import read
from benchmarks.drafts import answered, quoted
from benchmarks.pages.real import drafts as page
from engine import Model, make_method
from tests.engine.conftest import model as model  # the tiny model, as a fixture


@pytest.mark.parametrize(
    ("answer", "words"),
    [("He said: the red fox ran", 4), ("red fox ran far", 3), ("the fox ran", 2), ("", 0), ("d", 0)],
)
def test_the_longest_stretch_of_whole_words_is_counted(answer: str, words: int) -> None:
    assert quoted(answer, "once the red\nfox ran away") == words


def test_both_answers_are_timed_and_the_table_counts_them(model: Model) -> None:
    ids = model.encode("The ferry left at nine. " * 12).ids
    context = read(model, make_method("full"), ids).context()
    (drafted, seconds), (plain, slower) = (answered(context, "When?", ids, longest) for longest in (8, 0))
    assert (drafted.text, drafted.answer_tokens) == (plain.text, plain.answer_tokens)
    assert min(seconds, slower) > 0.0
    row: dict[str, Any] = {"model": "tiny", "machine": "a machine", "passes": {"9": 1.5}, "tokens": 9, "same": True}
    rows = [{**row, "kind": "quoting", "quoted": words, "ratio": words / 10} for words in (30, 10)]
    _, note, table = page([*rows, {**row, "kind": "ordinary", "quoted": 1, "ratio": 0.98, "same": False}])
    assert "takes 1.50 times as long" in note
    assert "| tiny | asks for a quotation | 2 | 2.00 [1.00–3.00] | 9 | 2 of 2 |" in table
    assert "| tiny | any, answered with 20 words of the text or more | 1 | 3.00 [3.00–3.00] | 9 | 1 of 1 |" in table
    assert "| tiny | does not | 1 | 0.98 [0.98–0.98] | 9 | 0 of 1 |" in table
