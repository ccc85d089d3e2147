"""Numbers in a column of their own at the edge of a page: those that count its lines go, all others join their rows.

Manuscripts, transcripts and papers under review count their lines in the margin. Ranks, articles and the years of a
register stand there as well, and say something.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from ingest.clean import ends_sentence
from ingest.print.lines import EDGE, Block, Line, same_row

LEAST_COUNTED = 8  # lines of a page, whose numbers stand in its margin
LEAST_ROWS = 3  # numbers below one another that are a column
MOST_STEP = 10
UNEVEN = 0.2  # of the lines that numbers count: so many may be more or fewer
RUNS_ON = 0.25  # of the line ends of prose at least
WIDE = 20  # characters of a line of prose at least


def numbers_in_place(blocks: Iterable[Block]) -> list[Block]:
    """Blocks without the numbers that count lines, and with every other number of a margin in the row beside it."""
    blocks = list(blocks)
    lines = [line for block in blocks for line in block if line.level]
    gone: set[int] = set()
    moved: dict[int, list[Line]] = defaultdict(list)  # by the line beside which they belong
    for column in _columns(lines):
        ids = {id(line) for line in column}
        others = [line for line in lines if id(line) not in ids]
        if not others or ids & gone:
            continue
        rest = [[line for line in block if id(line) not in ids] for block in blocks]
        if _apart(column, others) and _counts_lines(column, rest):  # nothing stands so far out: no heading of a table
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
    """Whether all others stand on one side of a column."""
    left, right = min(line.x0 for line in column), max(line.x1 for line in column)
    return all(line.x0 > right for line in others) or all(line.x1 < left for line in others)


def _in_rows(block: Block, gone: set[int], moved: dict[int, list[Line]]) -> Iterator[Line]:
    for line in block:
        numbers = moved.get(id(line), [])
        yield from (number for number in numbers if number.x0 < line.x0)
        if id(line) not in gone:
            yield line
        yield from (number for number in numbers if number.x0 >= line.x0)


def _columns(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Numbers that begin or end below one another, from the top."""
    columns: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in lines:
        if line.text.isascii() and line.text.isdecimal():
            columns["from", round(line.x0 / EDGE)].append(line)
            columns["to", round(line.x1 / EDGE)].append(line)
    for column in sorted(columns.values(), key=len, reverse=True):
        if len(column) >= LEAST_ROWS:
            yield sorted(column, key=lambda line: line.y0)


def _counts_lines(column: list[Line], blocks: list[Block]) -> bool:
    """Whether numbers count the lines of print beside them: evenly, as many as there are, and lines of prose if each
    has its number, as a list of short entries may be counted, too.
    """
    steps = {int(after.text) - int(line.text) for line, after in pairwise(column)}
    if len(column) < LEAST_COUNTED or len(steps) != 1 or not 1 <= (step := steps.pop()) <= MOST_STEP:
        return False
    top, bottom = column[0].y0, column[-1].y1
    beside = [[line for line in block if line.level and top <= line.y1 and line.y0 <= bottom] for block in blocks]
    rows = _rows([line for block in beside for line in block])
    counted = step * (len(column) - 1) + 1
    if rows > (1 + UNEVEN) * counted + 1:
        return False
    if step > 1:
        return rows >= (1 - UNEVEN) * counted
    pairs = [pair for block in beside for pair in pairwise(block) if not same_row(*pair)]
    return bool(pairs) and sum(_run_on(*pair) for pair in pairs) >= RUNS_ON * len(pairs)


def _rows(lines: list[Line]) -> int:
    """How many rows there are of lines, some of which may stand beside one another."""
    rows, last = 0, None
    for line in sorted(lines, key=lambda line: line.y0):
        if last is None or not same_row(last, line):
            rows, last = rows + 1, line
    return rows


def _run_on(line: Line, after: Line) -> bool:
    """Whether a sentence runs on from a line of prose to the next; in scripts of one case, from a long line."""
    if len(line.text) < WIDE or ends_sentence(line.text) or after.text[0].isupper():
        return False
    return after.text[0].isalpha()
