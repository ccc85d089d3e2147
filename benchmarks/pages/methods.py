"""Sections about the entries that methods keep and select, one for each benchmark."""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot

from benchmarks.freshness import Row
from benchmarks.pages.markup import label, length, markdown, marked, percent, right_answers, save
from benchmarks.rounds import LAGS, OUTCOMES


def random_heads(rows: list[Row]) -> list[str]:
    """Return accuracy of Locret with trained and with random heads."""
    lines = [
        [marked(row["heads"], [row]), str(row["budget"]), length(row["tokens"]), percent([row])]
        for row in sorted(rows, key=lambda row: row["heads"], reverse=True)
    ]
    note = f"Facts as above, {rows[0]['asked']} questions a cell, {right_answers(rows)} in %: Locret's Table 6."
    return ["## Retaining heads", note, markdown(["heads", "budget", "tokens", "right"], lines)]


def consistency(rows: list[Row]) -> list[str]:
    """Return the share of important entries that each scorer finds in a prefix: table and curves."""
    prefixes = sorted({row["prefix"] for row in rows})
    figure, axes = pyplot.subplots(figsize=(6, 3))
    lines = []
    for scorer in dict.fromkeys(row["scorer"] for row in rows):
        own = sorted((row for row in rows if row["scorer"] == scorer), key=lambda row: row["prefix"])
        name, shares = marked(scorer, own), [100 * row["consistency"] for row in own]
        lines.append([name, *(f"{share:.0f}" for share in shares)])
        axes.plot(prefixes, shares, marker="o", label=name)
    axes.set_ylim(0, 105)
    axes.set_xlabel("tokens read")
    axes.set_ylabel("top 10 % found, %")
    axes.legend(fontsize=7)
    note = (
        "Columns are prefixes of the text, by their length in tokens. Of the tenth of a prefix that scores highest "
        "once the whole text is known: the share, in %, that also scores highest when only the prefix has been "
        "read (Locret's Figure 1). `locret` is the score of the retaining head, `nuc` -log p of an entry's token and "
        "`cap` attention from a catalyst prompt (InfiniPot's two scores), `snapkv-like` attention from the last 64 "
        "tokens and `h2o-like` from all."
    )
    table = markdown(["", *(str(prefix) for prefix in prefixes)], lines)
    return ["## What a scorer knows before the end", note, table, save(figure, "consistency")]


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
        f"Eight facts in real prose, each question asked of the text alone; {right_answers(rows)} in %. A press "
        "chooses entries once it has seen the whole text, our methods choose while they read."
    )
    header = ["", "tokens", "entries allowed", "held", "right", "reading, s"]
    return ["## Beside kvpress", note, markdown(header, lines)]


def rounds(rows: list[Row]) -> list[str]:
    """Return the conversation of thousands of rounds: first, middle and last block; games and answers of all."""
    lines = []
    for name, preference in dict.fromkeys((label(row), row.get("preference", "–")) for row in rows):
        own = [row for row in rows if (label(row), row.get("preference", "–")) == (name, preference)]
        ended = [sum(row.get(outcome, 0) for row in own) for outcome in OUTCOMES]
        shares = [f"{100 * count / sum(ended):.0f}" if any(ended) else "–" for count in ended]
        right = [
            f"{sum(row[f'correct_{lag}'] for row in own)} of {sum(row[f'asked_{lag}'] for row in own)}" for lag in LAGS
        ]
        for row in (own[0], own[len(own) // 2], own[-1]):
            held = [f"{1000 * row['seconds']:.0f}", f"{row['kv_bytes'] / 1e6:.2f}"]
            last = [*shares, *right] if row is own[-1] else [""] * (len(shares) + len(right))
            lines.append([name, preference, str(row["turns"]), f"{row['tokens']:,}", *held, *last])
    note = (
        "Rock, paper, scissors against a player who prefers one move. Games that the model won, tied or lost, or "
        "in which it named no move, in % (Locret's Table 17), and right answers about what was said so many "
        "rounds before, are of all rounds; milliseconds are the median of a block."
    )
    header = ["", "prefers", "rounds", "tokens", "ms a round", "KV MB"]
    header += ["won", "tied", "lost", "no move", *(f"{lag} round{'s' * (lag > 1)}" for lag in LAGS)]
    return ["## A conversation longer than its memory", note, markdown(header, lines)]


def turns(rows: list[Row]) -> list[str]:
    """Return accuracy and seconds by turn."""
    lines = []
    for name, tokens in dict.fromkeys((label(row), row["tokens"]) for row in rows):
        own = [row for row in rows if label(row) == name and row["tokens"] == tokens]
        cells = [f"{percent([row])} / {row['seconds']:.2f}" for row in sorted(own, key=lambda row: row["turn"])]
        lines.append([name, length(tokens), *cells])
    note = f"{right_answers(rows).capitalize()} in % / seconds a turn; the first turn includes reading the text."
    header = ["", "tokens", "turn 1", "turn 2", "turn 3"]
    return ["## One question a turn", note, markdown(header, lines)]


def mass(rows: list[Row]) -> list[str]:
    """Return the share of full attention's probability that each method covers, by layer and length: table and plot."""
    lengths, layers = sorted({row["tokens"] for row in rows}), sorted({row["layer"] for row in rows})
    names = list(dict.fromkeys(marked(row["method"], [row]) for row in rows))
    share = {(marked(row["method"], [row]), row["tokens"], row["layer"]): 100 * row["covered"] for row in rows}
    lines = [
        [name, *("/".join(f"{share[name, tokens, layer]:.0f}" for layer in layers) for tokens in lengths)]
        for name in names
    ]
    figure, axes = pyplot.subplots(1, len(lengths), figsize=(3.5 * len(lengths), 3), sharey=True, squeeze=False)
    for axis, tokens in zip(axes[0], lengths, strict=True):
        for name in names:
            axis.plot(layers, [share[name, tokens, layer] for layer in layers], marker="o", label=name)
        axis.set_title(f"{length(tokens)} tokens")
        axis.set_xlabel("layer")
        axis.set_xticks(layers)
        axis.set_ylim(0, 100)
    axes[0][0].set_ylabel("probability covered, %")
    axes[0][-1].legend(fontsize=7)
    note = (
        f"With {rows[0]['budget']} entries: how much of the probability that full attention gives to the text falls "
        "on what a query sees, in %, layer by layer from the first. `random` sees random chunks where infinitehip "
        "sees chosen ones."
    )
    table = markdown(["", *map(length, lengths)], lines)
    return ["## Attention mass covered", note, table, save(figure, "mass")]


def ablation(rows: list[Row]) -> list[str]:
    """Return Table 5: pruning rules down, attention rules across."""
    columns = list(dict.fromkeys(row["attention"] for row in rows))
    lines = [
        [
            marked(rule, rows),
            *(percent([r for r in rows if (r["pruning"], r["attention"]) == (rule, column)]) for column in columns),
        ]
        for rule in dict.fromkeys(row["pruning"] for row in rows)
    ]
    note = (
        f"{right_answers(rows).capitalize()} in % about facts in {length(rows[0]['tokens'])} tokens, "
        f"{rows[0]['asked']} questions a cell. Rows are rules while pruning, columns rules of the attention. Only the "
        "row `true` uses true distances."
    )
    return ["## Position rules of infinitehip", note, markdown(["", *columns], lines)]


def cache_table(result: dict[str, Any]) -> list[str]:
    """Return the miss rate by policy and size."""
    rows = result["rows"]
    sizes = sorted({row["units"] for row in rows})
    rates = {(row["policy"], row["units"]): f"{100 * row['miss_rate']:.1f}" for row in rows}
    lines = [
        [marked(policy, rows), *(rates[policy, units] for units in sizes)]
        for policy in dict.fromkeys(r["policy"] for r in rows)
    ]
    note = (
        f"Misses in %, by the number of units that the cache holds, while InfLLM reads {rows[0]['tokens']:,} tokens "
        f"and each block of queries looks up {result['looked_up']} units of {result['block']} tokens."
    )
    return ["## The device's cache", note, markdown(["policy", *map(str, sizes)], lines)]
