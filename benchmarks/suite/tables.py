"""Cells as tables: for each method and length, all families together and each alone, with n and 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from app.formatting import Z, wilson
from benchmarks.scoring import bootstrap
from benchmarks.suite.qa import SOURCES
from benchmarks.suite.store import Cell

Row = dict[str, Any]
FEW = 40  # questions; smaller cells are marked
NEEDLES, READING, ALL = "all needles", "all qa", "all"
OVER_QA = tuple(source.family for source in SOURCES)
KEY = ("model", "method", "looks", "tokens")


def rows_of(cells: Iterable[Cell]) -> list[Row]:
    """Return rows of numbers: model, method with settings, looks, tokens, family, n, and means with intervals."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in KEY), []).append(cell)
    rows = []
    for key, group in groups.items():
        named = dict(zip(KEY, key, strict=True)) | {"readings": len(group)}
        questions = [question for cell in group for question in cell["questions"]]
        families = list(dict.fromkeys(sorted(question["family"] for question in questions)))
        families.sort(key=lambda family: family in OVER_QA)
        pooled = {
            ALL: families,
            NEEDLES: [family for family in families if family not in OVER_QA],
            READING: [family for family in families if family in OVER_QA],
        }
        for family, members in {**pooled, **{family: [family] for family in families}}.items():
            own = [question for question in questions if question["family"] in members]
            if own:
                rows.append({**named, "family": family, **_means(own)})
        if all("perplexity" in cell for cell in group):
            rows.append({**named, "family": "perplexity", **_perplexity(group)})
    return rows


def _means(questions: list[dict[str, Any]]) -> Row:
    count = len(questions)
    row: Row = {"n": count, "few": count < FEW}
    for score in ("contained", "f1", "exact", "precision"):
        values = [question[score] for question in questions if score in question]
        if len(values) < count:
            continue
        mean = fmean(values)
        row[score] = round(mean, 4)
        interval = bootstrap(values) if score == "f1" else wilson(mean, count)
        row[f"{score}_95"] = [round(end, 4) for end in interval]
    return row


def _perplexity(group: list[Cell]) -> Row:
    """Return the perplexity: exp of the mean loss over all tokens, with a normal interval over tokens."""
    count, total, squares = (sum(cell["perplexity"][key] for cell in group) for key in ("tokens", "sum", "squares"))
    mean = total / count
    spread = Z * math.sqrt(max(0.0, squares / count - mean * mean) / count)
    interval = [round(math.exp(end), 3) for end in (mean - spread, mean + spread)]
    return {"n": count, "few": count < FEW, "perplexity": round(math.exp(mean), 3), "perplexity_95": interval}


def shown(rows: Iterable[Row]) -> list[Row]:
    """Return rows for people: percentages with intervals, and n marked if there are few questions."""
    lines = []
    for row in rows:
        line = {key: row[key] for key in (*KEY, "family")}
        line["n"] = f"{row['n']}{' (few)' if row['few'] else ''}"
        for score in ("contained", "f1", "exact", "precision"):
            line[f"{score} %"] = _percent(row[score], row[f"{score}_95"]) if score in row else None
        line["perplexity"] = None
        if "perplexity" in row:
            line["perplexity"] = (
                f"{row['perplexity']:.2f} [{row['perplexity_95'][0]:.2f} {row['perplexity_95'][1]:.2f}]"
            )
        lines.append(line)
    return lines


def _percent(mean: float, interval: list[float]) -> str:
    return f"{100 * mean:.0f} [{100 * interval[0]:.0f} {100 * interval[1]:.0f}]"
