"""Tables of a page as rows: from rules drawn between cells, or from columns drawn one after the other.

PyMuPDF's `find_tables` takes 0.3 to 0.7 seconds a page, with tables or without, and loses blanks between words. The
rules alone are there in milliseconds, and they say to which cell a line belongs.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ingest.clean import join_lines
from ingest.print.lines import CELL, EDGE, Line, LineBlock, rows_of, runs_on
from ingest.table import is_layout

THIN = 3.0  # points; a wider rectangle is no rule
SHORT = 6.0  # points; a rule is longer, made of dashes or not
NEAR = 3.0  # points; rules that are nearer touch each other
MOST_RULES = 400  # of one direction on a page; more are a drawing
MOST_PATHS = 5_000  # drawn on a page
FULL = 0.4  # share of the cells of a table that have words, at least
CROSSING = 0.1  # share of the lines in a table that may cross its rules
LEAST_ROWS = 3  # of a table without rules
PARTED = 1.2  # times the least step between lines; a wider one parts rows of a table without rules
CELL_LENGTH, CELL_LINES = 60, 5  # characters on average, and lines at most, of a cell without rules
GAP = 1.0  # font sizes between the columns of a table without rules, at least
_SAID = re.compile(r"[^\W\d_]{3}|\d\d")  # the first cell of a row has this; labels of a figure do not
_NUMBER = re.compile(r"[^\w]*\d[\W\d]*(?:[A-Za-z]{1,2}|%)?\W*")


@dataclass(frozen=True)
class Rule:
    """A line drawn across or along a page: its place, and its start and end in the other direction, in points."""

    at: float
    start: float
    end: float

    def reaches(self, place: float) -> bool:
        """Return whether the rule is there at a place along it."""
        return self.start - NEAR <= place <= self.end + NEAR


@dataclass(frozen=True)
class Grid:
    """The rules of a table. `across` lie between rows, `along` between columns."""

    across: tuple[Rule, ...]
    along: tuple[Rule, ...]
    rows: tuple[float, ...]  # y of the borders of rows
    columns: tuple[float, ...]  # x of the borders of columns; none if only rows are parted

    def holds(self, x: float, y: float) -> bool:
        """Return whether a point lies within the table."""
        left, right = _ends(self.across)
        return left - NEAR <= x <= right + NEAR and self.rows[0] <= y <= self.rows[-1]

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Return the row and the column of a point; the first ones if its cell takes several."""
        row, column = bisect_right(self.rows, y) - 1, max(0, bisect_right(self.columns, x) - 1)
        while self.along and column > 0 and not _is_parted(self.along, self.columns[column], y):
            column -= 1
        while row > 0 and not _is_parted(self.across, self.rows[row], x):
            row -= 1
        return row, column

    def crossed(self, start: float, end: float, y: float) -> list[float]:
        """Return the places between two at which rules part columns."""
        return [rule.at for rule in self.along if start < rule.at < end and rule.start <= y <= rule.end]


def grids(page: Any) -> list[Grid]:
    """Return the tables whose rules are drawn on a page of MuPDF's."""
    drawings = page.get_cdrawings()
    across, along = _rules(drawings) if len(drawings) <= MOST_PATHS else ([], [])
    if len(across) < 2 or max(len(across), len(along)) > MOST_RULES:
        return []
    found = []
    for rows, columns in _touching(across, along):
        heights = _places([*(rule.at for rule in rows), *_ends(columns)])
        widths = _places([*(rule.at for rule in columns), *_ends(rows)]) if columns else ()
        if len(widths) < 3:  # a frame at most
            columns, widths = [], ()
        if len(heights) > 2 or len(widths) > 3:
            found.append(Grid(tuple(rows), tuple(columns), heights, widths))
    return found


def _ends(rules: Sequence[Rule]) -> tuple[float, ...]:
    """Return the outermost ends of rules."""
    return (min(rule.start for rule in rules), max(rule.end for rule in rules)) if rules else ()


def _is_parted(rules: Iterable[Rule], border: float, place: float) -> bool:
    """Return whether a rule is drawn at a border, at a place along it."""
    return any(_same(rule.at, border) and rule.reaches(place) for rule in rules)


def _same(place: float, other: float) -> bool:
    return abs(place - other) <= NEAR


def _places(found: Iterable[float]) -> tuple[float, ...]:
    """Return places in order, those that are near each other once."""
    places: list[float] = []
    for place in sorted(found):
        if not places or not _same(places[-1], place):
            places.append(place)
    return tuple(places)


def _rules(drawings: Iterable[dict[str, Any]]) -> tuple[list[Rule], list[Rule]]:
    """Return the rules across and along a page: lines, thin rectangles, and the edges of outlined ones."""
    across, along = list[Rule](), list[Rule]()

    def add(x0: float, y0: float, x1: float, y1: float) -> None:
        if abs(y1 - y0) < min(THIN, abs(x1 - x0)):
            across.append(Rule((y0 + y1) / 2, min(x0, x1), max(x0, x1)))
        elif abs(x1 - x0) < min(THIN, abs(y1 - y0)):
            along.append(Rule((x0 + x1) / 2, min(y0, y1), max(y0, y1)))

    for drawing in drawings:
        for kind, *points in drawing["items"]:
            if kind == "l":
                add(*points[0], *points[1])
            elif kind == "re":
                x0, y0, x1, y1 = points[0]
                if min(abs(x1 - x0), abs(y1 - y0)) < THIN:
                    add(x0, y0, x1, y1)
                elif "s" in drawing["type"]:
                    for edge in ((x0, y0, x1, y0), (x0, y1, x1, y1), (x0, y0, x0, y1), (x1, y0, x1, y1)):
                        add(*edge)
    return _joined(across), _joined(along)


def _joined(rules: list[Rule]) -> list[Rule]:
    """Join the rules that go on in each other."""
    joined: list[Rule] = []
    for rule in sorted(rules, key=lambda rule: (round(rule.at), rule.start)):
        last = joined[-1] if joined else None
        if last and abs(last.at - rule.at) < THIN / 2 and rule.start <= last.end + NEAR:
            joined[-1] = replace(last, end=max(last.end, rule.end))
        else:
            joined.append(rule)
    return [rule for rule in joined if rule.end - rule.start > SHORT]


def _touching(across: list[Rule], along: list[Rule]) -> Iterator[tuple[list[Rule], list[Rule]]]:
    """Yield the rules that touch each other. Rules across that touch none along go together if they end alike."""
    groups: list[tuple[dict[Rule, None], list[Rule]]] = []  # dictionaries keep their order
    for column in along:
        met = dict.fromkeys(rule for rule in across if rule.reaches(column.at) and column.reaches(rule.at))
        apart, columns = [], list[Rule]()
        for group in groups:
            if met.keys().isdisjoint(group[0]):
                apart.append(group)
            else:
                met |= group[0]
                columns += group[1]
        groups = [*apart, (met, [*columns, column])]
    taken = {rule for rows, _ in groups for rule in rows}
    yield from ((list(rows), columns) for rows, columns in groups if rows)
    ends: dict[tuple[int, int], list[Rule]] = defaultdict(list)
    for rule in across:
        if rule not in taken:
            ends[round(rule.start / NEAR), round(rule.end / NEAR)].append(rule)
    yield from ((rows, []) for rows in ends.values())


def split_at_rules(page: dict[str, Any], tables: Sequence[Grid]) -> None:
    """Split the lines of a page in MuPDF's "rawdict" form where a rule stands between two letters."""
    for block in page["blocks"]:
        if "lines" in block:
            block["lines"] = [part for line in block["lines"] for part in _split(line, tables)]


def _split(line: dict[str, Any], tables: Sequence[Grid]) -> list[dict[str, Any]]:
    x0, y0, x1, y1 = line["bbox"]
    y = (y0 + y1) / 2
    places = sorted(place for grid in tables if grid.holds((x0 + x1) / 2, y) for place in grid.crossed(x0, x1, y))
    if not places or line["dir"][0] < 0.99:
        return [line]
    parts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for span in line["spans"]:
        chars: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for each in span["chars"]:
            chars[bisect_right(places, (each["bbox"][0] + each["bbox"][2]) / 2)].append(each)
        for number, found in chars.items():
            parts[number].append({**span, "chars": found, "origin": found[0]["origin"]})
    split = []
    for number in sorted(parts):
        seen = [e["bbox"] for span in parts[number] for e in span["chars"] if not e["c"].isspace()]
        if seen:
            box = (min(b[0] for b in seen), min(b[1] for b in seen), max(b[2] for b in seen), max(b[3] for b in seen))
            split.append({**line, "spans": parts[number], "bbox": box})
    return split


def with_tables(blocks: list[LineBlock], tables: Iterable[Grid]) -> list[LineBlock]:
    """Return blocks with every table in one block, a line for each of its rows."""
    for grid in tables:
        lines = [
            line
            for block in blocks
            for line in block
            if line.horizontal and not line.cells and grid.holds((line.x0 + line.x1) / 2, (line.y0 + line.y1) / 2)
        ]
        if ruled := _ruled_rows(lines, grid):
            blocks = _put(blocks, lines, ruled)
    for cells in _aligned(blocks):
        blocks = _put(
            blocks, [line for row in cells for cell in row for line in cell], [row_line(row) for row in cells]
        )
    return blocks


def _put(blocks: list[LineBlock], lines: Iterable[Line], rows: LineBlock) -> list[LineBlock]:
    """Put a table where the first of its lines was."""
    ids = {id(line) for line in lines}
    put: list[LineBlock] = []
    placed = False
    for block in blocks:
        kept: LineBlock = []
        for line in block:
            if id(line) not in ids:
                kept.append(line)
            elif not placed:
                put += [kept, rows] if kept else [rows]
                kept, placed = [], True
        if kept:
            put.append(kept)
    return put


def row_line(cells: Sequence[Sequence[Line]], left: Sequence[float] = ()) -> Line:
    """Return a row of a table as one line. left: where each column begins, for cells without words."""
    lines = [line for cell in cells for line in cell]
    texts, spans = [], []
    for number, cell in enumerate(cells):
        text = ""
        for line in sorted(cell, key=lambda line: (round(line.y0 / 4), line.x0)):
            text = join_lines(text, line.text, set())
        texts.append(text.replace(CELL, " / "))
        place = left[number] if left else 0.0
        spans.append((min((line.x0 for line in cell), default=place), max((line.x1 for line in cell), default=place)))
    while texts and not texts[-1]:
        del texts[-1], spans[-1]
    return replace(
        max(lines, key=lambda line: len(line.text)),
        text=CELL.join(texts),
        x0=min(line.x0 for line in lines),
        y0=min(line.y0 for line in lines),
        x1=max(line.x1 for line in lines),
        y1=max(line.y1 for line in lines),
        monospaced=False,
        cells=tuple(spans),
    )


def _ruled_rows(lines: list[Line], grid: Grid) -> LineBlock:
    """Return the rows of a table with rules; none if it is no table."""
    if not grid.columns:
        grid = replace(grid, columns=_columns_of(lines))
    if len(grid.columns) < 2 or len(lines) < 4 or len(lines) > 5_000:
        return []
    crossing = sum(bool(grid.crossed(line.x0 + NEAR, line.x1 - NEAR, (line.y0 + line.y1) / 2)) for line in lines)
    if crossing > CROSSING * len(lines):
        return []
    bands: dict[int, dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        x, y = (line.x0 + line.x1) / 2, (line.y0 + line.y1) / 2
        row, column = grid.cell(x, y)
        bands[row][column].append(line)
    rows = [row for number in sorted(bands) for row in _band_rows(bands[number], len(grid.rows) - 1)]
    used = sorted({column for row in rows for column in row})
    texts = [[" ".join(line.text for line in row.get(column, ())) for column in used] for row in rows]
    filled = sum(bool(text) for row in texts for text in row)
    data = sum(sum(map(bool, row)) >= 2 for row in texts)
    said = sum(bool(_SAID.search(text)) for row in texts for text in row)
    if said < 0.5 * filled and filled < 0.9 * len(used) * len(rows):  # labels of a plot
        return []
    if len(used) < 2 or data < 2 or filled < FULL * len(used) * len(rows) or is_layout(texts, headed=False):
        return []
    return [
        row_line([row.get(column, []) for column in used], [grid.columns[column] for column in used]) for row in rows
    ]


def _columns_of(lines: list[Line]) -> tuple[float, ...]:
    """Return where columns begin, in a table that only has rules between its rows."""
    width = max((line.x1 for line in lines), default=0.0) - min((line.x0 for line in lines), default=0.0)
    starts: list[float] = []
    reached = float("-inf")
    for line in sorted(lines, key=lambda line: line.x0):
        if line.x1 - line.x0 < width / 2:
            if line.x0 > reached + GAP * line.size / 2:
                starts.append(line.x0 - 1)
            reached = max(reached, line.x1)
    return tuple(starts)


def _band_rows(cells: dict[int, list[Line]], bands: int) -> list[dict[int, list[Line]]]:
    """Return the rows between two rules: one, or as many as base lines that the cells share.

    bands: how many the table has. Rules between all rows leave one row in each.
    """
    lines = sorted((line for cell in cells.values() for line in cell), key=lambda line: line.y0 + line.y1)
    rows = rows_of(lines)
    full = [cell for cell in cells.values() if len(cell) >= 0.8 * len(rows)]
    run_on = any(
        runs_on(line.text.ljust(20, "."), after.text)
        for cell in full
        for line, after in pairwise(sorted(cell, key=lambda line: line.y0))
        if not _NUMBER.fullmatch(line.text)
    )
    numbers = sum(sum(bool(_NUMBER.fullmatch(line.text)) for line in cell) >= 0.6 * len(cell) for cell in full)
    if len(rows) < 2 or len(full) < 2 or (run_on and not numbers) or (bands > 2 and (len(rows) < 4 or not numbers)):
        return [cells]
    found = []
    for row in rows:
        ids = {id(line) for line in row}
        found.append(
            {number: kept for number, cell in cells.items() if (kept := [line for line in cell if id(line) in ids])}
        )
    return found


def _aligned(blocks: list[LineBlock]) -> Iterator[list[list[LineBlock]]]:
    """Yield tables without rules, as rows of cells of lines, if their drawing order would tear them apart.

    That is so if they were drawn column by column, or if cells take several lines.
    """
    drawn = {id(line): at for at, line in enumerate(line for block in blocks for line in block)}
    level = (line for block in blocks for line in block if line.horizontal and not line.cells)
    for cells in _side_by_side(rows_of(sorted(level, key=lambda line: line.y0 + line.y1))):
        if _is_table(cells, drawn):
            yield cells
        elif whole := _with_whole_cells(cells):
            yield whole


def _side_by_side(rows: Iterable[LineBlock]) -> Iterator[list[list[LineBlock]]]:
    """Yield runs of rows in columns: for each row the lines in each column, one at most."""
    run: list[LineBlock] = []
    columns: list[tuple[float, float]] = []
    for row in [*rows, []]:
        row = sorted(row, key=lambda line: line.x0)
        near = bool(run and row) and row[0].y0 - run[-1][0].y1 < 1.5 * (row[0].y1 - row[0].y0)
        if near and (widened := _widened(columns, row)):
            run.append(row)
            columns = widened
            continue
        if len(run) >= LEAST_ROWS:
            starts = [left for left, _ in columns]
            cells = [[list[Line]() for _ in columns] for _ in run]
            for placed, lines in zip(cells, run, strict=True):
                for line in lines:
                    placed[bisect_right(starts, line.x0 + 0.1) - 1].append(line)
            yield cells
        run, columns = [], []
        if len(row) > 1 and all(right.x0 - left.x1 > GAP * left.size for left, right in pairwise(row)):
            run, columns = [row], [(line.x0, line.x1) for line in row]


def _widened(columns: list[tuple[float, float]], row: LineBlock) -> list[tuple[float, float]]:
    """Return columns that hold the lines of one more row; none if a line takes two, or two take one."""
    columns, taken = list(columns), set[int]()
    for line in row:
        over = [at for at, (left, right) in enumerate(columns) if line.x0 < right and left < line.x1]
        if len(over) != 1 or over[0] in taken:
            return []
        taken.add(over[0])
        left, right = columns[over[0]]
        columns[over[0]] = min(left, line.x0), max(right, line.x1)
    apart = all(after[0] - before[1] > GAP * row[0].size for before, after in pairwise(columns))
    return columns if apart else []


def _is_table(rows: list[list[LineBlock]], drawn: dict[int, int]) -> bool:
    """Return whether rows are those of a table drawn by columns, and no columns of prose or of an index."""
    if any(len(cell) != 1 for row in rows for cell in row):
        return False
    columns = [[cell[0] for cell in column] for column in zip(*rows, strict=True)]
    order = [drawn[id(line)] for column in columns for line in column]
    long = any(sum(len(line.text.split()) for line in column) > 4 * len(column) for column in columns[1:])
    if order != sorted(order) or long:
        return False
    numbers = [sum(bool(_NUMBER.fullmatch(line.text)) for line in column[1:]) for column in columns[1:]]
    words = [line.text.casefold() for column in columns for line in column]
    return max(numbers) >= 0.6 * (len(rows) - 1) or (len(columns) > 2 and words != sorted(words))


def _with_whole_cells(rows: list[list[LineBlock]]) -> list[list[LineBlock]]:
    """Return rows whose cells have all their lines, parted at wider gaps; none if these are no rows of a table."""
    tops = [min(line.y0 for cell in row for line in cell) for row in rows]
    steps = [below - top for top, below in pairwise(tops)]
    whole, first = [rows[0]], {id(line) for cell in rows[0] for line in cell}
    for row, step in zip(rows[1:], steps, strict=True):
        if step > PARTED * min(steps):
            whole.append(row)
            first.update(id(line) for cell in row for line in cell)
        else:
            whole[-1] = [[*cell, *more] for cell, more in zip(whole[-1], row, strict=True)]
    if not LEAST_ROWS <= len(whole) < len(rows):
        return []
    cells = [cell for row in whole for cell in row if cell]
    if not all(row[0] and sum(map(bool, row)) > 1 for row in whole) or not all(id(cell[0]) in first for cell in cells):
        return []
    short = sum(len(line.text) for cell in cells for line in cell) <= CELL_LENGTH * len(cells)
    tall = max(map(len, cells)) > CELL_LINES
    heads = [row[0][-1].text for row in whole]
    told = sum(bool(_SAID.search(text)) for text in heads) > 0.6 * len(heads)
    prose = any(runs_on(text, after[0][0].text) for text, after in zip(heads, whole[1:], strict=False))
    even = all(_share_an_edge(column) for column in zip(*rows, strict=True))
    return whole if short and told and even and not tall and not prose else []


def _share_an_edge(column: Iterable[LineBlock]) -> bool:
    """Return whether all lines of a column begin or end at one place."""
    lines = [line for cell in column for line in cell]
    return any(
        max(places) - min(places) < EDGE for places in ([line.x0 for line in lines], [line.x1 for line in lines])
    )
