"""Sections about accuracy and sources."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from matplotlib import pyplot

from benchmarks.freshness import Row
from benchmarks.needle import CELL
from benchmarks.pages.markup import label, length, markdown, marked, percent, right_answers, save

TITLES = {
    "passkey": "One pass key in repeated filler",
    "prose": "One pass key in real prose",
    "facts": "Eight facts in real prose, asked one after another in one conversation",
    "relations": "Eight facts about relations that training did not contain",
    "wordings": "Eight facts stated and asked in wordings that training did not contain",
    "two": "Two pass keys in real prose, to be given in order",
    "pairs": "Keys and values and nothing else, the keys nearly alike",
}


def accuracy(title: str, rows: list[Row]) -> list[str]:
    """Return accuracy by method and length, depths side by side, in the shape of InfiniPot's Table 4."""
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
    number = f"{asked[0]} to {asked[-1]}" if asked[0] < asked[-1] else f"{asked[0]}"
    note = f"{right_answers(rows).capitalize()} in %{depth_note}; {number} questions a cell."
    return [f"### {title}", note, markdown(["", *map(length, lengths)], lines)]


def heat_map(kind: str, rows: list[Row]) -> str:
    """Draw accuracy as colours: methods down, lengths (and depths) across."""
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
    figure.colorbar(image, label=f"{right_answers(rows)}, %")
    return save(figure, f"needle-{kind}")


def kept_stores(rows: list[Row]) -> list[str]:
    """Return accuracy and bytes of quantised kept entries."""
    lines, plain = [], 0
    for row in rows:
        method, _, store = row["method"].partition(":store=")
        held = row["kv_bytes"]["device"]
        plain = held if store == "model" else plain
        share = f"{100 * held / plain:.0f} %" if plain else ""
        lines.append([marked(method, [row]), store, length(row["tokens"]), percent([row]), f"{held / 1e6:.2f}", share])
    note = (
        f"Facts as above, budget {rows[0]['budget']}, {rows[0]['asked']} questions a cell, {right_answers(rows)} in %. "
        "KV is all that is allocated for the finished reading. `model` is the type that the model computes in: on a "
        "CPU, float32."
    )
    header = ["", "store", "tokens", "right", "KV MB", "of `model`"]
    return ["### Kept entries in codes", note, markdown(header, lines)]


def asked_once(rows: list[Row]) -> list[Row]:
    """Return one row of `needle` for each cell: the one with most questions, which include those of the others."""
    most: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        cell = (*(row.get(what) or False for what in CELL), row["earlier"])
        if cell not in most or most[cell]["asked"] < row["asked"]:
            most[cell] = row
    return list(most.values())


def is_varied(row: Row) -> bool:
    """Return whether a row of `needle` belongs to the table of facts with one setting changed."""
    return ":" in row["method"] and row["kind"] == "facts"


def sources(rows: list[Row]) -> list[str]:
    """Return the share of right answers whose first source holds the fact."""
    lines = []
    for name in dict.fromkeys(label(row) for row in rows):
        own = [row for row in rows if label(row) == name and row["correct"]]
        right = sum(row["correct"] for row in own)
        if right >= 10:
            lines.append([name, str(right), f"{100 * sum(row['sourced'] for row in own) / right:.0f} %"])
    right, sourced = (sum(row[what] for row in rows) for what in ("correct", "sourced"))
    note = f"In {sourced:,} of all {right:,} right answers the first source shown holds the fact."
    table = markdown(["", "right answers", "first source holds the fact"], lines)
    return ["## Sources", note, table]


def citations(rows: list[Row]) -> list[str]:
    """Return the share of sentences whose sources hold the fact that they state."""
    lines = [
        [label(row), length(row["tokens"]), str(row["sentences"]), _share(row["own"], row), _share(row["answer"], row)]
        for row in rows
    ]
    note = (
        "Asked for the important points, the pocket model states some; counted are sentences that give a fact's value. "
        "What a sentence rested on most is what its number on the page leads to."
    )
    header = ["", "tokens", "sentences", "rest on the fact", "the whole answer rests on it"]
    return ["## Citations", note, markdown(header, lines)]


def _share(count: int, row: Row) -> str:
    return f"{100 * count / max(1, row['sentences']):.0f} %"
