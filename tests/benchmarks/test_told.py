"""What the README and the docs say in words is what the results say in numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.freshness import load
from benchmarks.pages.__main__ import rows_of
from benchmarks.pages.accuracy import asked_once, is_varied
from benchmarks.report import RESULTS

ROOT = RESULTS.parent.parent
told = pytest.mark.parametrize("path", ["README.md", "docs/measured.md"])


def words(path: str) -> str:
    """A page as one line."""
    return " ".join((ROOT / path).read_text().split())


def ratios(beginning: str) -> list[str]:
    """Of comparisons that begin so, the ratios as they are told."""
    rows: list[dict[str, Any]] = json.loads(Path(RESULTS / "speed.json").read_text())["rows"]
    return [f"{row['ratio']:.2f}" for row in rows if re.match(beginning, row["comparison"])]


@told
def test_the_time_beside_generate_is_what_was_measured(path: str) -> None:
    short, long = ratios("full against transformers generate")
    assert re.search(rf"in {short} times its time after 512 tokens,? and (in )?{long} times after 1,536", words(path))


@told
def test_the_time_beside_the_bare_model_is_what_was_measured(path: str) -> None:
    found = sorted(ratios(r".* against the bare model seeing \d+ entries more"))
    least = "at most" if path == "README.md" else f"{found[0]} to"
    assert f"Reading takes {least} {found[-1]} times as long as the bare model" in words(path)


@told
def test_right_answers_with_a_right_source_are_as_many_as_were_counted(path: str) -> None:
    results = load(RESULTS)
    results.pop("facts-kept-stores")
    rows = [row for row in asked_once(rows_of(results, "needle")) if not is_varied(row)]
    counted = [row for row in rows if not (row["method"].startswith("beacon") and row["kind"] in ("passkey", "prose"))]
    right, sourced = (sum(row[what] for row in counted) for what in ("correct", "sourced"))
    assert f"{sourced:,} of {right:,} right answers" in words(path)
