"""Lines of print with their boxes, in points, y growing downwards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingest.clean import ends_sentence

EDGE = 6.0  # points; lines within them share a left edge
CELL = " | "  # between the cells of a row
WIDE = 20  # characters of a line of prose at least
RUNS_ON = 0.25  # share of line ends at which a sentence runs on, in prose


@dataclass(frozen=True)
class Line:
    """One line of print, or a piece of one. `size` is its font size in points."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    monospaced: bool = False  # line breaks of a typewriter font matter
    horizontal: bool = True  # runs along the page, not up or down it
    ends_with_space: bool = False  # MuPDF gave a space at its end
    begins_with_space: bool = False  # and one at its beginning
    numbered: bool = False  # a number in a column of numbers
    cells: tuple[tuple[float, float], ...] = ()  # start and end of each cell of a table row, in points
    item: bool = False  # the file marks it as the beginning of an item of a list


LineBlock = list[Line]


def same_row(first: Line, second: Line) -> bool:
    """Return whether two lines stand beside each other."""
    overlap = min(first.y1, second.y1) - max(first.y0, second.y0)
    return overlap > 0.6 * min(first.y1 - first.y0, second.y1 - second.y0)


def rows_of(lines: Iterable[Line]) -> list[LineBlock]:
    """Return lines in rows, in their order; a line that stands beside the first one of a row joins it."""
    rows: list[LineBlock] = []
    for line in lines:
        if rows and same_row(rows[-1][0], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def runs_on(line: str, after: str) -> bool:
    """Return whether a sentence runs on from a line of prose to the next; in scripts of one case, from a long line."""
    if len(line) < WIDE or ends_sentence(line) or after[0].isupper():
        return False
    return after[0].isalpha()


def is_prose(pairs: Sequence[tuple[Line, Line]]) -> bool:
    """Return whether sentences run on between lines that follow one another."""
    return bool(pairs) and sum(runs_on(line.text, after.text) for line, after in pairs) >= RUNS_ON * len(pairs)
