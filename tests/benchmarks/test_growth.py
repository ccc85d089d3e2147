"""Time per token by length: a small run on the tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import growth, options
from benchmarks.haystack import DATA
from engine import Model
from tests.engine.conftest import model as model  # the tiny model, as a fixture

books = pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")


@books
def test_growth_times_every_method_at_every_length(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(options, "open_model", lambda chosen: model)
    out = tmp_path / "growth.json"
    wanted = "--methods streaming,recall --budget 600 --tokens 700,1400"
    assert growth.main([*wanted.split(), "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert {(row["method"], row["tokens"]) for row in result["rows"]} == {
        (name, tokens) for name in ("full", "streaming", "recall") for tokens in (700, 1400)
    }
    assert all(row["read_seconds"] > 0 and row["decode_seconds"] > 0 for row in result["rows"])
