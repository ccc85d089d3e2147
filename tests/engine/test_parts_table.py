"""The table of parts in `docs/architecture.md` says of every method which parts its memory has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine import METHODS, Model
from tests.engine.matrix import TIGHT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_parts_that_the_table_names(model: Model, name: str) -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| method | store |")[2]
    row = re.search(rf"^\| {name} \| (.*) \|$", table, re.MULTILINE)
    assert row is not None
    store, archive, selector, evictor = row[1].split(" | ")
    methods = [method for method in TIGHT.values() if method.name == name]
    for memory in (method.new_memory(model.spec, model.turn_length) for method in methods):
        parts = memory.store, memory.archive, memory.selector
        assert ["–" if part is None else type(part).__name__ for part in parts] == [store, archive, selector]
        kind = type(memory.evictor).__name__
        assert kind == evictor if name != "recall" else kind in ("ArrivalScoreEvictor", "CatalystEvictor")
