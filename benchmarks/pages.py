"""Turns `results/*.json` into docs/results.md: tables, heat maps and curves. `python -m benchmarks.pages`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import Any

import matplotlib

from benchmarks.report import RESULTS

matplotlib.use("svg")
from matplotlib import pyplot

DOCS = RESULTS.parent.parent / "docs"
Row = dict[str, Any]


def load() -> dict[str, dict[str, Any]]:
    """All results by name."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))}


def length(tokens: int) -> str:
    """2048 as 2K, 1048576 as 1M."""
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K" if tokens >= 1 << 10 else str(tokens)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def label(row: Row) -> str:
    """Method and budget."""
    return row["method"] if row["budget"] is None else f"{row['method']} {row['budget']}"


def percent(cells: list[Row]) -> str:
    """Accuracy of several rows together."""
    asked = sum(cell["asked"] for cell in cells)
    return f"{100 * sum(cell['correct'] for cell in cells) / asked:.0f}" if asked else ""


def accuracy(kind: str, rows: list[Row]) -> str:
    """Accuracy by method and length, depths side by side, shaped like InfiniPot's Table 4."""
    lengths = sorted({row["tokens"] for row in rows})
    depths = sorted({row["depth"] for row in rows if row["depth"] is not None})
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[label(row)].append(row)
    lines = []
    for name, own in grouped.items():
        cells = []
        for tokens in lengths:
            here = [row for row in own if row["tokens"] == tokens]
            shown = [percent([row for row in here if row["depth"] == depth]) for depth in depths] or [percent(here)]
            cells.append("/".join(shown) if here else "–")
        lines.append([name, *cells])
    asked = sorted({row["asked"] for row in rows})
    depth_note = f", depths {'/'.join(str(d) for d in depths)}" if depths else ""
    note = f"Exact answers in %{depth_note}; {asked[0]} to {asked[-1]} questions a cell."
    return f"### {TITLES[kind]}\n\n{note}\n\n" + markdown(["", *map(length, lengths)], lines)


TITLES = {
    "passkey": "One pass key in the paper's repeated filler",
    "prose": "One pass key in real prose",
    "facts": "Eight facts in real prose, asked one after another in one conversation",
}


def heat_map(kind: str, rows: list[Row]) -> str:
    """Accuracy as colours: methods down, lengths (and depths) across."""
    names = list(dict.fromkeys(label(row) for row in rows))
    columns = sorted({(row["tokens"], row["depth"] if row["depth"] is not None else -1.0) for row in rows})
    grid = [[float("nan")] * len(columns) for _ in names]
    for row in rows:
        column = columns.index((row["tokens"], row["depth"] if row["depth"] is not None else -1.0))
        grid[names.index(label(row))][column] = 100 * row["correct"] / row["asked"]
    figure, axes = pyplot.subplots(figsize=(2.5 + 0.5 * len(columns), 1.2 + 0.3 * len(names)))
    image = axes.imshow(grid, vmin=0, vmax=100, cmap="RdYlGn", aspect="auto")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    ticks = [length(tokens) + (f"\n{depth:g}" if depth >= 0 else "") for tokens, depth in columns]
    axes.set_xticks(range(len(columns)), ticks, fontsize=8)
    figure.colorbar(image, label="exact answers, %")
    return _save(figure, f"needle-{kind}")


def curve(rows: list[Row]) -> str:
    """Peak memory and first-token time against length."""
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3))
    for name in dict.fromkeys(row["method"] for row in rows):
        own = sorted((row for row in rows if row["method"] == name), key=lambda row: row["tokens"])
        tokens = [row["tokens"] for row in own]
        axes[0].plot(tokens, [row["peak_memory_bytes"] / 1e9 for row in own], marker="o", label=name)
        axes[1].plot(tokens, [row["time_to_first_token_seconds"] for row in own], marker="o", label=name)
    for axis, text in zip(axes, ("peak process memory, GB", "time to first token, s"), strict=True):
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_xlabel("tokens read")
        axis.set_ylabel(text)
    axes[0].legend()
    return _save(figure, "latency")


def _save(figure: Any, name: str) -> str:
    path = DOCS / "figures" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"![{name}](figures/{name}.svg)"


def sources(rows: list[Row]) -> str:
    """Of right answers, the share whose first source holds the fact."""
    lines = []
    for name in dict.fromkeys(label(row) for row in rows):
        own = [row for row in rows if label(row) == name and row["correct"]]
        right = sum(row["correct"] for row in own)
        if right >= 10:
            lines.append([name, str(right), f"{100 * sum(row['sourced'] for row in own) / right:.0f} %"])
    return "## Sources\n\n" + markdown(["", "right answers", "first source holds the fact"], lines)


def cache_table(result: dict[str, Any]) -> str:
    """Miss rate by policy and size."""
    rows = result["rows"]
    sizes = sorted({row["units"] for row in rows})
    rates = {(row["policy"], row["units"]): f"{100 * row['miss_rate']:.1f}" for row in rows}
    lines = [
        [policy, *(rates[policy, units] for units in sizes)] for policy in dict.fromkeys(r["policy"] for r in rows)
    ]
    note = (
        f"InfLLM reading {rows[0]['tokens']:,} tokens, {result['looked_up']} units of {result['block']} looked up by "
        "each block of queries; misses in %, by the units that the cache holds."
    )
    return f"## The device's cache\n\n{note}\n\n" + markdown(["policy", *map(str, sizes)], lines)


def main() -> int:
    """Write the page."""
    results = load()
    rows = [row for result in results.values() if result["benchmark"] == "needle" for row in result["rows"]]
    devices = sorted({str(result["machine"]["device"]) for result in results.values()})
    text = [
        "# Results",
        f"Made by `python -m benchmarks.pages` from `benchmarks/results/`. Device: {', '.join(devices)}.",
        "## Accuracy",
    ]
    for kind in TITLES:
        own = [row for row in rows if row["kind"] == kind]
        if own:
            text += [accuracy(kind, own), heat_map(kind, own)]
    if rows:
        text.append(sources(rows))
    own = [row for result in results.values() if result["benchmark"] == "latency" for row in result["rows"]]
    if own:
        columns = ["method", "tokens", "tokens/s", "distilling", "first token, s", "tokens/s out", "peak MB", "KV MB"]
        lines = [
            [
                row["method"],
                length(row["tokens"]),
                f"{row['tokens_per_second']:.0f}",
                f"{100 * row['distill_seconds'] / row['read_seconds']:.1f} %",
                f"{row['time_to_first_token_seconds']:.3f}",
                f"{row['decode_tokens_per_second']:.1f}",
                f"{row['peak_memory_bytes'] / 1e6:.0f}",
                ", ".join(f"{tier} {size / 1e6:.1f}" for tier, size in row["kv_bytes"].items()),
            ]
            for row in own
        ]
        text += ["## Time and memory", markdown(columns, lines), curve(own)]
    if "speed" in results:
        lines = [
            [row["comparison"], str(row["tokens"]), f"{row['ratio']:.2f}", str(row.get("same_tokens", ""))]
            for row in results["speed"]["rows"]
        ]
        header = ["comparison", "tokens", "our time / theirs", "same tokens"]
        text += ["## Speed, paired in one run", markdown(header, lines)]
    if "cache" in results:
        text.append(cache_table(results["cache"]))
    (DOCS / "results.md").write_text("\n\n".join(text) + "\n")
    print(f"written to {DOCS / 'results.md'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
