"""Sections about the entries that methods keep and select, one for each benchmark."""

from __future__ import annotations

from typing import Any

from benchmarks.freshness import Row
from benchmarks.pages.markup import conditions, length, markdown, marked, percent


def random_heads(rows: list[Row]) -> list[str]:
    """Return accuracy of Locret with trained and with random heads."""
    lines = [
        [marked(row["heads"], [row]), str(row["budget"]), length(row["tokens"]), percent([row])]
        for row in sorted(rows, key=lambda row: row["heads"], reverse=True)
    ]
    note = f"{conditions(rows)} Facts, as in Locret's Table 6."
    return ["## Retaining heads, trained and random", note, markdown(["heads", "budget", "tokens", "right"], lines)]


def neighbours(rows: list[Row]) -> list[str]:
    """Return accuracy of our methods and kvpress's at the same number of entries."""
    lines = [
        [
            marked(f"{row['package']}: {row['method']}", [row]),
            length(row["tokens"]),
            "all" if row["entries"] is None else str(row["entries"]),
            str(row["held"]),
            percent([row]),
            f"{row['read_seconds']:.2f}",
        ]
        for row in rows
    ]
    note = (
        f"{conditions(rows)} Each fact is asked of the text alone. A press chooses entries once it has seen the whole "
        "text, our methods while they read. KVzip passes a text twice, so beyond 1K it leaves this model's window."
    )
    header = ["", "tokens", "allowed", "held", "right", "reading, s"]
    return ["## Beside kvpress", note, markdown(header, lines)]


def cache_table(result: dict[str, Any]) -> list[str]:
    """Return the miss rate by policy and size."""
    rows = result["rows"]
    sizes = sorted({row["units"] for row in rows})
    rates = {(row["policy"], row["units"]): f"{100 * row['miss_rate']:.1f}" for row in rows}
    lines = [
        [marked(policy, rows), *(rates[policy, units] for units in sizes)]
        for policy in dict.fromkeys(row["policy"] for row in rows)
    ]
    asked = rows[0]["hits"] + rows[0]["misses"]
    note = (
        f"{conditions(rows)} Misses in %, by the units that the cache holds. InfLLM reads {rows[0]['tokens']:,} "
        f"tokens, looking up {result['looked_up']} units of {result['block']} tokens at a time, {asked:,} in all. "
        "Every policy replays the same record, so rows differ by policy alone."
    )
    return ["## The device's cache", note, markdown(["policy", *map(str, sizes)], lines)]
