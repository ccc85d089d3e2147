"""Tables as lines of text, every value under its heading, for all formats."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDEST, TALLEST = 100, 10_000  # columns and rows that one cell may take; a colspan of 1,000 means "all"
LAYOUT_CELL, SHORT_CELL = 400, 100  # characters: an essay has more than the first, a value at most the second

_BEFORE = re.compile(r"[$€£¥(]+")
_AFTER = re.compile(r"[)%]+")
_NUMBER_START = re.compile(r"[\d.,(−–—-]")


@dataclass(frozen=True)
class Cell:
    """Text on one line, with the number of columns and rows it takes."""

    text: str
    columns: int = 1
    rows: int = 1


@dataclass(frozen=True)
class _Placed:
    start: int
    stop: int
    text: str


def table_lines(rows: Iterable[Iterable[Cell]]) -> list[str]:
    """Return one line for every row, "1990 | | 50"; "" for a row without words.

    An empty cell is kept unless its column is empty in every row, or no word follows in its row. Signs that accounts
    put into cells of their own ("$", ")") join the number beside them. A cell over several columns stands over the
    first one that has words of its own.
    """
    placed = [_with_signs(row) for row in _grid(rows)]
    columns: set[int] = set()
    found: list[dict[int, str]] = [{} for _ in placed]
    cells = [(cell, index) for index, row in enumerate(placed) for cell in row if cell.text]
    for cell, index in sorted(cells, key=lambda pair: pair[0].stop - pair[0].start):  # narrow cells define the columns
        column = next((column for column in range(cell.start, cell.stop) if column in columns), cell.start)
        columns.add(column)
        found[index][column] = cell.text
    kept = sorted(columns)
    shown = [[row.get(column, "") for column in kept[: bisect_right(kept, max(row, default=-1))]] for row in found]
    return [" |".join(f" {text}" if text else "" for text in row).strip() for row in shown]


def is_layout(rows: Sequence[Sequence[str]], headed: bool, nested: bool = False) -> bool:
    """Return whether a table arranges a page: a lone cell, or essays or tables in cells and few rows of short cells.

    Args:
        rows: the words of its cells.
        headed: some cells are marked as headings of columns or rows.
        nested: there are tables in its cells.
    """
    if len(rows) == 1 and len(rows[0]) == 1:
        return True
    essays = any(len(text) > LAYOUT_CELL for row in rows for text in row)
    data = sum(sum(0 < len(text) <= SHORT_CELL for text in row) >= 2 for row in rows)
    return (essays or nested) and not headed and data < 3


def span(value: str | None, most: int = WIDEST) -> int:
    """Return the number of columns or rows that an attribute gives a cell, between 1 and `most`; 1 if it is invalid."""
    return min(max(int(value), 1), most) if value and re.fullmatch(r"\d{1,7}", value.strip()) else 1


def _grid(rows: Iterable[Iterable[Cell]]) -> Iterable[list[_Placed]]:
    reaching: dict[int, int] = {}  # column -> rows below that a cell still covers
    for row in rows:
        taken, reaching = reaching, {column: left - 1 for column, left in reaching.items() if left > 1}
        placed, column = [], 0
        for cell in row:
            while column in taken:
                column += 1
            stop = column + cell.columns
            placed.append(_Placed(column, stop, cell.text))
            if cell.rows > 1 and stop <= 10 * WIDEST:  # wider tables are made to take for ever
                reaching.update(dict.fromkeys(range(column, stop), cell.rows - 1))
            column = stop
        yield placed


def _with_signs(row: list[_Placed]) -> list[_Placed]:
    joined: list[_Placed] = []
    for cell in row:
        before = joined[-1] if joined else _Placed(0, 0, "")
        if _BEFORE.fullmatch(before.text) and _NUMBER_START.match(cell.text):
            joined[-1] = _Placed(cell.start, cell.stop, before.text + cell.text)
        elif _AFTER.fullmatch(cell.text) and re.search(r"[\d)]$", before.text):
            joined[-1] = _Placed(before.start, before.stop, before.text + cell.text)
        else:
            joined.append(cell)
    return joined
