"""Column headings of a sheet, and the paragraphs of its rows."""

import re
from pathlib import Path
from typing import Any

import pytest

from ingest import Document, ingest
from ingest.office.grid import Row, Value, sheet_paragraphs
from tests.ingest.makers import check_invariants
from tests.ingest.office_makers import workbook


def read(path: Path) -> Document:
    document = ingest(path)
    check_invariants(document)
    return document


def test_a_long_sheet_says_its_headings_and_rows_again_and_again(tmp_path: Path) -> None:
    """A thousand rows below its heading, a price had lost its meaning."""

    def fill(book: Any) -> None:
        sheet = book.active
        sheet.title = "Prices"
        sheet.append(["The Fleet"])
        sheet.append(["Ship", "Guns", "Price"])
        for index in range(500):
            sheet.append([f"Ship {index}", index % 7, 100 + index])
        sheet.append([])
        sheet.append(["Sum", None, 174_750])

    document = read(workbook(tmp_path / "My prices.xlsx", fill))
    assert document.title == "My prices"
    labels = [page.label for page in document.pages]
    assert labels == ["Prices, rows 1 to 300", "Prices, rows 301 to 504"]
    assert [entry.page for entry in document.toc] == [1]
    first, *others = document.pages[0].text.split("\n\n")[1:]
    assert first.split("\n")[:4] == ["The Fleet", "Ship | Guns | Price", "Ship 0 | 0 | 100", "Ship 1 | 1 | 101"]
    assert document.pages[1].text.startswith("Prices\n\nShip | Guns | Price\nShip 298 | 4 | 398\n")
    assert all(other.startswith("Ship | Guns | Price\nShip ") for other in others)
    assert document.text.endswith("\n\nShip | Guns | Price\nSum | | 174750")
    assert document.locate(document.text.index("Ship 490")).label == "Prices, rows 301 to 504, paragraph 10"
    assert [len(re.findall(rf"^Ship {index} ", document.text, re.MULTILINE)) for index in range(500)] == [1] * 500


def rows(*texts: str, first: int = 1) -> list[Row]:
    """Return rows of cells separated by blanks: digits are numbers, "*" marks a style of its own, "-" is no cell."""
    return [
        Row(
            number,
            {
                column: Value(word.lstrip("*"), word.lstrip("*").isdecimal(), "bold" if word.startswith("*") else "")
                for column, word in enumerate(text.split(), 1)
                if word != "-"
            },
        )
        for number, text in enumerate(texts, first)
    ]


MANY = [f"n{index} {index} {index}" for index in range(40)]


WORDS = [f"n{index} w{index} x{index}" for index in range(40)]


@pytest.mark.parametrize(
    ("table", "headings"),
    [
        (rows("name age size", *MANY), ["name | age | size"]),
        (rows("- age size", *MANY), ["| age | size"]),
        (rows("title", "name age size", *MANY), ["name | age | size"]),
        (rows("name age size", "of m kg", *MANY), ["name | age | size", "of | m | kg"]),
        (rows("*name *2023 *2024", *MANY), ["name | 2023 | 2024"]),
        (rows("*name *age *size", *WORDS), ["name | age | size"]),
        (rows("name age size", *WORDS), []),  # nothing marks it as one
        (rows(*(f"*{row}".replace(" ", " *") if index % 2 else row for index, row in enumerate(WORDS))), []),
        (rows("name age size", "n 7 none", "n none none", *MANY), ["name | age | size"]),
        (rows(*MANY), []),
        (rows(f"name age {'long' * 40}", *MANY), []),
        (rows("name - -", *MANY), []),
        (rows("total size - - - -", *(f"{row} {row}" for row in MANY)), []),
    ],
)
def test_which_rows_are_headings(table: list[Row], headings: list[str]) -> None:
    first, second, *_ = sheet_paragraphs(table)
    assert (first.first, first.last, second.first) == (1, 20, 21)
    begins = second.text.split("\n")
    assert len(begins) == 20 + len(headings)
    assert begins[: len(headings)] == headings


def test_a_table_further_down_has_headings_of_its_own(tmp_path: Path) -> None:
    table = [
        *rows("name age size", "Anne 7 9", "Ben 8 9"),
        *rows("Cleo 9 9", first=5),  # an empty row separates groups
        *rows("South", first=7),
        *rows("Dan 1 1", first=9),
        *rows("ship guns mast", "Lark 7 2", "Wren 8 3", first=11),
        *rows("Kite 9 1", first=15),
        *rows("- - - - far 1 2", first=17),  # in other columns
        *rows("alone 7 2", first=21),  # further away
    ]
    assert [paragraph.text.split("\n") for paragraph in sheet_paragraphs(table)] == [
        ["name | age | size", "Anne | 7 | 9", "Ben | 8 | 9"],
        ["name | age | size", "Cleo | 9 | 9"],
        ["South"],
        ["name | age | size", "Dan | 1 | 1"],
        ["ship | guns | mast", "Lark | 7 | 2", "Wren | 8 | 3"],
        ["ship | guns | mast", "Kite | 9 | 1"],
        ["far | 1 | 2"],
        ["alone | 7 | 2"],
    ]


def test_long_cells_fill_a_paragraph_sooner() -> None:
    table = rows(*["word" * 200] * 10)
    assert [(each.first, each.last) for each in sheet_paragraphs(table)] == [(1, 4), (5, 8), (9, 10)]
