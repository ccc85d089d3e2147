"""Paragraphs from the lines of printed pages: rows assembled, lines joined.

This module knows geometry and nothing of PDF. Blocks keep the file's order; sorting them by place would interleave
columns.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from ingest.clean import ends_sentence, join_lines, seam, vocabulary
from ingest.document import PARAGRAPH_SEPARATOR
from ingest.print.lines import EDGE, Line, LineBlock, same_row
from ingest.print.margins import place_margin_numbers

COLUMN_GAP = 3.0  # in font sizes; a wider gap within a row separates two cells
NUMBER_GAP = 2.0  # the same after a number in a column of numbers
NARROW = 0.5  # of the column's width; a block of shorter lines was not wrapped
DROPPED = 2.0  # times the size of the lines beside it; the least size of a drop cap
CELL = " | "

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
    begun = {
        id(line): letter
        for letter, line in pairwise(line for block in blocks for line in block)
        if len(letter.text) == 1
        and letter.text.isalpha()
        and letter.size >= DROPPED * line.size
        and line.x0 >= letter.x1 - line.size
        and letter.y0 <= line.y1
        and line.y0 <= letter.y1
        and line.text[0].isalpha()
    }
    letters = {id(letter) for letter in begun.values()}
    mended = (
        [replace(line, text=begun[id(line)].text + line.text) if id(line) in begun else line for line in block]
        for block in blocks
    )
    kept = ([line for line in block if id(line) not in letters] for block in mended)
    return [block for block in kept if block]


class Paragrapher:
    """Joins the lines of pages to paragraphs, guided by the words and spaces of the whole document."""

    def __init__(self, pages: Iterable[PrintedPage]) -> None:
        lines = [line for page in pages for block in page.blocks for line in block]
        self.words = vocabulary(line.text for line in lines)
        hangul = [line for line in lines if re.search("[가-힣]$", line.text)]
        self.trust_spaces = sum(line.ends_with_space for line in hangul) * 10 > len(hangul)

    def page(self, page: PrintedPage) -> str:
        """Return the text of a page: blank lines between paragraphs, line ends between lines that stay apart."""
        paragraphs: list[list[str]] = []  # lists of pieces, as joining strings one by one is quadratic
        previous: LineBlock = []
        columns = _columns(page.blocks)
        for block in page.blocks:
            if previous and self._continues(previous, block):
                self._append(paragraphs[-1], previous[-1], block[0])
            else:
                paragraphs.append([block[0].text])
            left, right = min(line.x0 for line in block), max(line.x1 for line in block)
            column = columns[round(left / EDGE)]
            if right - left < NARROW * (column - left):  # all lines are short: an address, a verse
                right = column
            listed = False
            for before, line in pairwise(block):
                listed = listed or bool(_BULLET.match(before.text))
                match self._border(before, line, left, right, listed):
                    case "paragraph":
                        paragraphs.append([line.text])
                    case "line":
                        paragraphs[-1].append("\n" + line.text)
                    case _:
                        self._append(paragraphs[-1], before, line)
            previous = block
        return PARAGRAPH_SEPARATOR.join("".join(pieces) for pieces in paragraphs)

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
