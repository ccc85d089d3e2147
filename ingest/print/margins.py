"""Numbers in a column of their own at the edge of a page: line numbers are dropped, others join their rows.

Manuscripts, transcripts and papers under review number their lines in the margin. Ranks, articles and the years of a
register stand there as well, and carry meaning.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from ingest.print.lines import EDGE, Line, LineBlock, is_prose, rows_of, same_row

LEAST_COUNTED = 8  # line numbers of a page, at least
LEAST_ROWS = 3  # numbers that make a column, at least
MOST_STEP = 10
UNEVEN = 0.2  # share by which the number of lines may differ from the line numbers


def place_margin_numbers(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """Return blocks without line numbers, and with every other number of a margin in the row beside it."""
    blocks = list(blocks)
    lines = [line for block in blocks for line in block if line.horizontal]
    gone: set[int] = set()
    moved: dict[int, list[Line]] = defaultdict(list)  # id of a line -> the numbers that belong beside it
    for column in _columns(lines):
        ids = {id(line) for line in column}
        others = [line for line in lines if id(line) not in ids]
        if not others or ids & gone:
            continue
        rest = [[line for line in block if id(line) not in ids] for block in blocks]
        if _apart(column, others) and _counts_lines(column, rest):  # no table heading stands so far out
            gone |= ids
            continue
        others = [line for line in others if column[0].y0 <= line.y1 and line.y0 <= column[-1].y1]
        for number in column if _apart(column, others) else ():
            beside = [line for line in others if same_row(number, line)]
            if beside:
                nearest = min(beside, key=lambda line: abs(line.x0 - number.x0))
                moved[id(nearest)].append(replace(number, numbered=True))
                gone.add(id(number))
    kept = (list(_in_rows(block, gone, moved)) for block in blocks)
    return [block for block in kept if block]


def _apart(column: list[Line], others: list[Line]) -> bool:
    """Return whether all other lines stand on one side of a column."""
    left, right = min(line.x0 for line in column), max(line.x1 for line in column)
    return all(line.x0 > right for line in others) or all(line.x1 < left for line in others)


def _in_rows(block: LineBlock, gone: set[int], moved: dict[int, list[Line]]) -> Iterator[Line]:
    for line in block:
        numbers = moved.get(id(line), [])
        yield from (number for number in numbers if number.x0 < line.x0)
        if id(line) not in gone:
            yield line
        yield from (number for number in numbers if number.x0 >= line.x0)


def _columns(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield columns of numbers that share a left or a right edge, each from the top."""
    columns: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in lines:
        if line.text.isascii() and line.text.isdecimal():
            columns["from", round(line.x0 / EDGE)].append(line)
            columns["to", round(line.x1 / EDGE)].append(line)
    for column in sorted(columns.values(), key=len, reverse=True):
        if len(column) >= LEAST_ROWS:
            yield sorted(column, key=lambda line: line.y0)


def _counts_lines(column: list[Line], blocks: list[LineBlock]) -> bool:
    """Return whether numbers count the lines of print beside them.

    They rise evenly, and there are as many lines. If each line has a number, the lines must be prose, as a list of
    short entries may be numbered, too.
    """
    steps = {int(after.text) - int(line.text) for line, after in pairwise(column)}
    if len(column) < LEAST_COUNTED or len(steps) != 1 or not 1 <= (step := steps.pop()) <= MOST_STEP:
        return False
    top, bottom = column[0].y0, column[-1].y1
    beside = [[line for line in block if line.horizontal and top <= line.y1 and line.y0 <= bottom] for block in blocks]
    rows = len(rows_of(sorted((line for block in beside for line in block), key=lambda line: line.y0)))
    counted = step * (len(column) - 1) + 1
    if rows > (1 + UNEVEN) * counted + 1:
        return False
    if step > 1:
        return rows >= (1 - UNEVEN) * counted
    return is_prose([pair for block in beside for pair in pairwise(block) if not same_row(*pair)])
