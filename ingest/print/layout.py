"""Paragraphs from the lines of printed pages: rows assembled, lines joined.

This module knows geometry and nothing of PDF. Blocks come in reading order.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median

from ingest.clean import ends_sentence, join_lines, seam, vocabulary
from ingest.document import PARAGRAPH_SEPARATOR
from ingest.print.line_ends import Seam, share_of_beginnings, with_meant_ends
from ingest.print.lines import CELL, EDGE, Line, LineBlock, same_row
from ingest.print.margins import place_margin_numbers

COLUMN_GAP = 3.0  # in font sizes; a wider gap within a row separates two cells
NUMBER_GAP = 2.0  # the same after a number in a column of numbers
NARROW = 0.5  # of the column's width; a block of shorter lines was not wrapped
DROPPED = 2.0  # times the size of the lines beside it; the least size of a drop cap

_FOOTNOTE = re.compile(r"(?:\d{1,3}|[*†‡§])\s?\w")
_BROKEN = re.compile(r"[^\W\d_]{2,}[-‐]$")
_LEADERS = re.compile(r"(?:\s?\.){5,}\s*")
_BULLET = re.compile(r"^(?:[•‣◦▪▫■□●○∙·–—◆➢✓*]\s|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)]\s|\[\d+\]\s)")


@dataclass(frozen=True)
class PrintedPage:
    """The blocks of one page and its height in points."""

    blocks: list[LineBlock]
    height: float


def join_rows(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """Return the blocks of a page without line numbers, with drop caps in their words and table rows in one line."""
    return _with_empty_cells(map(_rows, _with_drop_caps(place_margin_numbers(blocks))))


def _rows(block: LineBlock) -> LineBlock:
    """Join the pieces on one baseline; a wide gap between them becomes a cell border."""
    joined: LineBlock = []
    piece: Line | None = None  # the last piece, before it was joined
    for line in block:
        if piece and piece.horizontal and line.horizontal and same_row(joined[-1], line):
            last = joined[-1]
            size = max(piece.size, line.size)
            gap = max(line.x0 - piece.x1, piece.x0 - line.x1)
            close = abs(gap) < 0.1 * size and not (piece.ends_with_space or line.begins_with_space)
            border = NUMBER_GAP if piece.numbered or line.numbered else COLUMN_GAP
            glue = CELL if gap > border * size else "" if close else " "
            cells = last.cells or ((last.x0, last.x1),)
            if glue == CELL:
                cells = (*cells, (line.x0, line.x1))
            else:
                cells = (*cells[:-1], (min(cells[-1][0], line.x0), max(cells[-1][1], line.x1)))
            joined[-1] = replace(
                last if len(last.text) >= len(line.text) else line,
                text=last.text + glue + line.text,
                x0=min(last.x0, line.x0),
                y0=min(last.y0, line.y0),
                x1=max(last.x1, line.x1),
                y1=max(last.y1, line.y1),
                ends_with_space=line.ends_with_space,
                cells=cells,
            )
        else:
            joined.append(line)
        piece = line
    return [replace(line, text=_LEADERS.sub(" … ", line.text).strip()) for line in joined]


def _with_empty_cells(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """Fill the missing cells of table rows, by the columns of the fullest row above.

    Otherwise a value would be read under the heading of the next column.
    """
    fullest: Line | None = None
    mended: list[LineBlock] = []
    for block in blocks:
        mended.append([])
        for line in block:
            if fullest and 1 < len(line.cells) < len(fullest.cells):
                line = replace(line, text=_spread(line, fullest))
            elif len(line.cells) > 2:
                fullest = line
            mended[-1].append(line)
    return mended


def _spread(row: Line, fullest: Line) -> str:
    """Return a row with empty cells for the columns it skips; unchanged if one of its cells fits no column."""
    texts, columns = row.text.split(CELL), iter(fullest.cells)
    if len(texts) != len(row.cells):  # its first cell is empty
        return row.text
    spread: list[str] = []
    for text, (start, end) in zip(texts, row.cells, strict=True):
        for first, last in columns:
            if min(abs(first - start), abs(last - end)) < row.size:
                spread.append(text)
                break
            if not any(begin < last and first < stop for begin, stop in row.cells):
                spread.append("")
        else:
            return row.text
    return CELL.join(spread)


def _columns(blocks: Iterable[LineBlock]) -> dict[int, float]:
    """Return the right end of each column by its left edge: that of nearly all lines that begin there.

    A longer line, such as a heading over two columns, does not count.
    """
    ends: dict[int, list[float]] = defaultdict(list)
    for block in blocks:
        ends[round(min(line.x0 for line in block) / EDGE)] += [line.x1 for line in block]
    return {edge: sorted(found)[int(0.9 * (len(found) - 1))] for edge, found in ends.items()}


def _with_drop_caps(blocks: Iterable[LineBlock]) -> list[LineBlock]:
    """Move a drop cap into the line that it begins, which runs beside it."""
    blocks = list(blocks)
    lines = [line for block in blocks for line in block]
    begun: dict[int, Line] = {}
    for letter in lines:
        if len(letter.text) == 1 and letter.text.isalpha() and letter.horizontal:
            beside = (line for line in lines if _begins_beside(letter, line))
            if first := min(beside, key=lambda line: (line.y0, line.x0), default=None):
                begun[id(first)] = letter
    letters = {id(letter) for letter in begun.values()}
    mended = (
        [replace(line, text=begun[id(line)].text + line.text) if id(line) in begun else line for line in block]
        for block in blocks
    )
    kept = ([line for line in block if id(line) not in letters] for block in mended)
    return [block for block in kept if block]


def _next_column(previous: LineBlock, block: LineBlock) -> bool:
    """Return whether a vertical line of print goes on in the next one to the left, which begins as high."""
    size = max(line.size for line in previous)
    top, bottom = min(line.y0 for line in previous), max(line.y1 for line in previous)
    gap = min(line.x0 for line in previous) - max(line.x1 for line in block)
    full = bottom > max(line.y1 for line in block) - 1.5 * size
    return -0.2 * size < gap < 2 * size and abs(min(line.y0 for line in block) - top) < 0.5 * size and full


def _is_same_program(previous: LineBlock, block: LineBlock) -> bool:
    """Return whether two blocks are lines of one program without a blank line between them."""
    last, first = previous[-1], block[0]
    together = 0 <= first.y0 - last.y0 < 1.6 * max(last.y1 - last.y0, 1.0)
    return last.monospaced and first.monospaced and last.horizontal and first.horizontal and together


def _with_indents(blocks: list[LineBlock]) -> list[LineBlock]:
    """Put blanks before the lines of programs by their place: typewriter letters are all as wide."""
    code = [line for block in blocks for line in block if line.monospaced and line.horizontal and CELL not in line.text]
    if len(code) < 2:
        return blocks
    width = median((line.x1 - line.x0) / len(line.text) for line in code)
    lefts = [min(line.x0 for line in run) for run in _code_runs(blocks)]
    mended, number = [], 0
    for block in blocks:
        if not all(line.monospaced and line.horizontal for line in block):
            mended.append(block)
            continue
        left = lefts[number]
        number += 1
        mended.append(
            [replace(line, text=" " * min(round((line.x0 - left) / width), 80) + line.text) for line in block]
        )
    return mended


def _code_runs(blocks: list[LineBlock]) -> Iterator[LineBlock]:
    """Yield, for each block of a program, the lines of all blocks of that program: those that follow one another."""
    for is_code, run in groupby(blocks, lambda block: all(line.monospaced and line.horizontal for line in block)):
        whole = list(run)
        if is_code:
            yield from ([line for block in whole for line in block] for _ in whole)


def _begins_beside(letter: Line, line: Line) -> bool:
    """Return whether a line of smaller print begins directly to the right of a drop cap."""
    return (
        letter.size >= DROPPED * line.size
        and -line.size <= line.x0 - letter.x1 <= letter.size
        and letter.y0 <= line.y1
        and line.y0 <= letter.y1
        and line.text[0].isalpha()
    )


class Paragrapher:
    """Joins the lines of pages to paragraphs, guided by the words and spaces of the whole document."""

    def __init__(self, pages: Iterable[PrintedPage]) -> None:
        lines = [line for page in pages for block in page.blocks for line in block]
        self.words = vocabulary(line.text for line in lines)
        self.share_of_beginnings = share_of_beginnings(lines)
        hangul = [line for line in lines if re.search("[가-힣]$", line.text)]
        self.trust_spaces = sum(line.ends_with_space for line in hangul) * 10 > len(hangul)

    def page(self, page: PrintedPage) -> str:
        """Return the text of a page: blank lines between paragraphs, line ends between lines that stay apart."""
        blocks = _with_indents(page.blocks)
        paragraphs = [[blocks[0][0].text]] if blocks else []  # lists of pieces: joining strings is quadratic
        for pair in with_meant_ends(self._seams(blocks), self.share_of_beginnings):
            match pair.border:
                case "paragraph":
                    paragraphs.append([pair.line.text])
                case "line":
                    paragraphs[-1].append("\n" + pair.line.text)
                case _:
                    self._append(paragraphs[-1], pair.before, pair.line)
        return PARAGRAPH_SEPARATOR.join("".join(pieces) for pieces in paragraphs)

    def _seams(self, blocks: list[LineBlock]) -> Iterator[Seam]:
        """Yield all pairs of lines that follow one another, with their borders."""
        columns = _columns(blocks)
        previous: LineBlock = []
        for block in blocks:
            if previous:
                goes_on = self._continues(previous, block)
                listed = previous[0].item and block[0].item
                apart = "line" if listed or _is_same_program(previous, block) else "paragraph"
                yield Seam(previous[-1], block[0], "" if goes_on else apart)
            left, right = min(line.x0 for line in block), max(line.x1 for line in block)
            column = columns[round(left / EDGE)]
            if right - left < NARROW * (column - left):  # all lines are short: an address, a verse
                right = column
            listed = False
            for before, line in pairwise(block):
                listed = listed or bool(_BULLET.match(before.text))
                yield Seam(before, line, self._border(before, line, left, right, listed))
            previous = block

    def join_across_pages(self, first: str, second: str) -> tuple[str, str]:
        """Return two pages' texts with a word broken between them made whole on the first, above its footnotes."""
        end = len(first)
        gap = len(PARAGRAPH_SEPARATOR)
        while (start := first.rfind(PARAGRAPH_SEPARATOR, 0, end)) >= 0 and _FOOTNOTE.match(first, start + gap):
            end = start
        rest = re.match(r"[^\W\d_]+[^\w\s]*\s*", second)
        if not _BROKEN.search(first[max(0, end - 80) : end]) or not rest or not second[0].islower():
            return first, second
        return join_lines(first[:end], rest[0].rstrip(), self.words) + first[end:], second[rest.end() :]

    def _append(self, pieces: list[str], before: Line, line: Line) -> None:
        lost, glue = seam(pieces[-1], line.text, self.words, before.ends_with_space, self.trust_spaces)
        pieces[-1] = pieces[-1][: len(pieces[-1]) - lost]
        pieces.append(glue + line.text)

    def _border(self, before: Line, line: Line, left: float, right: float, listed: bool) -> str:
        """Return the border between two lines of a block: "paragraph", "line", or "" if they are one.

        Args:
            before: the line above.
            line: the line below.
            left: where the column begins, in points.
            right: where the column ends.
            listed: a list item began above.
        """
        if before.horizontal != line.horizontal or abs(before.size - line.size) > 0.2 * max(before.size, line.size, 1):
            return "paragraph" if min(len(before.text), len(line.text)) > 3 else "line"
        if not line.horizontal:
            return ""
        if (before.monospaced and line.monospaced) or " … " in before.text or CELL in before.text or CELL in line.text:
            return "line"
        if _BULLET.match(line.text) and (listed or not line.text[0].isalnum() or ends_sentence(before.text)):
            return "paragraph" if ends_sentence(before.text) else "line"
        size = line.size
        ended = ends_sentence(before.text)
        rtl = bool(re.search("[\u0590-\u08ff]", line.text))
        indent = right - line.x1 if rtl else line.x0 - left
        indent_before = right - before.x1 if rtl else before.x0 - left
        room = before.x0 - left if rtl else right - before.x1
        if ended and indent > 0.8 * size and indent_before < 0.4 * size and (not rtl or indent < 4 * size):
            return "paragraph"
        if _BROKEN.search(before.text) and line.text[0].islower():
            return ""
        # The next word would have fitted, so the line end is meant.
        first_word = line.text.split(maxsplit=1)[0]
        average = (line.x1 - line.x0) / max(1, len(line.text))
        if room > (len(first_word) + 1) * average + 2 * size:
            return "paragraph" if ended else "line"
        return ""

    def _continues(self, previous: LineBlock, block: LineBlock) -> bool:
        """Return whether a block continues the sentence of the block before, over a column end, formula or picture."""
        last, line = previous[-1], block[0]
        if not last.horizontal and not line.horizontal:
            return _next_column(previous, block)
        if (
            last.horizontal != line.horizontal
            or last.monospaced != line.monospaced
            or last.monospaced
            or ends_sentence(last.text)
        ):
            return False
        if (
            abs(last.size - line.size) > 0.1 * max(last.size, 1)
            or CELL in last.text + line.text
            or line.item
            or _BULLET.match(line.text)
        ):
            return False
        if max(one.x1 for one in previous) - last.x1 > 3 * last.size:
            return False  # the last line is shorter than its column
        if line.text[0].islower():
            return len(last.text.split()) >= 3
        # The letters do not tell, so geometry decides: right below, in the same column, after a full line.
        height = max(1.0, last.y1 - last.y0)
        return (
            -0.2 * height < line.y0 - last.y1 < height
            and line.x0 - min(one.x0 for one in previous) < 0.5 * line.size
            and max(one.x1 for one in block) - last.x1 < last.size
            and len(last.text) > 12
        )
