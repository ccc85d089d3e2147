"""What the README and the docs say in words is what the results say in numbers."""

from __future__ import annotations

import functools
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
LENGTHS = {"2K": 2 << 10, "8K": 8 << 10, "32K": 32 << 10, "128K": 128 << 10, "1M": 1 << 20}
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


def table(first: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table of what was measured whose header begins with these cells."""
    lines = (ROOT / "docs" / "measured.md").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(first))
    end = next(number for number in range(at, len(lines)) if not lines[number].startswith("|"))
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[at:end]]
    return header, rows


@functools.cache
def of_needle() -> list[dict[str, Any]]:
    """All cells of `needle`, which take a while to be looked up in the results."""
    return asked_once(rows_of(load(RESULTS), "needle"))


def asked_of(method: str, budget: int, tokens: list[int], kinds: list[str], **how: Any) -> list[dict[str, Any]]:
    """The cells of `needle` that were asked so."""
    wanted = {"read_again": False, "page": None, "parts": None, **how}
    return [
        row
        for row in of_needle()
        if (row["method"], row["budget"]) == (method, budget)
        and row["tokens"] in tokens
        and row["kind"] in kinds
        and all((row.get(key) or None) == (value or None) for key, value in wanted.items())
    ]


def check(cell: str, rows: list[dict[str, Any]]) -> None:
    """A cell says what was counted: "93" of a hundred, or "8 of 8"."""
    correct, asked = (sum(row[what] for row in rows) for what in ("correct", "asked"))
    counted = re.match(r"(\d+) of (\d+)", cell)
    if counted:
        assert (correct, asked) == (int(counted[1]), int(counted[2]))
    else:
        assert f"{100 * correct / asked:.0f}" == cell


def test_the_table_of_facts_is_what_was_counted() -> None:
    header, rows = table("| | entries |")
    assert len(rows) == 12
    for name, entries, *cells in rows:
        method = name.split("`")[1]
        how = {"read_again": "reading again" in name, "page": 400 if "page named" in name else None}
        for length, cell in zip(header[2:], cells, strict=True):
            if cell:
                read_with = f"{method}:preset=pocket-far" if "pocket-far" in cell else method
                budget = int(entries.split()[0].replace(",", ""))
                check(cell, asked_of(read_with, budget, [LENGTHS[length]], ["facts"], **how))


def test_the_table_of_pass_keys_is_what_was_counted() -> None:
    header, rows = table("| 1,024 entries |")
    assert len(rows) == 8
    for name, *cells in rows:
        method = name.split("`")[1]
        for lengths, cell in zip(header[1:], cells, strict=True):
            read_with = f"{method}:preset=pocket-far" if "pocket-far" in cell else method
            tokens = [LENGTHS[length] for length in lengths.split(" and ")]
            check(cell, asked_of(read_with, 1024, tokens, ["passkey", "prose"]))


def test_the_facts_of_the_readme_are_what_was_counted() -> None:
    read = r"^\| facts in prose, `(\w+)`( reading again)?, ([\d,]+) entries, (\w+) tokens"
    told = read + r" \| (.*?) right \| .* \| (\d+) questions \|$"
    found = re.findall(told, (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(found) == 4
    for method, again, entries, length, cell, asked in found:
        rows = asked_of(method, int(entries.replace(",", "")), [LENGTHS[length]], ["facts"], read_again=bool(again))
        check(cell.removesuffix(" %"), rows)
        assert sum(row["asked"] for row in rows) == int(asked)
