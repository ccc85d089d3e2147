"""Turns `results/*.json` into docs/results.md: tables, heat maps and curves. `python -m benchmarks.pages`."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import matplotlib

from benchmarks.freshness import Row, load
from benchmarks.needle import CELL
from benchmarks.options import run
from benchmarks.report import RESULTS
from benchmarks.rounds import LAGS, OUTCOMES

matplotlib.use("svg")
from matplotlib import pyplot

matplotlib.rcParams["svg.hashsalt"] = "stockpot"  # the same figure is the same file

DOCS = RESULTS.parent.parent / "docs"


def length(tokens: int) -> str:
    """2048 as 2K, 1048576 as 1M, 1920 as 1,920."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if tokens >= unit and tokens % unit == 0:
            return f"{tokens // unit}{letter}"
    return f"{tokens:,}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def marked(name: str, rows: list[Row]) -> str:
    """The name of what is shown, and a dagger if any of its rows is of earlier weights or settings."""
    return name + " †" if any(row.get("earlier") for row in rows) else name


def label(row: Row) -> str:
    """Method and budget, and what was read again, marked."""
    name = row["method"] if row["budget"] is None else f"{row['method']} {row['budget']}"
    again = ", reading again" if row.get("read_again") else ", page named" if row.get("page") else ""
    return marked(name + again, [row])


def percent(cells: list[Row]) -> str:
    """Accuracy of several rows together."""
    asked = sum(cell["asked"] for cell in cells)
    return f"{100 * sum(cell['correct'] for cell in cells) / asked:.0f}" if asked else ""


def accuracy(title: str, rows: list[Row]) -> list[str]:
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
    number = f"{asked[0]} to {asked[-1]}" if asked[0] < asked[-1] else f"{asked[0]}"
    note = f"Exact answers in %{depth_note}; {number} questions a cell."
    return [f"### {title}", note, markdown(["", *map(length, lengths)], lines)]


def kept_stores(rows: list[Row]) -> list[str]:
    """What kept entries in codes still know, and the bytes that they take."""
    lines, plain = [], 0
    for row in rows:
        method, _, store = row["method"].partition(":store=")
        held = row["kv_bytes"]["device"]
        plain = held if store == "model" else plain
        share = f"{100 * held / plain:.0f} %" if plain else ""
        lines.append([marked(method, [row]), store, length(row["tokens"]), percent([row]), f"{held / 1e6:.2f}", share])
    note = (
        f"Facts as above, budget {rows[0]['budget']}, {rows[0]['asked']} questions a cell, exact answers in %. KV "
        "is all that is allocated for the finished reading. `model` is the type that the model computes in: on a "
        "CPU, float32."
    )
    header = ["", "store", "tokens", "right", "KV MB", "of `model`"]
    return ["### Kept entries in codes", note, markdown(header, lines)]


TITLES = {
    "passkey": "One pass key in repeated filler",
    "prose": "One pass key in real prose",
    "facts": "Eight facts in real prose, asked one after another in one conversation",
    "relations": "Eight facts about relations that training did not contain",
    "wordings": "Eight facts stated and asked in wordings that training did not contain",
    "two": "Two pass keys in real prose, to be given in order",
    "pairs": "Keys and values and nothing else, the keys nearly alike",
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
    return _save(figure, "latency")


def _save(figure: Any, name: str) -> str:
    path = DOCS / "figures" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"![{name}](figures/{name}.svg)"


def sources(rows: list[Row]) -> list[str]:
    """Of right answers, the share whose first source holds the fact."""
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
    """Of sentences that say a fact, the share that rest on the passage which states it."""
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


def consistency(rows: list[Row]) -> list[str]:
    """Of what matters in the whole text, the share that each scorer finds in a prefix: table and curves."""
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
    return ["## What a scorer knows before the end", note, table, _save(figure, "consistency")]


def neighbours(rows: list[Row]) -> list[str]:
    """Ours and kvpress's at the same number of entries."""
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
        "Eight facts in real prose, each question asked of the text alone; exact answers in %. A press chooses "
        "entries once it has seen the whole text, our methods choose while they read."
    )
    header = ["", "tokens", "entries allowed", "held", "right", "reading, s"]
    return ["## Beside kvpress", note, markdown(header, lines)]


def rounds(rows: list[Row]) -> list[str]:
    """A conversation of thousands of rounds: its first block, one in the middle, its last; games and answers of all."""
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
    """One question a turn: accuracy and seconds by turn."""
    lines = []
    for name, tokens in dict.fromkeys((label(row), row["tokens"]) for row in rows):
        own = [row for row in rows if label(row) == name and row["tokens"] == tokens]
        cells = [f"{percent([row])} / {row['seconds']:.2f}" for row in sorted(own, key=lambda row: row["turn"])]
        lines.append([name, length(tokens), *cells])
    note = "Exact answers in % / seconds a turn; the first turn includes reading the text."
    header = ["", "tokens", "turn 1", "turn 2", "turn 3"]
    return ["## One question a turn", note, markdown(header, lines)]


def random_heads(rows: list[Row]) -> list[str]:
    """Locret with trained heads and with random ones."""
    lines = [
        [marked(row["heads"], [row]), str(row["budget"]), length(row["tokens"]), percent([row])]
        for row in sorted(rows, key=lambda row: row["heads"], reverse=True)
    ]
    note = f"Facts as above, {rows[0]['asked']} questions a cell, exact answers in %: Locret's Table 6."
    return ["## Retaining heads", note, markdown(["heads", "budget", "tokens", "right"], lines)]


GROWTH = {"growth": "Time per token against length", "growth-beacon": "Time per token up to 128K tokens"}


def rows_of(results: dict[str, dict[str, Any]], benchmark: str) -> list[Row]:
    """The rows of all runs of a benchmark."""
    return [row for result in results.values() if result["benchmark"] == benchmark for row in result["rows"]]


def latency(rows: list[Row]) -> list[str]:
    """Speed, memory and what was planned, by method and length: a table and curves."""
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


def speed(rows: list[Row]) -> list[str]:
    """Our times as multiples of others', taken in turns."""
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


def mass(rows: list[Row]) -> list[str]:
    """Share of full attention's probability that each method covers, by layer and length: a table and a plot."""
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
    return ["## Attention mass covered", note, table, _save(figure, "mass")]


def ablation(rows: list[Row]) -> list[str]:
    """Table 5: rules while pruning down, rules of the attention across."""
    columns = list(dict.fromkeys(row["attention"] for row in rows))
    lines = [
        [
            marked(rule, rows),
            *(percent([r for r in rows if (r["pruning"], r["attention"]) == (rule, column)]) for column in columns),
        ]
        for rule in dict.fromkeys(row["pruning"] for row in rows)
    ]
    note = (
        f"Exact answers in % about facts in {length(rows[0]['tokens'])} tokens, {rows[0]['asked']} questions a "
        "cell. Rows are rules while pruning, columns rules of the attention. Only the row `true` uses true distances."
    )
    return ["## Position rules of infinitehip", note, markdown(["", *columns], lines)]


def growth(title: str, figure_name: str, rows: list[Row], crossover: dict[str, dict[str, float | None]]) -> list[str]:
    """Milliseconds per token against length beside full attention, and where the curves cross."""
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
    return [*parts, _save(figure, figure_name)]


def cache_table(result: dict[str, Any]) -> list[str]:
    """Miss rate by policy and size."""
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


SECTIONS = {
    "citations": citations,
    "random-heads": random_heads,
    "consistency": consistency,
    "neighbours": neighbours,
    "rounds": rounds,
    "turns": turns,
    "latency": latency,
    "mass": mass,
    "ablation": ablation,
}


def asked_once(rows: list[Row]) -> list[Row]:
    """Without rows of `needle` whose questions another asked too: with equal seeds, that which asked most has all."""
    most: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        cell = (*(row.get(what) or False for what in CELL), row["earlier"])
        if cell not in most or most[cell]["asked"] < row["asked"]:
            most[cell] = row
    return list(most.values())


def is_varied(row: Row) -> bool:
    """Whether a row of `needle` belongs into the table of facts read with one setting changed."""
    return ":" in row["method"] and row["kind"] == "facts"


def legend(results: dict[str, dict[str, Any]]) -> list[str]:
    """What the dagger means, where there is one."""
    if not any(row["earlier"] for result in results.values() for row in result["rows"]):
        return []
    return [
        "†: taken with earlier weights of the pocket model, with earlier retaining heads or beacons, with facts in "
        "other wordings, or with other settings than the method has now."
    ]


NAMES = (
    "`method:setting=value` is a method with that setting. Of InfiniPot's two scores `infinipot-cap` has CaP alone "
    "(`infinipot:novelty_share=0`) and `infinipot-nuc` NuC alone (`infinipot:novelty_share=1`); `exact-int8` is "
    "`exact:store=int8`, and `exact-int4` is `exact:store=int4`. Where it says `reading again`, passages that a "
    "question looks at were read again before it was answered; where it says `page named`, the page of 400 tokens on "
    "which the answer stands."
)
"""What the names of methods mean that are not those of a method alone: see `VARIANTS` in options.py."""


def main() -> int:
    """Write the page."""
    results = load(RESULTS)
    kept = results.pop("facts-kept-stores", {"rows": []})["rows"]
    needles = asked_once(rows_of(results, "needle"))
    order = list(dict.fromkeys(row["method"] for row in needles))
    needles.sort(key=lambda row: (order.index(row["method"]), row["budget"] or 0))
    varied = [row for row in needles if is_varied(row)]
    rows = [row for row in needles if not is_varied(row)]
    devices = sorted({str(result["machine"]["device"]) for result in results.values()})
    text = [
        "# Results",
        f"Made by `python -m benchmarks.pages` from `benchmarks/results/`. Devices: {', '.join(devices)}.",
        NAMES,
        *legend(results),
        "## Accuracy",
    ]
    for kind in TITLES:
        own = [row for row in rows if row["kind"] == kind]
        if own:
            text += [*accuracy(TITLES[kind], own), heat_map(kind, own)]
    if varied:
        text += accuracy("Facts again, with one setting changed at a time", varied)
    if kept:
        text += kept_stores(kept)
    if rows:
        text += sources(rows)
    for name, section in SECTIONS.items():
        if own := rows_of(results, name):
            text += section(own)
    for name, title in GROWTH.items():
        if name in results:
            text += growth(title, name, results[name]["rows"], results[name]["crossover"])
    if own := rows_of(results, "speed"):
        text += speed(own)
    if "cache" in results:
        text += cache_table(results["cache"])
    (DOCS / "results.md").write_text("\n\n".join(text) + "\n")
    print(f"written to {DOCS / 'results.md'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run(main)
