"""Lines of print with their boxes, in points, y growing downwards."""

from dataclasses import dataclass

EDGE = 6.0  # points within which lines begin at the same left edge


@dataclass(frozen=True)
class Line:
    """One line of print, or a piece of one. `size` is its font size in points."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    mono: bool = False  # a typewriter font: line breaks mean something
    level: bool = True  # runs along the page, not up or down it
    spaced: bool = False  # had a space at its end
    led: bool = False  # and at its beginning
    numbered: bool = False  # a number in a column of numbers
    cells: tuple[tuple[float, float], ...] = ()  # where those of a row begin and end


Block = list[Line]


def same_row(first: Line, second: Line) -> bool:
    """Whether two lines stand beside one another."""
    overlap = min(first.y1, second.y1) - max(first.y0, second.y0)
    return overlap > 0.6 * min(first.y1 - first.y0, second.y1 - second.y0)
