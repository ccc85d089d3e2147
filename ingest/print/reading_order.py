"""In which order people look at what is spread over a slide: by its rows and columns, which gaps part.

A region is parted in two at its widest gap, whole columns at a time where that is between columns, until nothing parts
what is left; that is read from the top, then from the left.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

MOST = 300  # boxes; what has more is not laid out to be read one by one
OVERLAP = 0.02  # of a region's extent: boxes that overlap by less lie beside each other


@dataclass(frozen=True)
class Box:
    """Where something is, in any unit; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float


def in_reading_order(things: Iterable[tuple[Box, T]]) -> list[T]:
    """Things in the order in which they are read, by where they are."""
    regions, read = [sorted(things, key=lambda thing: (thing[0].top, thing[0].left))], list[T]()
    while regions:
        region = regions.pop()
        parts = _parted(region) if 1 < len(region) <= MOST else None
        if parts is None:
            read += [thing for _, thing in region]
        else:
            regions += reversed(parts)
    return read


def _parted(region: list[tuple[Box, T]]) -> tuple[list[tuple[Box, T]], list[tuple[Box, T]]] | None:
    """The two sides of the widest gap in a region; None where there is none."""
    rows = _widest_gap([(box.top, box.bottom) for box, _ in region])
    columns = _widest_gap([(box.left, box.right) for box, _ in region])
    if rows is None and columns is None:
        return None
    if rows is not None and (columns is None or rows[0] >= columns[0]):
        first = [thing for thing in region if thing[0].top < rows[1]]
        return first, [thing for thing in region if thing[0].top >= rows[1]]
    assert columns is not None
    first = [thing for thing in region if thing[0].left < columns[1]]
    return first, [thing for thing in region if thing[0].left >= columns[1]]


def _widest_gap(spans: list[tuple[float, float]]) -> tuple[float, float] | None:
    """Of the gaps between spans the widest: how wide it is, and where what is behind it begins.

    Of those that are hardly gaps, the one that parts a single span from the others: a line above or below columns.
    """
    spans = sorted(spans)
    little = OVERLAP * (max(end for _, end in spans) - spans[0][0])
    reached, gaps = spans[0][1], []
    for index, ((before, _), (start, end)) in enumerate(pairwise(spans), 1):
        if start > before and start - reached >= -little:
            gaps.append((max(start - reached, little), index in (1, len(spans) - 1), -start))
        reached = max(reached, end)
    widest = max(gaps, default=None)
    return None if widest is None else (widest[0], -widest[2])
