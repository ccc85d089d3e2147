"""Which results still hold for today's weights, wordings and settings, and which are older."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.haystack import INVENTED
from benchmarks.options import POCKET, variant
from benchmarks.report import hardware, named
from engine import load_model
from engine.methods import GONE

Row = dict[str, Any]


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """Return all results of a folder by name.

    Each row has `model`, `machine`, `scored`, and `earlier` (measured with older weights, wordings or settings). GPU
    checks are left out, as their weights are noise; they have tables of their own.
    """
    files = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    results = {name: result for name, result in files.items() if result["benchmark"] != "gpu-check"}
    now = named(load_model(POCKET, "cpu"))
    for result in results.values():
        for row in result["rows"]:
            row |= {"earlier": is_earlier(result, row, now), "scored": result.get("scored")}
            row |= {"model": result.get("model", ""), "machine": hardware(result["machine"])}
    return results


def is_earlier(result: dict[str, Any], row: Row, now: dict[str, Any]) -> bool:
    """Return whether a row was measured with weights, wordings or settings other than `now` (from `named`)."""
    return _weights_changed(result, row, now) or _facts_changed(result, row, now) or _settings_changed(row)


def _weights_changed(result: dict[str, Any], row: Row, now: dict[str, Any]) -> bool:
    """Return whether the pocket model changed, or the weights beside it that the row's method uses."""
    if result.get("model") != now["model"]:
        return False
    method = _method(row)
    then, there = (each.get("beside", {}).get(method) for each in (result, now))
    return bool(result.get("weights") != now["weights"] or then != there)


def _facts_changed(result: dict[str, Any], row: Row, now: dict[str, Any]) -> bool:
    """Return whether the wording of facts changed, for results that depend on it."""
    return row.get("kind") in INVENTED and result.get("facts") != now["facts"]


def _method(row: Row) -> str:
    """Return the name of a row's method without settings; "" if there is none."""
    return re.split("[ :]", row.get("method") or row.get("comparison") or "")[0]


def _settings_changed(row: Row) -> bool:
    """Return whether the row's settings, if known, differ from the method's settings today.

    Settings added since do not count: their defaults keep the earlier behaviour. Nor do those that are gone.
    """
    if "settings" not in row:
        return False
    usual = variant(row["method"], row["budget"]).settings()
    # The tier that `auto` is where results are measured
    then = {key: value for key, value in row["settings"].items() if value not in GONE.get(key, ())}
    return not then.items() - {("tier", "host")} <= usual.items()
