"""docs/results.md matches the results, and marks rows taken with other weights or settings."""

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

from app.formatting import wilson
from benchmarks import freshness
from benchmarks.options import POCKET, VARIANTS
from benchmarks.pages import __main__ as page
from benchmarks.pages import accuracy, markup
from benchmarks.pages.answers import FINDERS, WAYS
from benchmarks.report import RESULTS, named
from benchmarks.suite.answers import MEMORY
from benchmarks.suite.answers_tables import OURS, PLAIN
from engine import load_model, make_method

README = RESULTS.parents[1] / "README.md"
POCKET_PAGE = RESULTS.parents[1] / "docs" / "pocket.md"
UNMARKED = "Model: (?!pocket)"  # sections about other models have no weights of ours


def _without_figure(figure: Figure, name: str) -> str:
    pyplot.close(figure)  # drawing takes long
    return f"![{name}](figures/{name}.svg)"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the page without drawing its figures."""
    monkeypatch.setattr(accuracy, "save", _without_figure)


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]) -> str:
    """Make the page of results as if taken today, after a change to each; return its text."""
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
    assert page.main() == 0
    return (folder / "results.md").read_text()


def rows_of(text: str) -> list[tuple[str, str]]:
    """Return section and first cell of each row of all tables about the pocket model."""
    rows = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if re.search(UNMARKED, section):
            continue
        for before, line in itertools.pairwise(section.splitlines()):
            if line.startswith("| ") and before.startswith("|"):
                rows.append((section.partition("\n")[0], line.split("|")[1].strip()))
    assert len({heading for heading, _ in rows}) > 7
    return rows


@pytest.mark.usefixtures("quick")
def test_the_page_is_made_of_the_results_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m benchmarks.pages` brings it up to date."""
    there = (markup.DOCS / "results.md").read_text()
    for name in re.findall(r"\]\((figures/.*?)\)", there):
        assert (markup.DOCS / name).is_file()
    monkeypatch.setattr(markup, "DOCS", tmp_path)
    assert page.main() == 0
    assert (tmp_path / "results.md").read_text() == there


def test_every_table_names_model_and_hardware() -> None:
    for section in re.split(r"^## ", (markup.DOCS / "results.md").read_text(), flags=re.MULTILINE)[1:]:
        assert re.search(r"Model: [\w.-].*? Hardware: .*?\d thread", section), section.partition("\n")[0]


def test_a_share_has_its_interval_and_its_count() -> None:
    low, high = (round(100 * end) for end in wilson(0.95, 160))
    assert markup.share(152, 160) == f"95 [{low}–{high}] of 160"
    assert markup.share(8, 8).startswith("*100 [")
    assert markup.share(999, 1000) == "99.9 [99.4–100.0] of 1,000"
    assert markup.share(0, 0) == "–"


@pytest.mark.parametrize(
    ("scored", "counted"),
    [
        ([None, None], "if they match word for word"),
        (["contained"], "if they contain the value that was asked for"),
        (
            [None, "contained"],
            "if they contain the value that was asked for, in some rows only if they match word for word",
        ),
    ],
)
def test_the_page_says_which_answers_it_counts(scored: list[str | None], counted: str) -> None:
    assert markup.right_answers([{"scored": each} for each in scored]) == counted


@pytest.mark.usefixtures("quick")
def test_the_names_of_variants_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = made(tmp_path, monkeypatch, lambda result: None).partition("##")[0]
    for name, method in VARIANTS.items():
        assert f"`{name}` is `{method}`" in beginning


def test_questions_that_two_runs_asked_are_counted_once() -> None:
    """Regression: forty questions of one run were the first of another's 160, and counted twice."""
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
    """Regression: its rows have settings and no budget, and the page could not be made."""
    row = {"part": "reading", "model": "Llama-3.1-8B", "method": "full", "tokens": 65536, "settings": {"budget": None}}
    check = {"benchmark": "gpu-check", "machine": {"device": "RTX 4090"}, "rows": [row]}
    (tmp_path / "gpu-check-rtx-4090.json").write_text(json.dumps(check))
    assert freshness.load(tmp_path) == {}


@pytest.mark.usefixtures("quick")
def test_every_row_taken_with_other_weights_of_the_model_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = made(tmp_path, monkeypatch, lambda result: result.update(weights="0" * 12))
    assert [row for row in rows_of(text) if "†" not in row[1] and row[0] != "Sources"] == []
    assert "†: taken with earlier weights" in text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("kind", "takers"), [("locret", "locret|recall"), ("beacon", "beacon")])
def test_only_rows_that_take_other_weights_beside_the_model_are_marked(
    kind: str, takers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(result: dict[str, Any]) -> None:
        held = result.get("beside", {})
        result["beside"] = {name: "0" if each == held.get(kind) else each for name, each in held.items()}

    rows = rows_of(made(tmp_path, monkeypatch, change))
    names = {name for heading, name in rows if heading != "Sources"}
    marked = {name for name in names if "†" in name}
    assert marked == {name for name in names if re.search(takers, name)}
    assert len(marked) > 2


@pytest.mark.usefixtures("quick")
def test_questions_about_facts_are_marked_when_facts_are_worded_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: new wordings took 38 right answers of 40 to 28, and no row was marked."""
    marks: dict[str, set[bool]] = {}
    for heading, name in rows_of(made(tmp_path, monkeypatch, lambda result: result.update(facts="0" * 12))):
        marks.setdefault(heading, set()).add("†" in name)
    asking = {heading for heading, found in marks.items() if found == {True}}
    assert "Facts in prose" in asking
    assert {heading for heading, found in marks.items() if found == {False}} == {
        "One pass key",
        "Two pass keys, and pairs nearly alike",
        "Sources",
        "Time and memory",
        "Speed, paired in one run",
    }


def section(heading: str) -> str:
    """Return one section of the page that ships."""
    return (markup.DOCS / "results.md").read_text().partition(f"## {heading}")[2].partition("\n## ")[0]


def test_the_facts_of_the_pocket_model_are_on_the_page() -> None:
    told = (
        r"^\| facts in prose, `(\w+)`( reading again)?, ([\d,]+) entries, (\w+) tokens \| (.*?) right \| .* \| (\d+) q"
    )
    found = re.findall(told, POCKET_PAGE.read_text(), re.MULTILINE)
    assert len(found) == 4
    first = section("Facts in prose").partition("###")[0].splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first if line.startswith("|")]
    for method, again, entries, length, right, asked in found:
        name = f"{method} {entries.replace(',', '')}(, \\d looks)?{', reading again' * bool(again)}"
        [row] = [row for row in table if re.fullmatch(name, row[0])]
        cell = re.match(r"\*?(\d+) \[.*\] of (\d+)", row[table[0].index(length)])
        assert cell is not None
        counts = re.fullmatch(r"(\d+) of \d+", right)
        expected = f"{100 * int(counts[1]) / int(asked):.0f}" if counts else right.removesuffix(" %")
        assert cell.groups() == (expected, asked)


def test_the_sources_of_the_pocket_model_are_on_the_page() -> None:
    right, sourced = re.findall(r"\| all but pass keys with `beacon` \| ([\d,]+) \| ([\d,]+) \|", section("Sources"))[0]
    assert f"{sourced} of {right} right answers" in POCKET_PAGE.read_text()


def test_the_speeds_of_the_pocket_model_are_on_the_page() -> None:
    table = section("Speed, paired in one run")
    slowest = max(re.findall(r"seeing \d+ entries more \| [\d,]+ \| ([\d.]+)", table))
    told = " ".join(POCKET_PAGE.read_text().split())
    assert f"Reading takes at most {slowest} times as long as the bare model" in told


def _readme() -> str:
    """Return the README without its intervals."""
    return re.sub(r" \[\d+–\d+\]", "", README.read_text())


def test_the_real_models_of_the_readme_are_on_the_page() -> None:
    row = r"^\| SmolLM2-135M-Instruct \| (\S+?)[ ,|].*?\| 4K \| (\d+) \[.*?\] of 70 "
    right = dict(re.findall(row, section("Real"), re.MULTILINE))
    quarter = ", ".join(f"`{name}` {right[f'{name}:budget=1024']}" for name in ("exact", "infinitehip"))
    assert f"full {right['full']} %, {quarter} right (n = 70)" in _readme()
    row = r"^\| Qwen2.5-Coder-0.5B-Instruct \| (\S+?)[ ,|].*?\| 32K \| (\d+) \[.*?\] of 42 "
    found = re.findall(row, section("Real"), re.MULTILINE)
    right = {name.split(":")[0]: share for name, share in reversed(found)}  # the first row of each method
    eighth = ", ".join(f"`{name}` {right[name]}" for name in ("infllm", "exact", "infinitehip"))
    assert f"full {right['full']} %, {eighth} right (n = 42)" in _readme()


def test_the_readers_questions_of_the_readme_are_on_the_page() -> None:
    unmarked = section("Finding").partition("### Marked")[0]
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in unmarked.splitlines()]
    rows = {row[2]: row for row in shown if row and row[0].startswith("qwen2.5-coder-0.5b") and "reader" in row[1]}
    told = {MEMORY: "full attention over", PLAIN: "plain text search in pieces", OURS: "Stockpot"}
    for way, name in told.items():
        share, interval, _, asked = rows[WAYS[way]][3].split(" ")
        line = next(line for line in README.read_text().splitlines() if line.startswith(f"| {name}"))
        assert f"| {share} % {interval} |" in line
        assert asked == "102"
    for finder, way in (("plain", PLAIN), ("passages", OURS)):
        line = next(line for line in _readme().splitlines() if line.startswith(f"| {told[way]}"))
        assert line.endswith(f"| {rows[FINDERS[finder]][4]} % |")  # among the best three
