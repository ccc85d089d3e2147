"""The rows of a sheet as paragraphs of lines, as `table.py` writes them, with the headings of their columns over each.

In a table of a thousand rows a value far down would be nobody's: the headings are said again every few rows. Which rows
are headings a sheet does not say; they are known by standing, in words or in a style of their own, over what differs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ingest.table import SHORT_CELL, Cell, table_lines

ROWS = 20  # of a paragraph
LONG = 3_000  # characters, with which a paragraph is full with fewer
DEEPEST = 5  # rows at the top of a table, among which are its headings
MOST_HEADINGS = 3  # rows
NUMBERS = 0.7  # of the values in a column that is one of numbers; in others somebody wrote that there is none


@dataclass(frozen=True)
class Value:
    """What a cell shows, on one line."""

    text: str
    is_number: bool = False  # or a day, or a truth value
    style: str = ""


@dataclass(frozen=True)
class Row:
    """A row with words in it."""

    number: int  # as the sheet counts
    values: dict[int, Value]  # by column, counted from 1


@dataclass(frozen=True)
class Paragraph:
    """Neighbouring rows, perhaps under headings from further above."""

    first: int  # row
    last: int
    text: str


def paragraphs(rows: Iterable[Row]) -> Iterator[Paragraph]:
    """The rows of a sheet, in order, as paragraphs, which end at empty rows at the latest."""
    headings: list[Row] = []
    last = -1
    for group in _groups(rows):
        first = group[0].number
        found = _headings(group) if first > last + 1 else []
        if found:
            headings, shown = found, group
        else:
            if first > last + 2:  # more than an empty row: another table
                headings = []
            shown = [*headings, *group] if _under(headings, group) else group
        last = group[-1].number
        lines = filter(None, table_lines(map(_cells, shown)))
        yield Paragraph(first, last, "\n".join(lines))


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        if group and (row.number > group[-1].number + 1 or len(group) == ROWS or size > LONG):
            yield group
            group, size = [], 0
        group.append(row)
        size += sum(len(value.text) for value in row.values.values())
    if group:
        yield group


def _headings(group: list[Row]) -> list[Row]:
    """The rows at the top of a table that say what is in its columns; none where there are no such."""
    fits = [_is_heading(row, group[index + 1 :]) for index, row in enumerate(group[:DEEPEST])]
    first = next((index for index, fit in enumerate(fits) if fit), len(fits))
    end = next((index for index in range(first, len(fits)) if not fits[index]), len(fits))
    return group[first : min(end, first + MOST_HEADINGS)]


def _is_heading(row: Row, below: list[Row]) -> bool:
    """Whether a row is words over numbers, or differs in style from all that is below it, in every column."""
    widest = max((len(each.values) for each in below), default=0)
    if len(below) < 2 or len(row.values) < 2 or 2 * len(row.values) < widest:
        return False
    if any(len(value.text) > SHORT_CELL for value in row.values.values()):
        return False
    columns = {
        column: [each.values[column] for each in below if column in each.values and each.values[column].text]
        for column in row.values
    }
    filled = {column: values for column, values in columns.items() if values}
    if len(filled) < 2:
        return False
    if all(value.style != row.values[column].style for column, values in filled.items() for value in values):
        return True
    numbers = {column: sum(value.is_number for value in values) for column, values in filled.items()}
    over_numbers = any(numbers[column] > max(1, NUMBERS * len(values)) for column, values in filled.items())
    return over_numbers and not any(value.is_number for value in row.values.values())


def _under(headings: list[Row], group: list[Row]) -> bool:
    """Whether rows have values in columns of which at least half have headings."""
    columns = {column for row in group if len(row.values) > 1 for column in row.values}
    headed = {column for row in headings for column in row.values}
    return bool(columns) and 2 * len(columns & headed) >= len(columns)


def _cells(row: Row) -> Iterator[Cell]:
    reached = 0
    for column, value in sorted(row.values.items()):
        if column > reached + 1:
            yield Cell("", column - reached - 1)
        yield Cell(value.text)
        reached = column
