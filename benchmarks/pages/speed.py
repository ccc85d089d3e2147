"""Sections about time and memory."""

from __future__ import annotations

from typing import Any

from benchmarks.freshness import Row
from benchmarks.pages.markup import conditions, length, markdown, marked
from benchmarks.speed import REPEATS


def latency(rows: list[Row]) -> list[str]:
    """Return speed and memory, measured and planned, by method and length."""
    header = ["method", "tokens", "tokens/s", "first token, s", "answer tokens/s", "process MB", "KV MB", "planned"]
    lines = [
        [
            marked(row["method"], [row]),
            length(row["tokens"]),
            f"{row['tokens_per_second']:,.0f}",
            f"{row['time_to_first_token_seconds']:.3f}",
            f"{row['decode_tokens_per_second']:.0f}",
            f"{row['peak_memory_bytes'] / 1e6:,.0f}",
            " + ".join(f"{size / 1e6:,.0f}" for size in row["kv_bytes"].values()),
            "/".join(f"{times:.1f}" for times in row.get("times_planned", {}).values()) or "–",
        ]
        for row in rows
    ]
    note = (
        f"{conditions(rows)} One reading each, so there is no interval. Budgets of 1,024. KV: on the device + in host "
        "memory. Planned: the times of reading, first token and answer token, each as a multiple of "
        "[the plan's](planner.md#times)."
    )
    return ["## Time and memory", note, markdown(header, lines)]


def speed(rows: list[Row]) -> list[str]:
    """Return our times as multiples of others', measured in turns."""
    same = {True: "yes", False: "no", None: "–"}
    lines: list[list[Any]] = [
        [marked(row["comparison"], [row]), f"{row['tokens']:,}", f"{row['ratio']:.2f}", same[row.get("same_tokens")]]
        for row in rows
    ]
    note = f"{conditions(rows)} The sides take turns; the median ratio of {REPEATS} runs each. No interval."
    header = ["comparison", "tokens", "our time / theirs", "same tokens"]
    return ["## Speed, paired in one run", note, markdown(header, lines)]
