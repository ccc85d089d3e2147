"""From the printed lines of pages to paragraphs: rows put together, lines joined.

Knows geometry and nothing of PDF. Blocks are taken in the order in which the file gives them; sorting them by place
interleaves columns.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from ingest.clean import ends_sentence, join_lines, seam, vocabulary
from ingest.document import PARAGRAPH_SEPARATOR
from ingest.print.lines import EDGE, Block, Line, same_row
from ingest.print.margins import numbers_in_place

COLUMN_GAP = 3.0  # in font sizes: a wider gap within a row parts two cells
NUMBER_GAP = 2.0  # the same behind a number of a column of numbers
NARROW = 0.5  # of its column's width: a block without a longer line was not broken to fill it
DROPPED = 2.0  # times the size of the lines beside it: a first letter set so large
CELL = " | "

_FOOTNOTE = re.compile(r"(?:\d{1,3}|[*†‡§])\s?\w")
_BROKEN = re.compile(r"[^\W\d_]{2,}[-‐]$")
_LEADERS = re.compile(r"(?:\s?\.){5,}\s*")
_BULLET = re.compile(r"^(?:[•‣◦▪▫■□●○∙·–—◆➢✓*]\s|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)]\s|\[\d+\]\s)")


@dataclass(frozen=True)
class Sheet:
    """The blocks of one page and its height in points."""

    blocks: list[Block]
    height: float


def laid_out(blocks: Iterable[Block]) -> list[Block]:
    """The blocks of a page as they are meant: no counts of lines, first letters in their words, rows of tables."""
    return _with_empty_cells(map(_rows, _with_drop_caps(numbers_in_place(blocks))))


def _rows(block: Block) -> Block:
    """Put pieces that stand on one baseline together; a wide gap between them becomes a cell border."""
    joined: Block = []
    piece: Line | None = None  # the last one put in, before it was joined
    for line in block:
        if piece and piece.level and line.level and same_row(joined[-1], line):
            last = joined[-1]
            size = max(piece.size, line.size)
            gap = max(line.x0 - piece.x1, piece.x0 - line.x1)
            close = abs(gap) < 0.1 * size and not (piece.spaced or line.led)
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
                spaced=line.spaced,
                cells=cells,
            )
        else:
            joined.append(line)
        piece = line
    return [replace(line, text=_LEADERS.sub(" … ", line.text).strip()) for line in joined]


def _with_empty_cells(blocks: Iterable[Block]) -> list[Block]:
    """Blocks in which rows of a table that lack a cell have an empty one there, as the fullest row above has its cells.

    Else "Died" would be read over what stands in the next column.
    """
    fullest: Line | None = None
    mended: list[Block] = []
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
    """The cells of a row, each in the column that begins or ends where it does; as they are if one is in none."""
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


def _columns(blocks: Iterable[Block]) -> dict[int, float]:
    """Where the columns of a page end: for each left edge the right end of nearly all lines of blocks that begin there.

    A line longer than the others, such as a heading over two columns, does not count.
    """
    ends: dict[int, list[float]] = defaultdict(list)
    for block in blocks:
        ends[round(min(line.x0 for line in block) / EDGE)] += [line.x1 for line in block]
    return {edge: sorted(found)[int(0.9 * (len(found) - 1))] for edge, found in ends.items()}


def _with_drop_caps(blocks: Iterable[Block]) -> list[Block]:
    """Blocks in which a first letter set large stands in the line that it begins, which runs beside it."""
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
    """Joins the lines of pages to paragraphs, with what the whole document's words and spaces tell about it."""

    def __init__(self, sheets: Iterable[Sheet]) -> None:
        lines = [line for sheet in sheets for block in sheet.blocks for line in block]
        self.words = vocabulary(line.text for line in lines)
        hangul = [line for line in lines if re.search("[가-힣]$", line.text)]
        self.trust_spaces = sum(line.spaced for line in hangul) * 10 > len(hangul)

    def page(self, sheet: Sheet) -> str:
        """The text of one page: paragraphs separated by blank lines, lines that must stay apart by line ends."""
        paragraphs: list[list[str]] = []  # each in pieces: joining strings one by one takes for ever on a huge page
        previous: Block = []
        columns = _columns(sheet.blocks)
        for block in sheet.blocks:
            if previous and self._continues(previous, block):
                self._append(paragraphs[-1], previous[-1], block[0])
            else:
                paragraphs.append([block[0].text])
            left, right = min(line.x0 for line in block), max(line.x1 for line in block)
            column = columns[round(left / EDGE)]
            if right - left < NARROW * (column - left):  # lines that are all short: an address, a verse
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

    def bridge(self, first: str, second: str) -> tuple[str, str]:
        """Two pages' texts with a word that was broken between them made whole, on the first, above its footnotes."""
        end = len(first)
        gap = len(PARAGRAPH_SEPARATOR)
        while (start := first.rfind(PARAGRAPH_SEPARATOR, 0, end)) >= 0 and _FOOTNOTE.match(first, start + gap):
            end = start
        rest = re.match(r"[^\W\d_]+[^\w\s]*\s*", second)
        if not _BROKEN.search(first[max(0, end - 80) : end]) or not rest or not second[0].islower():
            return first, second
        return join_lines(first[:end], rest[0].rstrip(), self.words) + first[end:], second[rest.end() :]

    def _append(self, pieces: list[str], before: Line, line: Line) -> None:
        lost, glue = seam(pieces[-1], line.text, self.words, before.spaced, self.trust_spaces)
        pieces[-1] = pieces[-1][: len(pieces[-1]) - lost]
        pieces.append(glue + line.text)

    def _border(self, before: Line, line: Line, left: float, right: float, listed: bool) -> str:
        """What stands between two lines of one block: "paragraph", "line" or "" (they are one).

        left, right: where its column begins and ends; listed: whether an item of a list began above.
        """
        if before.level != line.level or abs(before.size - line.size) > 0.2 * max(before.size, line.size, 1):
            return "paragraph" if min(len(before.text), len(line.text)) > 3 else "line"
        if not line.level:
            return ""
        if (before.mono and line.mono) or " … " in before.text or CELL in before.text or CELL in line.text:
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
        # Had the next word found room, the line was ended on purpose.
        first_word = line.text.split(maxsplit=1)[0]
        average = (line.x1 - line.x0) / max(1, len(line.text))
        if room > (len(first_word) + 1) * average + 2 * size:
            return "paragraph" if ended else "line"
        return ""

    def _continues(self, previous: Block, block: Block) -> bool:
        """Whether a block goes on with the sentence of the one before: over a column's end, a formula, a picture."""
        last, line = previous[-1], block[0]
        if last.level != line.level or last.mono != line.mono or last.mono or ends_sentence(last.text):
            return False
        if (
            abs(last.size - line.size) > 0.1 * max(last.size, 1)
            or CELL in last.text + line.text
            or _BULLET.match(line.text)
        ):
            return False
        if max(one.x1 for one in previous) - last.x1 > 3 * last.size:
            return False  # ended short of its own column
        if line.text[0].islower():
            return len(last.text.split()) >= 3
        # Not to be told by letters: it stands right below, in the same column, and the line above was full.
        height = max(1.0, last.y1 - last.y0)
        return (
            -0.2 * height < line.y0 - last.y1 < height
            and line.x0 - min(one.x0 for one in previous) < 0.5 * line.size
            and max(one.x1 for one in block) - last.x1 < last.size
            and len(last.text) > 12
        )
