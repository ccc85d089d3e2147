"""Order of the blocks of a page: as the file draws them, or by their places where these contradict it.

Most files draw first what is read first, and only they know that a column goes on beside a picture. Others draw
headings last, lines from the bottom up, or columns row by row. So a block moves only if it was drawn after a block that
stands below it. A page with many such blocks is read by places alone.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from ingest.print.bidi import RIGHT_TO_LEFT
from ingest.print.lines import EDGE, Line, LineBlock, is_prose, rows_of, same_row

MOST = 300  # blocks of a page that are compared, at most
MOVED = 0.3  # share of the characters; a page with more out of place is read by places alone
OVERLAP = 0.4  # of the lower height; boxes that overlap by more stand beside each other
ABOVE = 0.3  # of the narrower width; blocks that share less are in different columns
LEAST_ROWS = 4  # rows of two columns of prose, at least
BACK = 4  # lines of a block that a line is compared with; a row across columns has as many
LARGER = 1.1  # times the usual size; a larger line that stands alone at its height is a heading over all columns
GUTTER = 0.8  # font sizes; the narrowest gap between columns
_WORD = re.compile(r"[^\W\d_]{3}|[\u0590-\u1fff\u2e80-\ud7ff]")  # formulas and ticks of plots have none


@dataclass(frozen=True)
class _Unit:
    """Lines that move together, and the box around them in points."""

    lines: LineBlock
    x0: float
    y0: float
    x1: float
    y1: float
    weight: int  # characters
    words: bool  # it is level, and has words


def in_order(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """Return the blocks of a page in reading order. Rows of tables move together."""
    blocks = [block for block in blocks if block]
    turned = sum(bool(RIGHT_TO_LEFT.search(line.text)) for block in blocks for line in block)
    if turned * 2 <= sum(map(len, blocks)):
        return _in_order(blocks)
    originals: dict[int, Line] = {}  # columns follow each other from the right, as those of a mirrored page do
    mirrored = [[replace(line, x0=-line.x1, x1=-line.x0) for line in block] for block in blocks]
    for block, images in zip(blocks, mirrored, strict=True):
        originals.update((id(image), line) for image, line in zip(images, block, strict=True))
    return [[originals[id(image)] for image in block] for block in _in_order(mirrored)]


def _in_order(blocks: list[LineBlock]) -> list[LineBlock]:
    blocks = _with_columns_apart(blocks)
    units = [_unit(lines) for block in blocks for lines in (rows_of(block) if _goes_up(block) else [block])]
    if len(units) > MOST:
        return blocks
    wrong: dict[int, set[int]] = defaultdict(set)
    for late, unit in enumerate(units):
        for early in range(late):
            if _is_above(unit, units[early]):
                wrong[early].add(late)
                wrong[late].add(early)
    if not wrong:
        return blocks
    moved = _fewest(wrong, units)
    if sum(units[index].weight for index in moved) > MOVED * sum(unit.weight for unit in units):
        return _by_place(blocks)
    placed = _with_moved(moved, [index for index in range(len(units)) if index not in moved], units)
    return _joined([unit.lines for unit in placed], {id(block) for block in blocks})


def _unit(lines: LineBlock) -> _Unit:
    return _Unit(
        lines,
        min(line.x0 for line in lines),
        min(line.y0 for line in lines),
        max(line.x1 for line in lines),
        max(line.y1 for line in lines),
        sum(len(line.text) for line in lines),
        lines[0].horizontal and any(_WORD.search(line.text) for line in lines),
    )


def _is_above(unit: _Unit, other: _Unit) -> bool:
    """Return whether a unit of words stands above another one in one column."""
    if not unit.words or not other.words:
        return False
    shared = min(unit.x1, other.x1) - max(unit.x0, other.x0)
    lower = min(unit.y1 - unit.y0, other.y1 - other.y0)
    return (
        unit.y1 - other.y0 <= OVERLAP * lower
        and unit.y0 < other.y0
        and shared > ABOVE * min(unit.x1 - unit.x0, other.x1 - other.x0)
    )


def _goes_up(block: LineBlock) -> bool:
    """Return whether a line of a block stands above one that was drawn before it."""
    if any(line.cells for line in block):
        return False
    units = [_unit([line]) for line in block]
    return any(_is_above(unit, before) for at, unit in enumerate(units) for before in units[max(0, at - BACK) : at])


def _fewest(wrong: dict[int, set[int]], units: Sequence[_Unit]) -> set[int]:
    """Return units without which the others are in order: those with many contradictions for their length."""
    left = {index: set(others) for index, others in wrong.items()}
    moved: set[int] = set()
    while any(left.values()):
        worst = max(left, key=lambda index: (len(left[index]) / (units[index].weight + 1), index))
        moved.add(worst)
        for other in left.pop(worst):
            left[other].discard(worst)
    return moved


def _with_moved(moved: Iterable[int], kept: list[int], units: Sequence[_Unit]) -> list[_Unit]:
    """Put units where they belong among those kept, and return all in order.

    What stands over the whole page comes first, what stands under it last, and the rest between the units above and
    below, if that is clear.
    """
    first, last = list[_Unit](), list[_Unit]()
    kept = list(kept)
    for index in sorted(moved, key=lambda index: (units[index].y0, units[index].x0)):
        unit = units[index]
        others = [units[other] for other in kept if units[other].words]
        height = unit.lines[0].y1 - unit.lines[0].y0
        if all(unit.y1 + height < other.y0 for other in others):
            first.append(unit)
        elif all(unit.y0 - height > other.y1 for other in others):
            last.append(unit)
        else:
            after = max((at for at, other in enumerate(kept, 1) if _is_above(units[other], unit)), default=0)
            before = min((at for at, other in enumerate(kept) if _is_above(unit, units[other])), default=None)
            if after > (len(kept) if before is None else before):  # it stands between columns
                before = sum(other < index for other in kept)
            kept.insert(after if before is None else before, index)
    return [*_sorted(first), *(units[index] for index in kept), *_sorted(last)]


def _joined(blocks: Iterable[LineBlock], whole: set[int]) -> list[LineBlock]:
    """Join the rows of blocks that were taken apart. whole: ids of the blocks that were not."""
    joined: list[LineBlock] = []
    last_whole = True
    for block in blocks:
        if joined and not last_whole and id(block) not in whole and _follows(joined[-1][-1], block[0]):
            joined[-1] = [*joined[-1], *block]
        else:
            joined.append(block)
        last_whole = id(block) in whole
    return joined


def _follows(line: Line, after: Line) -> bool:
    """Return whether a line stands right below another one of its column, or beside it, in print of one size."""
    if line.cells or after.cells or not line.horizontal or not after.horizontal:
        return False
    height = max(min(line.y1 - line.y0, after.y1 - after.y0), 1.0)
    alike = abs(line.size - after.size) <= 0.1 * max(line.size, after.size)
    if same_row(line, after):
        return 0 <= after.x0 - line.x1 < GUTTER * line.size
    shared = min(line.x1, after.x1) - max(line.x0, after.x0)
    return alike and -OVERLAP * height < after.y0 - line.y1 < 0.5 * height and shared > 0


def _by_place(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """Return the lines of a page as blocks in reading order, by their places alone; lines up or down the page last."""
    blocks = list(blocks)
    tables = [block for block in blocks if block[0].cells]
    lines = [line for block in blocks if not block[0].cells for line in block]
    groups: list[LineBlock] = []
    level = sorted((line for line in lines if line.horizontal), key=lambda line: line.y0 + line.y1)
    for row in rows_of(level):
        for line in sorted(row, key=lambda line: line.x0):
            fitting = [group for group in groups if _follows(group[-1], line)]
            if fitting:
                max(fitting, key=lambda group: (group[-1].y1, group[-1].x1)).append(line)
            else:
                groups.append([line])
    turned = ([line for line in block if not line.horizontal] for block in blocks)
    return [unit.lines for unit in _sorted([_unit(each) for each in [*groups, *tables]])] + list(filter(None, turned))


def _sorted(units: list[_Unit]) -> list[_Unit]:
    """Sort units by places: from the top in a column, and columns from the left.

    A unit comes before those that stand below it or to its right. A unit that spans columns parts those above it from
    those below (T. M. Breuel, High performance document layout analysis, 2003).
    """
    units = sorted(units, key=lambda unit: (unit.y0, unit.x0))
    if len(units) > MOST:
        return units
    across = _headings([line for unit in units for line in unit.lines])
    if across:
        left, right = min(unit.x0 for unit in units), max(unit.x1 for unit in units)
        units = [replace(unit, x0=left, x1=right) if id(unit.lines[0]) in across else unit for unit in units]

    def is_left(unit: _Unit, other: _Unit) -> bool:
        if unit.x1 > other.x0 + 1:
            return False
        low, high = sorted(((unit.y0 + unit.y1) / 2, (other.y0 + other.y1) / 2))
        return not any(
            low < (each.y0 + each.y1) / 2 < high for each in spanning if each.x0 < unit.x1 and each.x1 > other.x0
        )

    middle = median([unit.x1 - unit.x0 for unit in units] or [0.0])
    spanning = [unit for unit in units if unit.x1 - unit.x0 > middle]
    before = {
        index: {
            at for at, other in enumerate(units) if at != index and (_stands_over(other, unit) or is_left(other, unit))
        }
        for index, unit in enumerate(units)
    }
    order: list[int] = []
    while before:
        free = next((index for index in before if not before[index]), None)
        if free is None:  # they contradict one another
            free = min(before, key=lambda index: (len(before[index]), index))
        order.append(free)
        del before[free]
        for waiting in before.values():
            waiting.discard(free)
    return [units[index] for index in order]


def _stands_over(unit: _Unit, other: _Unit) -> bool:
    return min(unit.x1, other.x1) - max(unit.x0, other.x0) > 0 and unit.y0 < other.y0


def _with_columns_apart(blocks: list[LineBlock]) -> list[LineBlock]:
    """Return blocks with columns of prose one after the other where they were drawn row by row."""
    gutters = _gutters(blocks)
    if not gutters:
        return blocks
    apart: list[LineBlock] = []
    columns: dict[int, list[Line]] = defaultdict(list)
    across = _headings([line for block in blocks for line in block])
    for block in blocks:
        rest: LineBlock = []
        for line in block:
            beside = [place for place, top, bottom in gutters if top < (line.y0 + line.y1) / 2 < bottom]
            if beside and id(line) not in across and not any(line.x0 < place < line.x1 for place in beside):
                columns[sum(line.x0 >= place for place in beside)].append(line)
                rest = []
            else:
                apart += _finished(columns)
                if not rest:
                    apart.append(rest)
                rest.append(line)
    return apart + _finished(columns)


def _headings(lines: list[Line]) -> set[int]:
    """Return the ids of lines that stand alone at their height, in print larger than most."""
    usual = median([line.size for line in lines] or [0.0])
    large = [line for line in lines if line.size > LARGER * usual]
    return {
        id(line)
        for line in large
        if not any(other.y0 < line.y1 and line.y0 < other.y1 for other in lines if other is not line)
    }


def _finished(columns: dict[int, list[Line]]) -> list[LineBlock]:
    """Empty columns, and return their lines as blocks, parted at wide gaps and where the size of print changes."""
    blocks: list[LineBlock] = []
    for number in sorted(columns):
        begun = len(blocks)
        for line in columns.pop(number):
            if len(blocks) > begun and _follows(blocks[-1][-1], line):
                blocks[-1].append(line)
            else:
                blocks.append([line])
    return blocks


def _gutters(blocks: list[LineBlock]) -> list[tuple[float, float, float]]:
    """Return gaps between columns of prose that were drawn row by row: place, top and bottom, from the left."""
    starts: dict[int, list[tuple[Line, Line]]] = defaultdict(list)
    lines = [line for block in blocks for line in block if line.horizontal]
    for left, right in pairwise(lines):
        size = max(left.size, right.size)
        if same_row(left, right) and right.x0 - left.x1 > GUTTER * size and not (left.cells or right.cells):
            starts[round(right.x0 / EDGE)].append((left, right))
    found = []
    for pairs in starts.values():
        pairs = [pair for pair in pairs if not pair[1].numbered]
        if len(pairs) < LEAST_ROWS or any(after[1].y0 < before[1].y0 for before, after in pairwise(pairs)):
            continue
        if all(is_prose(list(pairwise(pair[side] for pair in pairs))) for side in (0, 1)):
            place = max(left.x1 for left, _ in pairs) / 2 + min(right.x0 for _, right in pairs) / 2
            height = median(right.y1 - right.y0 for _, right in pairs)
            top, bottom = pairs[0][1].y0 - 0.2 * height, pairs[-1][1].y1
            bottom = max((line.y1 for line in _going_on(lines, bottom, place)), default=bottom)
            found.append((place, top, bottom + 0.2 * height))
    return sorted(found)


def _going_on(lines: list[Line], bottom: float, gutter: float) -> list[Line]:
    """Return the lines of the longer column that stand below the last row of both."""
    more: list[Line] = []
    for line in sorted(lines, key=lambda line: line.y0):
        if line.y0 > bottom - 0.5 * (line.y1 - line.y0):
            if line.x0 < gutter < line.x1 or line.y0 - bottom > 0.6 * (line.y1 - line.y0):
                break
            more.append(line)
            bottom = line.y1
    return more
