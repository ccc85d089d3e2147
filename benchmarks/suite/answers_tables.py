"""Tables of `answers`: how often each finder found the place, which way of answering was right, and what was marked.

    python -m benchmarks.suite.answers_tables answers.jsonl --out benchmarks/results/answers-qwen.json

Prints the rows, and writes them as the result of a benchmark, for `benchmarks.pages`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from app.asking.support import SURE
from benchmarks import options as shared
from benchmarks.report import publish, write
from benchmarks.suite.answers import MEMORY, SEARCHED, WAYS, holds
from benchmarks.suite.store import Cell, load
from engine.loops.answering import TRUSTED

AT = (1, 3, 6, 12)
FINDERS = ("plain", "words", "looked", "passages")
PASSAGES, PLAIN = WAYS[0], WAYS[1]
WORDS = "words 3 of 600"  # as the app answers with small models, whose memory begins no answer
SEVERAL = "planted, several places"  # the beginning of a name: those whose answer needs more than one
OURS = "ours"  # as the app answers


def rows_of(lines: Iterable[Cell]) -> list[dict[str, Any]]:
    """Return rows of numbers: `found` by finder and size of passages, `answered` and `marked` by way."""
    rows: list[dict[str, Any]] = []
    for asked, group in groupby(sorted(lines, key=_asked), _asked):
        own = list(group)
        first = {line["signature"]: line for line in own if line["way"] == MEMORY}
        told = [line for line in first.values() if line["places"]]
        rows += _found(asked, told)
        several = [line for line in told if all(len(place) > 1 for place in line["places"])]
        rows += _found(f"{SEVERAL}, {_length(several[0])}", several) if several else []
        as_asked = [{**line, "way": OURS} for line in own if line["way"] in (WORDS, SEARCHED)]
        own += as_asked or [_ours(first[str(line["of"])], line) for line in own if line["way"] == PASSAGES]
        others = {"memory": first} | {
            name: {str(line["of"]): line for line in own if line["way"] == way}
            for name, way in (("plain", PLAIN), ("place", "place"))
        }
        for way in (MEMORY, OURS, *WAYS):
            given = {str(line.get("of", line["signature"])): line for line in own if line["way"] == way}
            if any(line["right"] is not None for line in given.values()):
                rows.append({"row": "answered", "asked": asked, "way": way, **_answered(given, others)})
                rows.append({"row": "marked", "asked": asked, "way": way, **_marked(list(given.values()))})
    return rows


def _ours(memory: Cell, passages: Cell) -> Cell:
    """Return the line of the answer that the app gives: the memory's where the text says the same, else the other."""
    if memory["about_places"] and memory["sure"] < TRUSTED:
        return {**passages, "way": OURS}
    return {
        **passages,
        **{name: memory[name] for name in ("answer", "right", "sure", "unsupported", "tokens")},
        "way": OURS,
    }


def _asked(line: Cell) -> str:
    return f"planted, {_length(line)}" if line["text_kind"] == "planted" else "reader's questions"


def _length(line: Cell) -> str:
    return f"{round(line['text_tokens'] / 1024)}K"


def _found(asked: str, lines: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    for size in lines[0]["found"] if lines else ():
        for finder in FINDERS:
            found = {
                f"found@{most}": sum(
                    any(holds(line["found"][size][finder][:most], place) for place in line["places"]) for line in lines
                )
                for most in AT
            }
            yield {"row": "found", "asked": asked, "letters": int(size), "finder": finder, "n": len(lines), **found}


def _answered(given: dict[str, Cell], others: dict[str, dict[str, Cell]]) -> dict[str, Any]:
    told = {mark: line for mark, line in given.items() if line["right"] is not None}
    facts: dict[str, Any] = {
        "n": len(told),
        "right": round(fmean(line["right"] for line in told.values()), 4),
        "tokens": round(fmean(line["tokens"] for line in told.values())),
        "with_place": sum(line["holds"] for line in told.values()),
        "right_with_place": round(sum(line["right"] for line in told.values() if line["holds"]), 2),
    }
    for name, other in others.items():
        pairs = [(line["right"], other[mark]["right"]) for mark, line in told.items() if mark in other]
        facts[f"beside_{name}"] = [sum(a > b for a, b in pairs), sum(a < b for a, b in pairs), len(pairs)]
        own, theirs = (round(sum(pair[at] for pair in pairs), 2) for at in (0, 1))
        facts[f"right_beside_{name}"] = [own, theirs, len(pairs)]
    return facts


def _marked(lines: Sequence[Cell]) -> dict[str, Any]:
    """Return how many answers get a warning: of right ones, wrong ones, and those that the text does not tell."""
    kinds = {"right": 1.0, "wrong": 0.0, "absent": None}
    facts = {}
    for name, right in kinds.items():
        own = [line for line in lines if line["right"] == right and bool(line["accepted"]) == (name != "absent")]
        facts[name] = [sum(line["sure"] < SURE or line["unsupported"] > 0 for line in own), len(own)]
    return facts


def main() -> int:
    """Print the rows of a file, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lines", type=Path, help="the file that `answers` wrote")
    parser.add_argument("--out", type=shared.file, help="write the rows there, as JSON")
    chosen = parser.parse_args()
    lines = list(load(chosen.lines).values())
    rows = rows_of(lines)
    for kind in ("found", "answered", "marked"):
        publish("answers", [row for row in rows if row["row"] == kind], None, False)
    if chosen.out:
        write("answers", rows, chosen.out, model=", ".join(sorted({line["model"] for line in lines})))
    return 0


if __name__ == "__main__":
    shared.run(main)
