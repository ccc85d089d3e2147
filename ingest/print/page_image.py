"""A page of a PDF as it is printed, with a passage marked: for eyes that want to see where words come from.

A passage is marked where its letters stand on the page one after another, whatever lines, hyphens and blanks lie
between them. Where they do not, as on a scan, or stand there more often than in the page's text, nothing is marked.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pymupdf

from ingest.clean import one_line
from ingest.errors import BrokenFile
from ingest.print.pdf import alone_with_mupdf, open_pdf

LARGEST, SHARPEST = 1800, 2.0  # pixels of the longer side, and pixels a point (1/72 inch), at most
MARK = (0.97, 0.80, 0.35)
_NO_LETTER = re.compile(r"[\W_]+")


def picture_of(path: Path, number: int, text: str, start: int, end: int, password: str | None = None) -> bytes:
    """A page as a PNG.

    Args:
        number: of the page, 1-based.
        text: the page's, as it was read; start, end: the characters of it that are marked.

    Raises:
        BrokenFile, PasswordNeeded, WrongPassword.
    """
    with alone_with_mupdf():
        document = open_pdf(path, password)
        try:
            return _drawn(document[number - 1], text, start, end)
        except Exception as error:  # MuPDF's own kinds differ by cause
            raise BrokenFile(f"Page {number} of {path.name} cannot be drawn ({one_line(str(error))[:120]}).") from error
        finally:
            document.close()


def _drawn(page: Any, text: str, start: int, end: int) -> bytes:
    words = [(_letters(word), box) for *box, word, _, _, _ in page.get_text("words")]
    for box in marked(words, text, start, end):
        mark = page.add_highlight_annot(pymupdf.Rect(box))
        mark.set_colors(stroke=MARK)
        mark.update()
    zoom = min(SHARPEST, LARGEST / max(page.rect.width, page.rect.height, 1))
    png: bytes = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom)).tobytes("png")
    return png


def marked(words: Sequence[tuple[str, Any]], text: str, start: int, end: int) -> list[Any]:
    """The boxes of the words that characters `start` to `end` of a page's text are on paper.

    Args:
        words: the letters of each word on the page, and its box.
    """
    printed = "".join(word for word, _ in words)
    ends = list(accumulate(len(word) for word, _ in words))
    read = _letters(text)
    found: list[Any] = []
    at = start
    for line in text[start:end].splitlines(keepends=True):
        sought, before = _letters(line), len(_letters(text[:at]))
        at += len(line)
        there, places = list(_occurrences(read, sought)), list(_occurrences(printed, sought))
        if before not in there or len(places) != len(there):
            continue
        first = places[there.index(before)]
        found += [box for _, box in words[bisect_right(ends, first) : bisect_right(ends, first + len(sought) - 1) + 1]]
    return found


def _letters(text: str) -> str:
    """Letters and digits alone, without regard to case, ligatures and accents: print and text differ in them."""
    return _NO_LETTER.sub("", unicodedata.normalize("NFKD", text)).casefold()


def _occurrences(text: str, sought: str) -> Iterator[int]:
    at = text.find(sought) if sought else -1
    while at >= 0:
        yield at
        at = text.find(sought, at + 1)
