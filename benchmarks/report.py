"""Results: a table on the screen, JSON under `results/`, and a description of the machine."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.haystack import wording
from engine import METHODS, Model, WeightsError, make_method

SCORED = "contained"  # earlier results lack this field: there only identical answers were right
RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, Any]:
    """Return the names of the device and of the processor, its cores, and versions of the main packages."""
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def hardware(machine: dict[str, Any]) -> str:
    """Return what `machine` said of a device and its threads, as in "AMD EPYC, 1 thread"."""
    threads = machine["threads"]
    return f"{machine['device']}, {threads} thread{'s' * (threads > 1)}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(rows: list[dict[str, Any]], columns: list[str] | None = None) -> str:
    """Return rows as an aligned text table."""
    if not rows:
        return "(no rows)"
    names = columns or [name for name in rows[0] if name != "settings"]
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in cells)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def named(model: Model) -> dict[str, Any]:
    """Return the versions a result depends on.

    Returns:
        `model` and `weights`: name and digest; `beside`: digest of the weights beside the model, by method; `facts`:
        digest of the wording of facts; `scored`: how answers count as right.
    """
    beside = {}
    for name in METHODS:
        with contextlib.suppress(WeightsError):
            beside[name] = make_method(name).weights_digest(model.spec)[:12]
    held = {name: digest for name, digest in beside.items() if digest}
    weights = {"model": model.name, "weights": model.fingerprint[:12], "beside": held}
    return {**weights, "facts": wording(), "scored": SCORED}


def publish(name: str, rows: list[dict[str, Any]], out: Path | None, as_json: bool, **facts: Any) -> None:
    """Print rows (as JSON on stdout if asked, else as a table) and write them to `out`, if given."""
    print(json.dumps({"rows": rows}) if as_json else table(rows), flush=True)
    if out is not None:
        write(name, rows, out, **facts)
        print(f"written to {out}", file=sys.stderr)


def write(name: str, rows: list[dict[str, Any]], out: Path, **facts: Any) -> None:
    """Write a benchmark's rows, with machine and versions, to a file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"benchmark": name, "machine": machine(), **facts, "rows": rows}, indent=1) + "\n")
