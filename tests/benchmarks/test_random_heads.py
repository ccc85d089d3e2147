"""Locret with random heads beside trained ones: a small run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import random_heads
from benchmarks.haystack import DATA
from benchmarks.pages import methods


@pytest.mark.skipif(not (DATA / "books").is_dir(), reason="the books of ../shared/data are not there")
def test_random_heads_stand_beside_trained_ones(tmp_path: Path) -> None:
    out = tmp_path / "heads.json"
    assert random_heads.main(["--tokens", "2K", "--budget", "512", "--trials", "1", "--out", str(out)]) == 0
    trained, random = json.loads(out.read_text())["rows"]
    assert (trained["heads"], random["heads"], trained["asked"], random["asked"]) == ("trained", "random", 8, 8)
    assert trained["correct"] >= random["correct"] + 4
    rows = [row | {"earlier": False, "model": "pocket", "machine": "a CPU"} for row in (trained, random)]
    page = "\n".join(methods.random_heads(rows))
    assert page.index("| trained | 512 | 2K |") < page.index("| random | 512 | 2K |")
