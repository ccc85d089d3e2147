"""Which results today's weights, wordings and settings would give again, and which are of earlier ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.haystack import INVENTED
from benchmarks.neighbours import own_method
from benchmarks.options import POCKET, variant
from benchmarks.report import named
from engine import METHODS, load_model

ASKING = ("ablation", "citations", "consistency", "mass", "neighbours", "random-heads", "rounds", "turns")
"""Benchmarks whose texts have facts in them that matter; of `needle` it depends on the kind."""
Row = dict[str, Any]


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """All results of a folder by name; each row says whether it is of `earlier` weights, wordings or settings, and how
    its answers were `scored`.

    Checks of a GPU, whose weights are noise, are left out: they are tables of their own.
    """
    files = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    results = {name: result for name, result in files.items() if result["benchmark"] != "gpu-check"}
    now = named(load_model(POCKET, "cpu"))
    for result in results.values():
        for row in result["rows"]:
            row |= {"earlier": is_earlier(result, row, now), "scored": result.get("scored")}
    return results


def is_earlier(result: dict[str, Any], row: Row, now: dict[str, Any]) -> bool:
    """Whether a row of a result was taken with other weights, wordings or settings than `now` (of `named`)."""
    return _weights_changed(result, row, now) or _facts_changed(result, row, now) or _settings_changed(row)


def _weights_changed(result: dict[str, Any], row: Row, now: dict[str, Any]) -> bool:
    """Whether the pocket model is another one now, or the weights beside it that the row's method takes."""
    if result.get("model") != now["model"]:
        return False
    method = _method(row)
    then, there = (each.get("beside", {}).get(method) for each in (result, now))
    return bool(result.get("weights") != now["weights"] or then != there)


def _facts_changed(result: dict[str, Any], row: Row, now: dict[str, Any]) -> bool:
    """Whether facts are worded otherwise now, in a result that depends on what they say."""
    depends = result["benchmark"] in ASKING or row.get("kind") in INVENTED
    return bool(depends and result.get("facts") != now["facts"])


def _method(row: Row) -> str:
    """The name of the method that a row is about, without settings; empty if there is none."""
    said = row.get("method") or row.get("scorer") or row.get("comparison") or ""
    return "locret" if row.get("heads") == "trained" else re.split("[ :]", said)[0]


def _settings_changed(row: Row) -> bool:
    """Whether a method's settings, where they are known, are not what its name stands for today.

    One that the method has had only since does not count: by default it does what was done before.
    """
    if "settings" not in row:
        return False
    usual = [variant(row["method"], row["budget"]).settings()]
    if row["method"] in METHODS:
        usual.append(own_method(row["method"], row["budget"]).settings())  # beside presses
    return not any(row["settings"].items() <= each.items() for each in usual)
