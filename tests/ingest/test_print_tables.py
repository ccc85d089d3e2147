"""Tables of printed pages: one line for each row, by rules, by alignment, and by marks in the file."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from benchmarks.printed import FERRY, Piece, wrapped
from ingest import ingest
from ingest.print.structure import flatten
from tests.ingest.print_pages import column, text_of

ROWS = (
    ("Post", "Duty", "Pay"),
    ("Ferryman", "steers the boat and keeps the book", "14 florins"),
    ("Deck hand, in summer only", "ropes and crates", "6 florins"),
    ("Warden", "lights the lamp at the landing stage", "9 florins"),
)
READ = "Duties\n\n" + "\n".join(" | ".join(row) for row in ROWS) + "\n\nSo it was."
LEFT, WIDTH = (72, 200, 400, 500), (110, 95, 90)


def placed() -> tuple[list[float], list[list[list[Piece]]]]:
    """Return the heights of the rules, and the lines of each cell."""
    heights, cells = [90.0], []
    for row in ROWS:
        lines = [wrapped(text, width) for text, width in zip(row, WIDTH, strict=True)]
        y = heights[-1]
        cells.append(
            [
                [(x + 4, y + 13 * (at + 1) - 1, text, 11.0) for at, text in enumerate(cell)]
                for x, cell in zip(LEFT, lines, strict=False)
            ]
        )
        heights.append(y + 13 * max(map(len, lines)) + 6)
    return heights, cells


@pytest.mark.parametrize("order", ["rows", "columns", "backwards"])
@pytest.mark.parametrize("rules", ["grid", "boxes", "bars", "across", "inner", "dashes", "none"])
def test_cells_of_several_lines_stay_whole(tmp_path: Path, rules: str, order: str) -> None:
    heights, cells = placed()
    drawn = [cell for row in cells for cell in row]
    if order == "columns":
        drawn = [row[number] for number in range(3) for row in cells]
    elif order == "backwards":
        drawn.reverse()
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 60), "Duties", fontsize=14, fontname="tiro")
        ends = [(LEFT[0], y, LEFT[-1], y) for y in heights]
        if rules != "across":
            ends += [(x, heights[0], x, heights[-1]) for x in LEFT]
        if rules == "inner":
            ends = [end for end in ends if end[1] in heights[1:-1] or end[0] in LEFT[1:-1]]
        if rules == "boxes":
            for top, bottom in pairwise(heights):
                for left, right in pairwise(LEFT):
                    page.draw_rect(pymupdf.Rect(left, top, right, bottom))
        elif rules == "bars":
            for x0, y0, x1, y1 in ends:
                page.draw_rect(pymupdf.Rect(x0, y0, x1 + 0.5, y1 + 0.5), color=None, fill=(0, 0, 0))
        elif rules == "dashes":
            for x0, y0, x1, y1 in ends:
                for at in range(0, int(x1 - x0 + y1 - y0), 4):
                    dash = (x0 + at, y0, x0 + at + 2, y0) if y0 == y1 else (x0, y0 + at, x0, y0 + at + 2)
                    page.draw_line(dash[:2], dash[2:])
        elif rules != "none":
            for x0, y0, x1, y1 in ends:
                page.draw_line((x0, y0), (x1, y1))
        for cell in drawn:
            for x, y, text, size in cell:
                page.insert_text((x, y), text, fontsize=size, fontname="tiro")
        page.insert_text((72, heights[-1] + 40), "So it was.", fontsize=11, fontname="tiro")
        document.save(str(tmp_path / "a.pdf"))
    assert ingest(tmp_path / "a.pdf").text == READ


def test_a_rule_parts_what_is_drawn_close_to_it(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for row in range(4):
            page.insert_text((72, 100 + 20 * row), f"Crates of reeds {row}", fontsize=11)
            page.insert_text((72 + pymupdf.get_text_length(f"Crates of reeds {row}") + 4, 100 + 20 * row), f"1,38{row}")
            page.draw_line((70, 86 + 20 * row), (200, 86 + 20 * row))
        page.draw_line((70, 166), (200, 166))
        for x in (70, 72 + pymupdf.get_text_length("Crates of reeds 0") + 2, 200):
            page.draw_line((x, 86), (x, 166))
        document.save(str(tmp_path / "a.pdf"))
    assert ingest(tmp_path / "a.pdf").text == "\n".join(f"Crates of reeds {row} | 1,38{row}" for row in range(4))


def test_a_table_between_two_rules_has_as_many_rows_as_lines(tmp_path: Path) -> None:
    rows = [("Year", "Passengers", "Florins"), *((f"190{at}", f"4,21{at}", f"1,38{at}") for at in range(6))]
    with pymupdf.open() as document:
        page = document.new_page()
        for y in (86, 104, 206):
            page.draw_line((70, y), (330, y))
        for at, row in enumerate(rows):
            for x, text in zip((74, 164, 264), row, strict=True):
                page.insert_text((x, 100 + 16 * at), text, fontsize=11)
        document.save(str(tmp_path / "a.pdf"))
    assert ingest(tmp_path / "a.pdf").text == "\n".join(map(" | ".join, rows))


@pytest.mark.parametrize(
    "rows",
    [
        [("Year", "Passengers"), ("1901", "4,210"), ("1902", "4,377"), ("1903", "3,980")],
        [("Name", "Trade", "Village"), ("Ibsen", "ferryman", "Low Sand"), ("Brandt", "tailor", "Eastmere")],
    ],
)
def test_a_table_drawn_by_columns_is_read_by_rows(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    pieces = [
        (76 + 110 * at, 90 + 18 * number, text[at], 11.0)
        for at in range(len(rows[0]))
        for number, text in enumerate(rows)
    ]
    assert text_of(tmp_path / "a.pdf", pieces) == "\n".join(map(" | ".join, rows))


def test_columns_of_an_index_and_of_prose_are_no_table(tmp_path: Path) -> None:
    words = sorted(f"{letter}{end}" for letter in "abcdefghi" for end in ("nchor", "oat"))
    index = [(72 + 150 * at, 90 + 14 * row, words[6 * at + row], 11.0) for at in range(3) for row in range(6)]
    assert text_of(tmp_path / "a.pdf", index).split() == words
    with pymupdf.open() as document:  # a frame around columns of prose, with a rule between them
        page = document.new_page()
        for x in (60, 245, 440):
            page.draw_line((x, 70), (x, 400))
        for y in (70, 400):
            page.draw_line((60, y), (440, y))
        for x, y, text, size in [*column(72, 90, f"{FERRY} {FERRY} {FERRY}"), *column(260, 90, f"{FERRY} {FERRY}")]:
            page.insert_text((x, y), text, fontsize=size, fontname="tiro")
        document.save(str(tmp_path / "b.pdf"))
    assert ingest(tmp_path / "b.pdf").text == f"{FERRY} {FERRY} {FERRY}\n\n{FERRY} {FERRY}"


def test_labels_of_a_plot_are_no_table(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for at in range(5):
            page.draw_line((100 + 50 * at, 100), (100 + 50 * at, 300))
            page.draw_line((100, 100 + 50 * at), (300, 100 + 50 * at))
        for at in range(3):
            page.insert_text((120 + 50 * at, 280 - 50 * at), f"x{at}")
            page.insert_text((104, 155 + 50 * at), str(at))
        document.save(str(tmp_path / "a.pdf"))
    assert "|" not in ingest(tmp_path / "a.pdf").text


def marked(path: Path, words: list[tuple[float, float, str]], *tree: tuple[object, ...]) -> Path:
    """Write a PDF with a structure tree. An element is its type, its elements, and the numbers of its words."""
    drawn = "\n".join(
        f"/Span << /MCID {number} >> BDC BT /F 11 Tf 1 0 0 1 {x} {800 - y} Tm ({text}) Tj ET EMC"
        for number, (x, y, text) in enumerate(words)
    )
    objects = [
        "<< /Type /Catalog /Pages 2 0 R /StructTreeRoot 6 0 R /MarkInfo << /Marked true >> >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /StructParents 0 "
        "/Resources << /Font << /F 5 0 R >> >> >>",
        f"<< /Length {len(drawn)} >> stream\n{drawn}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /Encoding /WinAnsiEncoding >>",
        "the root of the tree",
    ]
    owners: dict[object, int] = {}

    def add(element: tuple[object, ...], parent: int) -> int:
        objects.append("")
        number, kids = len(objects), []
        for each in element[1:]:
            if isinstance(each, tuple):
                kids.append(f"{add(each, number)} 0 R")
            else:
                kids.append(str(each))
                owners[each] = number
        head = f"/Type /StructElem /S /{element[0]} /P {parent} 0 R /Pg 3 0 R"
        objects[number - 1] = f"<< {head} /K [{' '.join(kids)}] >>"
        return number

    kids = [f"{add(element, 6)} 0 R" for element in tree]
    numbers = " ".join(f"{owners[number]} 0 R" for number in range(len(words)))
    objects[5] = f"<< /Type /StructTreeRoot /K [{' '.join(kids)}] /ParentTree {len(objects) + 1} 0 R >>"
    objects.append(f"<< /Nums [0 [{numbers}]] >>")
    body = "".join(f"{number} 0 obj {each} endobj\n" for number, each in enumerate(objects, 1))
    path.write_text(f"%PDF-1.7\n{body}trailer << /Root 1 0 R >>\n")
    return path


def test_a_list_and_a_table_that_only_the_file_marks(tmp_path: Path) -> None:
    rules = ["nobody may step on board before the bell", "crates are carried first and their owners", "dogs pay half"]
    words = [(72.0, 60 + 13.0 * at, text) for at, text in enumerate([rules[0], "has rung twice", *rules[1:]])]
    words += [
        (72 + 40.0 * column, 150 + 13.0 * row, f"{'abc'[row]}{column}") for row in range(3) for column in range(3)
    ]
    cells = [tuple(("TD", 4 + 3 * row + at) for at in range(3)) for row in range(3)]
    items = (("LI", ("LBody", 0, 1)), ("LI", ("LBody", 2)), ("LI", ("LBody", 3)))
    tree = (("L", *items), ("Table", ("THead", ("TR", *cells[0])), ("TBody", ("TR", *cells[1]), ("TR", *cells[2]))))
    assert ingest(marked(tmp_path / "a.pdf", words, *tree)).text == (
        "nobody may step on board before the bell has rung twice\ncrates are carried first and their owners\n"
        "dogs pay half\n\na0 | a1 | a2\nb0 | b1 | b2\nc0 | c1 | c2"
    )


def test_a_marked_table_that_arranges_a_page_stays_as_it_is(tmp_path: Path) -> None:
    words = [(72.0, 60 + 13.0 * at, line) for at, line in enumerate(wrapped(f"{FERRY} {FERRY} {FERRY}", 200))]
    tree = ("Table", ("TR", ("TD", *range(len(words)))))
    assert ingest(marked(tmp_path / "a.pdf", words, tree)).text == f"{FERRY} {FERRY} {FERRY}"


def test_print_is_kept_however_deep_it_lies_in_the_tree() -> None:
    deep: dict[str, Any] = {"name": "deep"}
    for _ in range(2000):
        deep = {"std": "Div", "blocks": [deep, {"name": "beside"}]}
    page = {"blocks": [{"std": "LI", "blocks": [{"name": "item"}]}, deep]}
    assert flatten(page)
    assert [block["name"] for block in page["blocks"]] == ["item", "deep", *["beside"] * 2000]
