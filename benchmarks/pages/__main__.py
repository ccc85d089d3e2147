"""Builds the page from its sections, in order; see the package's docstring."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.freshness import Row, load
from benchmarks.options import run
from benchmarks.pages import markup
from benchmarks.pages.accuracy import TITLES, accuracy, asked_once, citations, heat_map, is_varied, kept_stores, sources
from benchmarks.pages.methods import ablation, cache_table, consistency, mass, neighbours, random_heads, rounds, turns
from benchmarks.pages.speed import GROWTH, growth, latency, speed
from benchmarks.report import RESULTS

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


NAMES = (
    "`method:setting=value` is a method with that setting. Of InfiniPot's two scores `infinipot-cap` has CaP alone "
    "(`infinipot:novelty_share=0`) and `infinipot-nuc` NuC alone (`infinipot:novelty_share=1`); `exact-int8` is "
    "`exact:store=int8`, and `exact-int4` is `exact:store=int4`. Where it says `reading again`, passages that a "
    "question looks at were read again before it was answered; where it says `page named`, the page of 400 tokens on "
    "which the answer stands. What was read in parts was read to its end, and then more of it added, as documents are."
)
"""What the names of methods mean that are not those of a method alone: see `VARIANTS` in options.py."""


def rows_of(results: dict[str, dict[str, Any]], benchmark: str) -> list[Row]:
    """Return the rows of all runs of a benchmark."""
    return [row for result in results.values() if result["benchmark"] == benchmark for row in result["rows"]]


def legend(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the explanation of the dagger, if a row has one."""
    if not any(row["earlier"] for result in results.values() for row in result["rows"]):
        return []
    return [
        "†: taken with earlier weights of the pocket model, with earlier retaining heads or beacons, with facts in "
        "other wordings, or with other settings than the method has now."
    ]


def main() -> int:
    """Write the page docs/results.md."""
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
    (markup.DOCS / "results.md").write_text("\n\n".join(text) + "\n")
    print(f"written to {markup.DOCS / 'results.md'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run(main)
