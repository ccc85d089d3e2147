"""Sections about answers and sources."""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot

from app.formatting import wilson
from benchmarks.freshness import Row
from benchmarks.needle import CELL
from benchmarks.pages.markup import accuracy, conditions, label, length, markdown, marked, percent, save, share

ORDER = ("full", "exact", "infllm", "infinitehip", "recall", "locret", "infinipot", "beacon", "streaming", "truncate")
HARD = ("two", "pairs")  # two pass keys in order; keys and values that are nearly alike
DRAWN = ("exact", "infllm", "infinitehip", "recall", "locret", "infinipot", "streaming")
SHORT, USUAL, LEAST = 1024, 1024, 512  # tokens of a short text; entries in most tables; entries of the smallest


def asked_once(rows: list[Row]) -> list[Row]:
    """Return one row of `needle` for each cell: the one with most questions, which include those of the others."""
    most: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        cell = (*(row.get(key) or False for key in CELL), row["earlier"])
        if cell not in most or most[cell]["asked"] < row["asked"]:
            most[cell] = row
    return list(most.values())


def in_order(rows: list[Row]) -> list[Row]:
    """Return rows by method, then variant, then budget."""

    def place(row: Row) -> tuple[int, str, int]:
        kind = row["method"].partition(":")[0].partition("-")[0]
        return ORDER.index(kind), row["method"], row["budget"] or 0

    return sorted(rows, key=place)


def is_plain(row: Row) -> bool:
    """Return whether a row has the settings of its method or of one of its presets, and was asked as usual."""
    settings = row["method"].partition(":")[2]
    usual = not settings or settings.startswith("preset=") or row["method"].startswith("infinipot-")
    return bool(usual and not row.get("page") and not row.get("parts"))


def facts(rows: list[Row]) -> list[str]:
    """Return the tables of facts in prose, and the figure."""
    own = [row for row in rows if row["kind"] == "facts"]
    plain = [row for row in own if is_plain(row)]
    main = [row for row in plain if _is_main(row) and row["tokens"] > SHORT and row["method"] not in ("full", "beacon")]
    short = [row for row in own if row["tokens"] <= 2 * SHORT and row["method"].partition(":")[0] in ("full", "beacon")]
    short = [row for row in short if not row.get("page")]
    budgets = [row for row in plain if row["budget"] not in (None, USUAL) and not row.get("read_again")]
    budgets = [row for row in budgets if row not in main and row["tokens"] > SHORT]
    named = [row for row in own if row.get("page")]
    parts = [row for row in own if row.get("parts")]
    changed = [row for row in own if not is_plain(row) and row not in named + parts + short]
    text = [
        "## Facts in prose",
        "Eight facts are asked one after another in one conversation about a long prose text.",
        conditions(own),
        accuracy(main),
        figure(main),
        "### In short texts",
        accuracy(short),
        "### With other budgets",
        "The pocket model was trained to attend to 2,048 entries; 4,096 are more than it can use.",
        accuracy(budgets),
    ]
    for heading, section in (
        ("### With the page named", named),
        ("### Read in four parts, each added to the one before", parts),
        ("### With one setting changed", changed),
    ):
        if section:
            text += [heading, accuracy(section, lambda row: label(row | {"page": None, "parts": None}))]
    return text


def _is_main(row: Row) -> bool:
    return bool(row["budget"] == USUAL or (row["method"], row["budget"]) == ("exact", LEAST))


def figure(rows: list[Row]) -> str:
    """Draw the accuracy of methods by length, with 95 % intervals."""
    chart, axes = pyplot.subplots(figsize=(8, 3.5))
    for name in DRAWN:
        own = [row for row in rows if row["method"] == name and row["budget"] == USUAL and not row.get("read_again")]
        own.sort(key=lambda row: row["tokens"])
        means = [row["correct"] / row["asked"] for row in own]
        ends = [wilson(mean, row["asked"]) for mean, row in zip(means, own, strict=True)]
        spread = [
            [100 * max(0.0, mean - low) for mean, (low, _) in zip(means, ends, strict=True)],
            [100 * max(0.0, high - mean) for mean, (_, high) in zip(means, ends, strict=True)],
        ]
        at = [row["tokens"] * (1 + 0.04 * DRAWN.index(name)) for row in own]  # side by side, not on each other
        axes.errorbar(at, [100 * mean for mean in means], yerr=spread, marker="o", capsize=2, label=name)
    axes.set_xscale("log", base=2)
    lengths = sorted({row["tokens"] for row in rows})
    axes.set_xticks(lengths, [length(tokens) for tokens in lengths])
    axes.set_xlabel("tokens read")
    axes.set_ylabel(f"right, %, {USUAL:,} entries")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    return save(chart, "facts")


def unseen(rows: list[Row]) -> list[str]:
    """Return accuracy about relations and wordings that training did not contain."""
    own = [row for row in rows if row["kind"] in ("relations", "wordings")]
    table = accuracy(own, lambda row: f"{row['kind']}, {label(row)}")
    return ["## Facts that training did not contain", conditions(own), table]


def passkeys(rows: list[Row]) -> list[str]:
    """Return the tables of one pass key: in repeated filler, and in prose."""
    text = ["## One pass key"]
    for kind, title in (("passkey", "In repeated filler"), ("prose", "In prose")):
        own = [row for row in rows if row["kind"] == kind]
        depths = ", ".join(str(depth) for depth in sorted({row["depth"] for row in own}))
        text += [f"### {title}", f"{conditions(own)} Depths {depths} of the text together.", accuracy(own)]
    return text


def hard(rows: list[Row]) -> list[str]:
    """Return accuracy on two pass keys in order, and on keys that are nearly alike; all lengths together."""
    own = [row for row in rows if row["kind"] in HARD]
    lines = [
        [name, *(percent(r for r in own if label(r) == name and r["kind"] == kind) for kind in HARD)]
        for name in dict.fromkeys(map(label, own))
    ]
    lengths = ", ".join(length(tokens) for tokens in sorted({row["tokens"] for row in own}))
    note = f"{conditions(own)} Texts of {lengths} tokens together. The keys of the pairs differ in four digits."
    return ["## Two pass keys, and pairs nearly alike", note, markdown(["", "two in order", "pairs"], lines)]


def kept_stores(rows: list[Row]) -> list[str]:
    """Return accuracy and bytes of quantised kept entries."""
    lines, plain = [], 0
    for row in rows:
        method, _, store = row["method"].partition(":store=")
        held = row["kv_bytes"]["device"]
        plain = held if store == "model" else plain
        part = f"{100 * held / plain:.0f} %" if plain else ""
        lines.append([marked(method, [row]), store, length(row["tokens"]), percent([row]), f"{held / 1e6:.2f}", part])
    note = (
        f"{conditions(rows)} Facts, budget {rows[0]['budget']}. MB: all that a finished reading allocates. `model` is "
        "the type that the model computes in, float32 on this machine."
    )
    header = ["", "store", "tokens", "right", "MB", "of `model`"]
    return ["## Kept entries in 8 and 4 bits", note, markdown(header, lines)]


def sources(rows: list[Row]) -> list[str]:
    """Return the share of right answers whose first source holds the fact."""
    groups: dict[str, list[Row]] = {"all but pass keys with `beacon`": [], "pass keys with `beacon`": []}
    for row in rows:
        beacon = row["method"].startswith("beacon") and row["kind"] in ("passkey", "prose")
        groups[list(groups)[beacon]].append(row)
    lines = []
    for name, own in groups.items():
        sourced, right = (sum(row[key] for row in own) for key in ("sourced", "correct"))
        if right:
            lines.append([name, f"{right:,}", f"{sourced:,}", share(sourced, right)])
    note = f"{conditions(rows)} Right answers to the facts and single pass keys above."
    header = ["", "right answers", "first source holds the fact", "share"]
    return ["## Sources", note, markdown(header, lines)]
