"""Sections about time and memory."""

from __future__ import annotations

from matplotlib import pyplot

from benchmarks.freshness import Row
from benchmarks.pages.markup import length, markdown, marked, save


def latency(rows: list[Row]) -> list[str]:
    """Return speed and memory, measured and planned, by method and length: a table and curves."""
    header = ["method", "tokens", "tokens/s", "distilling", "first token, s", "tokens/s out", "peak MB", "KV MB"]
    lines = [
        [
            marked(row["method"], [row]),
            length(row["tokens"]),
            f"{row['tokens_per_second']:.0f}",
            f"{100 * row['distill_seconds'] / row['read_seconds']:.1f} %",
            f"{row['time_to_first_token_seconds']:.3f}",
            f"{row['decode_tokens_per_second']:.1f}",
            f"{row['peak_memory_bytes'] / 1e6:.0f}",
            ", ".join(f"{tier} {size / 1e6:.1f}" for tier, size in row["kv_bytes"].items()),
            " / ".join(f"{times:.1f}" for times in row.get("times_planned", {}).values()) or "–",
        ]
        for row in rows
    ]
    note = (
        "Took / planned: the time of reading, of the first token and of a token of an answer, each as a multiple of "
        "what [the planner](planner.md) said."
    )
    return ["## Time and memory", note, markdown([*header, "took / planned"], lines), curve(rows)]


def curve(rows: list[Row]) -> str:
    """Draw peak memory and time to first token against length."""
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3))
    for name in dict.fromkeys(marked(row["method"], [row]) for row in rows):
        own = sorted((row for row in rows if marked(row["method"], [row]) == name), key=lambda row: row["tokens"])
        tokens = [row["tokens"] for row in own]
        axes[0].plot(tokens, [row["peak_memory_bytes"] / 1e9 for row in own], marker="o", label=name)
        axes[1].plot(tokens, [row["time_to_first_token_seconds"] for row in own], marker="o", label=name)
    for axis, text in zip(axes, ("peak process memory, GB", "time to first token, s"), strict=True):
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_xlabel("tokens read")
        axis.set_ylabel(text)
    axes[0].legend()
    return save(figure, "latency")


def speed(rows: list[Row]) -> list[str]:
    """Return our times as multiples of others', measured in turns."""
    same = {True: "yes", False: "no", None: ""}
    lines = [
        [
            marked(row["comparison"], [row]),
            str(row["tokens"]),
            f"{row['ratio']:.2f}",
            same[row.get("same_tokens")],
        ]
        for row in rows
    ]
    header = ["comparison", "tokens", "our time / theirs", "same tokens"]
    return ["## Speed, paired in one run", markdown(header, lines)]


GROWTH = {"growth": "Time per token against length", "growth-beacon": "Time per token up to 128K tokens"}


def growth(title: str, figure_name: str, rows: list[Row], crossover: dict[str, dict[str, float | None]]) -> list[str]:
    """Return milliseconds per token against length beside full attention, and the crossover lengths."""
    lengths, names = sorted({row["tokens"] for row in rows}), list(dict.fromkeys(row["method"] for row in rows))
    shown = {name: marked(name, [row for row in rows if row["method"] == name]) for name in names}
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3))
    parts = [f"## {title}"]
    for axis, what in zip(axes, ("read", "decode"), strict=True):
        time = {(row["method"], row["tokens"]): 1000 * row[f"{what}_seconds"] for row in rows}
        for name in names:
            axis.plot(lengths, [time[name, tokens] for tokens in lengths], marker="o", label=shown[name])
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("tokens read")
        axis.set_ylabel(f"{'reading' if what == 'read' else 'decoding'}, ms per token")
        crossed = crossover[f"{what}_seconds"]
        lines = []
        for name in names:
            at = crossed.get(name)
            where = "" if name == "full" else "not reached" if at is None else f"{at:,.0f}"
            lines.append([shown[name], *(f"{time[name, tokens]:.2f}" for tokens in lengths), where])
        header = [
            f"{'Reading' if what == 'read' else 'Decoding'}, ms per token",
            *map(length, lengths),
            "faster than full from",
        ]
        parts.append(markdown(header, lines))
    axes[0].legend(fontsize=7)
    return [*parts, save(figure, figure_name)]
