"""Builds the page from its sections, in order; see the package's docstring."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.freshness import Row, load
from benchmarks.options import VARIANTS, run
from benchmarks.pages import markup
from benchmarks.pages.accuracy import HARD, asked_once, facts, hard, in_order, kept_stores, passkeys, sources, unseen
from benchmarks.pages.answers import answers, lists, whole_books
from benchmarks.pages.printed import printed
from benchmarks.pages.real import drafts, file_weights, gguf, llama_cpp, quantised, suite, way_in, wordings
from benchmarks.pages.speed import latency, speed
from benchmarks.report import RESULTS
from benchmarks.suite.store import load as load_cells

SECTIONS = {"latency": latency, "speed": speed, "printed": printed}
NEEDLES = (facts, unseen, passkeys, hard)
NOTES = (
    "Cells read 95 [91–98] of 160: a share in %, its 95 % interval (Wilson's), and the number of questions. Italics: "
    "fewer than 40 questions. Questions about one text are not independent, which the intervals ignore.",
    "Names: a method, its entries, and how often a question is asked (`looks`). `method:setting=value` changes a "
    "setting. `reading again`: passages are read again before the answer, as the app does. `page named`: a person "
    "names the page, of 400 tokens. More in the [glossary](glossary.md).",
)


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
    needles = in_order(asked_once(rows_of(results, "needle")))
    variants = "; ".join(f"`{name}` is `{method}`" for name, method in VARIANTS.items())
    text = [
        "# Results",
        "Made by `python -m benchmarks.pages` from the files of `benchmarks/results/`. `make bench` measures the "
        "pocket model, `python -m benchmarks.real_suite` real models.",
        *NOTES,
        f"Also {variants}.",
        f"Answers of the pocket model count as right {markup.right_answers(needles)}.",
        *legend(results),
    ]
    if asked := rows_of(results, "answers"):
        text += answers(asked)
    if asked := rows_of(results, "whole-books"):
        text += whole_books(asked)
    if asked := rows_of(results, "lists"):
        text += lists(asked)
    if cells := load_cells(RESULTS / "real-suite.jsonl"):
        text += suite(cells.values())
    if cells := load_cells(RESULTS / "wordings.jsonl"):
        text += wordings(cells.values())
    if asked := rows_of(results, "way-in"):
        text += way_in(asked)
    if files := rows_of(results, "gguf"):
        text += gguf(files)
    if files := rows_of(results, "file-weights"):
        text += file_weights(files)
    if weights := rows_of(results, "quantised-weights"):
        text += quantised(weights)
    if speeds := rows_of(results, "llama-cpp-speed"):
        text += llama_cpp(speeds)
    if asked := rows_of(results, "drafts"):
        text += drafts(asked)
    for section in NEEDLES if needles else ():
        text += section(needles)
    if kept:
        text += kept_stores(kept)
    if needles:
        text += sources([row for row in needles if row["kind"] not in HARD])
    for name, each in SECTIONS.items():
        if own := rows_of(results, name):
            text += each(own)
    (markup.DOCS / "results.md").write_text("\n\n".join(text) + "\n")
    print(f"written to {markup.DOCS / 'results.md'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run(main)
