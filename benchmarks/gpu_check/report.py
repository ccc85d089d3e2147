"""Tables of the check, on the screen and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gpu_check.check import Check, Row
from benchmarks.report import machine, table
from engine.pinned_memory import rule

COLUMNS = {
    "model": ["model", "what", "seconds", "status"],
    "parity": ["model", "what", "error", "allowed", "ok", "status"],
    "kernels": [
        *("kernel", "what", "heads", "bank", "dtype", "length", "error", "reference_error", "agrees"),
        *("graph_seconds", "seconds", "sdpa_graph_seconds", "sdpa_seconds", "status"),
    ],
    "experts": ["what", "tokens", "error", "allowed", "ok", "seconds", "recorded_seconds", "status"],
    "attention": [
        *("what", "length", "seconds", "sdpa_seconds", "flash_seconds", "hip_attn_seconds", "to_dense"),
        *("hip_attn", "status"),
    ],
    "stages": [
        *("what", "keys", "compares", "length", "stage_1", "stage_2", "stage_3", "attention", "all", "seconds_for_32k"),
        *("from_stage_2", "from_stage_3", "mean_3k", "mean_3k_fast", "mean_3k_flash", "status"),
    ],
    "bare": ["model", "chunk", "tokens_per_second", "status"],
    "reading": [
        *("model", "method", "tokens", "held", "read", "tokens_per_second_there", "planned_tokens_per_second"),
        *("to_bare", "to_dense", "tokens_per_second", "device_bytes", "planned_device_bytes"),
        *("kv_device_bytes", "planned_kv_device_bytes", "host_bytes", "planned_host_bytes", "status"),
    ],
    "answering": [
        *("model", "method", "tokens", "held", "first_token_seconds", "planned_first_token_seconds"),
        *("answer_tokens", "replayed", "unrecorded", "recorded_anew", "tokens_per_second", "replayed_per_second"),
        *("hit_ratio", "tokens_per_second_without_graphs", "planned_tokens_per_second", "to_dense"),
        *("device_bytes", "planned_device_bytes", "status"),
    ],
    "profile": [
        *("model", "method", "what", "seconds", "kernels_per_layer", "busy_seconds", "gap_seconds", "busy_share"),
        *("copied_bytes", "status"),
    ],
}


def compare(rows: list[Row]) -> None:
    """Add to every speed its ratio to the dense cache's at the same length, and to a pass without a memory."""
    dense = {
        (row["part"], row["model"], row["tokens"]): speed
        for row in rows
        if row.get("method") == "dense" and (speed := _speed(row))
    }
    bare = {row["model"]: row["tokens_per_second"] for row in rows if row["part"] == "bare" and _speed(row)}
    for row in rows:
        speed = _speed(row)
        if speed and (other := dense.get((row["part"], row.get("model"), row.get("tokens")))):
            row["to_dense"] = speed / other
        if speed and row["part"] == "reading" and row["model"] in bare:
            row["to_bare"] = speed / bare[row["model"]]


def _speed(row: Row) -> float | None:
    """Return the speed at the row's length; None if it was not reached."""
    found: float | None = row.get("tokens_per_second_there", row.get("tokens_per_second"))
    return found if row["status"] == "done" else None


def write(check: Check, part: str, out: Path) -> None:
    """Write the result of a part as JSON."""
    result = {
        "benchmark": "gpu-check",
        "run": part,
        "machine": machine(),
        "rates": check.rates,
        "pinned_memory": rule(),
        "device_limit_bytes": check.limit,
        "host_limit_bytes": check.host,
        "tiny": check.tiny,
        "rows": check.rows,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


def tables(rows: list[Row]) -> str:
    """Return one table per part, with bytes in GB."""
    shown = []
    for part, columns in COLUMNS.items():
        mine = [{key: _gigabytes(key, value) for key, value in row.items()} for row in rows if row["part"] == part]
        if mine:
            shown.append(f"{part}\n{table(mine, columns)}")
    return "\n\n".join(shown)


def _gigabytes(key: str, value: object) -> object:
    return f"{value / 1e9:.2f} GB" if key.endswith("_bytes") and isinstance(value, int) else value
