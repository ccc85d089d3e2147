"""The page of results says which of them were taken with other weights than those that ship."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from benchmarks import freshness
from benchmarks.options import POCKET, VARIANTS
from benchmarks.pages import __main__ as page
from benchmarks.pages import accuracy, markup, methods, speed
from benchmarks.report import RESULTS, named
from engine import load_model, make_method


def _let_go(figure: Figure, name: str) -> str:
    pyplot.close(figure)
    return name


def page_of(
    change: Callable[[dict[str, Any]], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str]]:
    """Heading and first cell of each row of all tables of the page, made of results as if taken today, after a change
    to each.
    """
    today = named(load_model(POCKET, "cpu"))
    for file in RESULTS.glob("*.json"):
        result = json.loads(file.read_text())
        for row in result["rows"]:
            row.pop("settings", None)  # marks of other settings are another matter
        if result.get("model") == today["model"]:
            result.update(today)
        change(result)
        (folder / file.name).write_text(json.dumps(result))
    monkeypatch.setattr(page, "RESULTS", folder)
    monkeypatch.setattr(markup, "DOCS", folder)
    for each in (accuracy, methods, speed):
        monkeypatch.setattr(each, "save", _let_go)  # figures take long
    assert page.main() == 0
    heading, rows, lines = "", [], (folder / "results.md").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| ") and before.startswith("|"):
            rows.append((heading, line.split("|")[1].strip()))
    assert len({heading for heading, _ in rows}) > 15
    return rows


@pytest.mark.parametrize(
    ("scored", "said"),
    [
        ([None, None], "exact answers"),
        (["contained"], "right answers"),
        ([None, "contained"], "right answers, some counted only when exact"),
    ],
)
def test_tables_say_which_answers_they_count(scored: list[str | None], said: str) -> None:
    assert markup.right_answers([{"scored": each} for each in scored]) == said


def test_what_was_asked_at_depths_and_what_was_not_stand_in_tables_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass keys of a method with a setting once emptied the table of facts with settings."""
    page_of(lambda result: None, tmp_path, monkeypatch)
    assert not re.search(r"\| /+ \|", (tmp_path / "results.md").read_text())


def test_the_names_of_variants_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_of(lambda result: None, tmp_path, monkeypatch)
    page = (tmp_path / "results.md").read_text()
    for name, method in VARIANTS.items():
        assert re.search(f"`{name}`.*`{method}`", page.partition("##")[0])
    scorers = {row["scorer"] for row in json.loads((RESULTS / "consistency.json").read_text())["rows"]}
    note = page.partition("## What a scorer knows")[2].partition("|")[0]
    assert all(f"`{scorer}`" in note for scorer in scorers)


def test_what_two_runs_asked_alike_is_counted_once() -> None:
    """The forty questions of one run were the first of another's 160, and were counted twice."""
    cell = {"method": "exact", "budget": 512, "tokens": 2048, "depth": None, "kind": "facts", "earlier": False}
    rows = [{**cell, "asked": asked} for asked in (40, 160)] + [{**cell, "tokens": 8192, "asked": 40}]
    assert accuracy.asked_once(rows) == rows[1:]


def test_a_row_is_marked_if_a_setting_has_changed_and_not_if_one_has_come_since() -> None:
    row = {"method": "recall", "budget": 1024, "settings": make_method("recall", budget=1024).settings()}
    del row["settings"]["tier"]
    result = now = {"model": "", "weights": ""}
    assert not freshness.is_earlier({**result, "benchmark": "latency"}, row, now)
    row["settings"]["looks"] = 1
    assert freshness.is_earlier({**result, "benchmark": "latency"}, row, now)


def test_a_check_of_a_gpu_is_no_part_of_the_page(tmp_path: Path) -> None:
    """Its rows have settings and no budget, of which the page could not be made any more."""
    row = {"part": "reading", "model": "Llama-3.1-8B", "method": "full", "tokens": 65536, "settings": {"budget": None}}
    check = {"benchmark": "gpu-check", "machine": {"device": "RTX 4090"}, "rows": [row]}
    (tmp_path / "gpu-check-rtx-4090.json").write_text(json.dumps(check))
    assert freshness.load(tmp_path) == {}


def test_every_row_taken_with_other_weights_of_the_model_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = page_of(lambda result: result.update(weights="0" * 12), tmp_path, monkeypatch)
    assert [row for row in rows if "†" not in row[1]] == []
    assert "†: taken with earlier weights" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize(("kind", "takers"), [("locret", "locret|recall|^trained"), ("beacon", "beacon")])
def test_only_rows_that_take_other_weights_beside_the_model_are_marked(
    kind: str, takers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(result: dict[str, Any]) -> None:
        digest = result["beside"].get(kind)
        result["beside"] = {name: "0" if each == digest else each for name, each in result["beside"].items()}

    names = [name for _, name in page_of(change, tmp_path, monkeypatch)]
    marked = {name for name in names if "†" in name}
    assert marked == {name for name in names if re.search(takers, name)}
    assert len(marked) > 2


def test_what_asks_for_facts_is_marked_when_they_are_worded_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wider choice of wordings once took 38 right answers of 40 to 28, with weights and settings as before."""
    rows = page_of(lambda result: result.update(facts="0" * 12), tmp_path, monkeypatch)
    marks: dict[str, set[bool]] = {}
    for heading, name in rows:
        marks.setdefault(heading, set()).add("†" in name)
    assert marks.pop("Sources") == {True, False}  # of facts and of pass keys
    asking = {heading for heading, found in marks.items() if found == {True}}
    assert {"Eight facts in real prose, asked one after another in one conversation", "Beside kvpress"} <= asking
    assert {heading for heading, found in marks.items() if found == {False}} == {
        "One pass key in repeated filler",
        "One pass key in real prose",
        "Two pass keys in real prose, to be given in order",
        "Keys and values and nothing else, the keys nearly alike",
        "Time and memory",
        "Time per token against length",
        "Time per token up to 128K tokens",
        "Speed, paired in one run",
        "The device's cache",
    }
