"""Tables of the check, on the screen and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gpu_check.check import Check, Row
from benchmarks.report import machine, table

COLUMNS = {
    "model": ["model", "what", "seconds", "status"],
    "parity": ["model", "what", "error", "allowed", "ok", "status"],
    "kernels": [
        *("kernel", "what", "heads", "bank", "dtype", "length", "error", "reference_error", "agrees"),
        *("seconds", "sdpa_seconds", "status"),
    ],
    "experts": ["what", "tokens", "error", "allowed", "ok", "seconds", "recorded_seconds", "status"],
    "attention": [
        *("what", "length", "seconds", "sdpa_seconds", "flash_seconds", "hip_attn_seconds", "to_dense"),
        *("hip_attn", "status"),
    ],
    "reading": [
        *("model", "method", "tokens", "held", "read", "tokens_per_second", "planned_tokens_per_second"),
        *("tokens_per_second_there", "to_dense", "device_bytes", "planned_device_bytes"),
        *("kv_device_bytes", "planned_kv_device_bytes", "host_bytes", "planned_host_bytes", "status"),
    ],
    "answering": [
        *("model", "method", "tokens", "held", "first_token_seconds", "planned_first_token_seconds"),
        *("tokens_per_second", "recorded", "tokens_per_second_without_graphs", "planned_tokens_per_second", "to_dense"),
        "status",
    ],
}


def compare(rows: list[Row]) -> None:
    """Add to every speed its ratio to the dense cache's, at the same length of the same model."""
    dense = {
        (row["part"], row["model"], row["tokens"]): speed
        for row in rows
        if row.get("method") == "dense" and (speed := _speed(row))
    }
    for row in rows:
        other = dense.get((row["part"], row.get("model"), row.get("tokens")))
        if other and (speed := _speed(row)):
            row["to_dense"] = speed / other


def _speed(row: Row) -> float | None:
    """Return the speed at the row's length; None if it was not reached."""
    found: float | None = row.get("tokens_per_second_there", row.get("tokens_per_second"))
    return found if row["status"] == "done" else None


def write(check: Check, out: Path) -> None:
    """Write the result as JSON."""
    result = {
        "benchmark": "gpu-check",
        "machine": machine(),
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
