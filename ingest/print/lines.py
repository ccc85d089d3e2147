"""Lines of print with their boxes, in points, y growing downwards."""

from dataclasses import dataclass

EDGE = 6.0  # points; lines within them share a left edge


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


LineBlock = list[Line]


def same_row(first: Line, second: Line) -> bool:
    """Return whether two lines stand beside each other."""
    overlap = min(first.y1, second.y1) - max(first.y0, second.y0)
    return overlap > 0.6 * min(first.y1 - first.y0, second.y1 - second.y0)
