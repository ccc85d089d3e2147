"""Order, letters and lines of PDFs as Stockpot, pymupdf4llm and markitdown read them, against known text.

    python -m benchmarks.printed --others VENV/bin/python --pdfs FOLDER --out benchmarks/results/printed.json

Ten pages are made here, so that their whole text is known. The beginnings of some lines are known for files in a
folder, in the order that a person reads them in. The other programs run in an environment of their own, with defaults.

Order is Kendall's tau over the known lines: 1 as read, -1 backwards; a line that is not found agrees with none. Errors
are the edit distance to the whole text, in % of its length, or the share of known beginnings that are not found.
Apart is the share of rows, items and lines of verse that stand on a line of their own.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import pymupdf

from benchmarks.options import run
from benchmarks.report import publish
from ingest import ingest

START = "=== text ==="  # the text of other programs follows it; they print messages before
OTHERS = {
    "pymupdf4llm": "import pymupdf4llm; text = pymupdf4llm.to_markdown(path)",
    "markitdown": "from markitdown import MarkItDown; text = MarkItDown().convert(path).text_content",
}
FERRY = (
    "The ferry crossed the estuary twice a day until the bridge was opened in the spring of the following year, and "
    "the ferryman sold his boat to a man from the next town, who used it for carrying reeds."
)
STAGE = (
    "Afterwards the landing stage was left to rot. In the great storm of that winter most of it was carried away, and "
    "the lamp was found a mile up the coast, still whole, by two children who thought that it was a buoy."
)
BRIDGE = "Nobody in the village had asked for a bridge, but it was opened with a band and with a long speech."
BOOK = "Every passenger was written down with the hour and the price, and the columns were added twice a month."
VERSE = (
    "The water takes the evening light away",
    "And leaves the rope that holds the boat at bay",
    "No lamp is lit before the end of day",
    "For no one comes who has the coin to pay",
)
ITEMS = (
    "Lantern of copper with two spare glasses in a box",
    "Anchor of the small boat with forty feet of chain",
    "Bell that hung above the door of the ferry house",
    "Chart of the estuary drawn on linen, much folded",
)
TABLE = (
    ("Post", "Duty", "Pay"),
    ("Ferryman", "steers the boat and keeps the book", "14 florins"),
    ("Deck hand, in summer only", "ropes and crates", "6 florins"),
    ("Warden", "lights the lamp at the landing stage", "9 florins"),
)
Piece = tuple[float, float, str, float]  # x, y, text, font size


@dataclass(frozen=True)
class Made:
    """A page made here: its print in drawing order, its rules, and its text in reading order."""

    name: str
    pieces: list[Piece]
    text: list[str]
    rules: list[tuple[float, float, float, float]] = field(default_factory=list)
    apart: bool = False  # each line of the text but the first stands on a line of its own
    invisible: bool = False


def wrapped(text: str, width: float) -> list[str]:
    """Return the words of a text in lines of 11 points, no wider than `width`."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if pymupdf.get_text_length(longer, "tiro", 11) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def column(x: float, y: float, text: str, width: float = 210, step: float = 14) -> list[Piece]:
    """Return a paragraph as lines of 11 points, no wider than `width`, each `step` points below the one before."""
    return [(x, y + step * number, line, 11.0) for number, line in enumerate(wrapped(text, width))]


def made_pages() -> list[Made]:
    """Return the ten pages."""
    title: Piece = (72, 60, "The end of the ferry", 16.0)
    left, right = column(72, 100, FERRY), column(310, 100, STAGE)
    stacked = [*column(72, 120, FERRY, 400), *column(72, 220, BOOK, 400), *column(72, 300, BRIDGE, 400)]
    heads: list[Piece] = [(72, 100, "1. The boat", 13), (72, 200, "2. The books", 13), (72, 280, "3. The bridge", 13)]
    texts = ["1. The boat", FERRY, "2. The books", BOOK, "3. The bridge", BRIDGE]
    notes: list[Piece] = [(72, 700, "1 Of the year 1931.", 8), (72, 712, "2 As the book has it.", 8)]
    cells: list[Piece] = []
    heights = [90.0]
    for row in TABLE:
        wrapped = [
            column(x + 4, 0, text, wide) for x, text, wide in zip((72, 200, 400), row, (110, 95, 90), strict=True)
        ]
        cells += [(x, heights[-1] + 13 + y, text, size) for cell in wrapped for x, y, text, size in cell]
        heights.append(heights[-1] + 14 * max(map(len, wrapped)) + 6)
    rules = [(72.0, y, 500.0, y) for y in heights] + [(x, heights[0], x, heights[-1]) for x in (72.0, 200, 400, 500)]
    first = column(100, 100, FERRY[1:], 180)
    dropped = [(x if at < 3 else 72.0, y, text, size) for at, (x, y, text, size) in enumerate(first)]
    lines = [(72.0, 90 + 14.0 * at, text, 11.0) for at, text in enumerate(VERSE)]
    items = [(72.0, 90 + 14.0 * at, text, 11.0) for at, text in enumerate(ITEMS)]
    spread = [
        (x, 90 + 24.0 * at, text, size) for at, (x, _, text, size) in enumerate(column(72, 0, f"{FERRY} {STAGE}", 400))
    ]
    return [
        Made(
            "two columns, drawn row by row",
            [title, *sorted([*left, *right], key=lambda one: one[1])],
            [title[2], FERRY, STAGE],
        ),
        Made("headings drawn last", [*stacked, *heads], texts),
        Made("drop cap, drawn last", [title, *dropped, (72, 126, "T", 40)], [title[2], FERRY]),
        Made("table with rules, wrapped cells", [title, *cells], [title[2], *map(" ".join, TABLE)], rules, apart=True),
        Made("list without bullets", [title, *items], [title[2], *ITEMS], apart=True),
        Made("verse", [title, *lines], [title[2], *VERSE], apart=True),
        Made(
            "two columns with notes", [title, *left, *notes, *right], [title[2], FERRY, STAGE, notes[0][2], notes[1][2]]
        ),
        Made("OCR layer from the bottom", [title, *spread][::-1], [title[2], f"{FERRY} {STAGE}"], invisible=True),
        Made("columns drawn backwards", [title, *left, *right][::-1], [title[2], FERRY, STAGE]),
        Made(
            "footer and header drawn first",
            [(72, 800, "Printed in the harbour", 9), (72, 30, "Ferries", 9), title, *stacked],
            ["Ferries", title[2], FERRY, BOOK, BRIDGE, "Printed in the harbour"],
        ),
    ]


def draw(made: Made, path: Path) -> None:
    """Write a made page as a PDF."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        for x0, y0, x1, y1 in made.rules:
            page.draw_line((x0, y0), (x1, y1))
        for x, y, text, size in made.pieces:
            page.insert_text((x, y), text, fontsize=size, fontname="tiro", render_mode=3 if made.invisible else 0)
        document.save(str(path))


def letters(text: str) -> str:
    """Return letters and digits alone."""
    return re.sub(r"[\W_]+", "", text).casefold()


def plain(text: str) -> str:
    """Return text with single blanks, without Markdown's signs and the bars of cells."""
    text = re.sub(r"<br>|[|*`#_]|:?-{3,}:?|==>.*<==", " ", text)
    return " ".join(text.split())


def tau(known: Sequence[str], read: str) -> float:
    """Return Kendall's tau of known lines in a text; a line that is not in it agrees with none."""
    said = letters(plain(read))
    places = [said.find(letters(line)[:40]) for line in known]
    pairs = list(combinations(places, 2))
    return sum(-1 < first < second for first, second in pairs) / len(pairs) * 2 - 1 if pairs else 1.0


def distance(first: str, second: str) -> int:
    """Return the number of letters to insert, delete or replace between two texts."""
    row = list(range(len(second) + 1))
    for number, one in enumerate(first, 1):
        new = [number]
        for at, other in enumerate(second, 1):
            new.append(min(row[at] + 1, new[-1] + 1, row[at - 1] + (one != other)))
        row = new
    return row[-1]


def apart(known: Sequence[str], read: str) -> float:
    """Return the share of known lines that are lines of a text, whatever signs are around them."""
    lines = {letters(line.replace("<br>", " ")) for line in read.split("\n")}
    return sum(letters(line) in lines for line in known) / len(known)


FOUND = {  # file -> the beginnings of lines and paragraphs of its first page, as they are seen
    "unstructured__multi-column-2p.pdf": (
        "Dense Passage Retrieval for Open-Domain",
        "Vladimir Karpukhin",
        "Ledell Wu, Sergey Edunov",
        "Abstract",
        "Open-domain question answering relies on",
        "1 Introduction",
        "Open-domain question answering (QA) (Voorhees",
        "The code and trained models have been",
        "For instance, the exact match score",
        "Retrieval in open-domain QA is usually",
        "However, it is generally believed",
    ),
    "sample-files__multicolumn.pdf": (
        "Two-Column Document with Lorem Ipsum",
        "Your Name",
        "January 3, 2024",
        "Abstract",
        "This is a sample document",
        "Nam dui ligula, fringilla a",
        "Nulla malesuada porttitor diam. Donec",
        "Quisque ullamcorper placerat ipsum",
        "Fusce mauris. Vestibulum luctus",
    ),
    "docling__code_and_formula.pdf": (
        "JavaScript Code Example",
        "Lorem ipsum dolor sit amet, consetetur",
        "Duis autem vel eum iriure",
        "Listing 1: Simple JavaScript Program",
        "function add(a, b)",
        "return a + b",
        "console.log(add(3, 5))",
    ),
    "docling__normal_4pages.pdf": (
        "코로나-19 관련 보험약관상",
        "재해보험금 지급문제 및 개선과제",
        "2020.1.1. 「감염병예방법」 관련",
        "들어가며",
        "2020.3.30. 0시 기준 현재",
        "이와 관련하여 세계보건기구",
        "한편 코로나-19가 전 세계적",
        "손해보험의 표준약관 규정에",
        "생명보험은 표준약관",
        "이슈가 될 것으로 판단된다",
        "통상 질병보험금에 비해",
        "보험실무상 어떤 보험사는",
        "따라서 코로나-19와 관련하여 보험회사",
    ),
    "sample-files__google-doc-document.pdf": (
        "Example document",
        "Beautiful is better than ugly",
        "Special cases aren't special enough",
        "There should be one-- and preferably",
        "Although never is often better",
        "Namespaces are one honking",
        "Continent",
        "Capital",
        "Currency",
        "Population",
        "2021 estimate",
    ),
}


def read(program: str, python: str, path: Path) -> str:
    """Return what a program makes of a PDF; the others run in another Python."""
    if program == "stockpot":
        return ingest(path, ocr=False).text
    script = f"import sys; path = sys.argv[1]; {OTHERS[program]}; print({START!r}, text, sep='')"
    command = [python, "-c", script, str(path)]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout.split(START)[-1]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    options = argparse.ArgumentParser(description="Order, letters and lines of PDFs, beside two other programs.")
    options.add_argument("--others", default="", help="Python that has pymupdf4llm and markitdown (default: none)")
    options.add_argument("--pdfs", type=Path, help="folder of the PDFs of others (default: none)")
    options.add_argument("--out", type=Path, help="file for the results")
    options.add_argument("--json", action="store_true", help="print JSON")
    chosen = options.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for program in ["stockpot", *(OTHERS if chosen.others else ())]:
            for made in made_pages():
                draw(made, path := Path(folder) / "made.pdf")
                text = read(program, chosen.others, path)
                whole = " ".join(made.text)
                scores = {"order": tau(made.text, text), "errors": 100 * distance(whole, plain(text)) / len(whole)}
                own_lines = apart(made.text[1:], text) if made.apart else None
                rows.append({"program": program, "file": made.name, "made": True, **scores, "apart": own_lines})
            for name, known in FOUND.items() if chosen.pdfs else ():
                text = read(program, chosen.others, chosen.pdfs / name)
                lost = sum(letters(line) not in letters(plain(text)) for line in known)
                scores = {"order": tau(known, text), "errors": 100 * lost / len(known)}
                rows.append({"program": program, "file": name, "made": False, **scores, "apart": None})
    publish("printed", rows, chosen.out, chosen.json, model="none")
    return 0


if __name__ == "__main__":
    run(main)
