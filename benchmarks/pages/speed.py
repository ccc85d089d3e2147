"""Sections about time and memory."""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot

from benchmarks.freshness import Row
from benchmarks.pages.markup import conditions, length, markdown, marked, save
from benchmarks.speed import REPEATS

MEASURES = {"read_seconds": "reading", "decode_seconds": "decoding"}


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


def growth(rows: list[Row]) -> list[str]:
    """Return milliseconds per token by length, and the figure."""
    lengths, names = sorted({row["tokens"] for row in rows}), list(dict.fromkeys(row["method"] for row in rows))
    text = [
        "## Time per token by length",
        f"{conditions(rows)} One text of each length; where there are two numbers, of two runs. No interval.",
    ]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 3))
    for axis, (key, doing) in zip(axes, MEASURES.items(), strict=True):
        lines = []
        for name in names:
            own = [row for row in rows if row["method"] == name]
            time: dict[int, list[float]] = {}
            for row in own:
                time.setdefault(row["tokens"], []).append(1000 * row[key])
            shown = marked(name, own)
            lines.append([shown, *("/".join(f"{ms:.2f}" for ms in time.get(tokens, [])) or "–" for tokens in lengths)])
            axis.plot(sorted(time), [min(time[tokens]) for tokens in sorted(time)], marker="o", label=shown)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(lengths, [length(tokens) for tokens in lengths])
        axis.set_xlabel("tokens read")
        axis.set_ylabel(f"{doing}, ms per token")
        text.append(markdown([f"{doing}, ms per token", *map(length, lengths)], lines))
    axes[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    return [*text, save(figure, "growth")]


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
