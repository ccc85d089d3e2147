"""PDF pages with passages marked, as images and in a copy of the file, for people who want to see sources.

A passage is marked where its letters follow one another on the page, whatever lines, hyphens and blanks lie between
them. Nothing is marked if they do not, as on a scan, or if they occur more often than in the page's text.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pymupdf

from ingest.clean import one_line
from ingest.errors import BrokenFile
from ingest.print.mupdf import alone_with_mupdf, open_pdf

LARGEST, SHARPEST = 1800, 2.0  # at most: pixels of the longer side, and pixels a point (1/72 inch)
MARK = (0.97, 0.80, 0.35)
SIGN_AT = (24, 24)  # points from the upper left corner
_NO_LETTER = re.compile(r"[\W_]+")


def page_image(path: Path, number: int, text: str, start: int, end: int, password: str | None = None) -> bytes:
    """Render a page as a PNG.

    Args:
        path: the PDF.
        number: of the page, 1-based.
        text: the page's, as it was ingested.
        start: the first character of `text` to mark.
        end: the end of the marked characters, exclusive.
        password: for an encrypted PDF.

    Raises:
        BrokenFile: the page cannot be drawn.
        PasswordNeeded, WrongPassword: the PDF is encrypted.
    """
    with alone_with_mupdf():
        document = open_pdf(path, password)
        try:
            return _drawn(document[number - 1], text, start, end)
        except Exception as error:  # MuPDF raises many kinds
            raise BrokenFile(f"Page {number} of {path.name} cannot be drawn ({one_line(str(error))[:120]}).") from error
        finally:
            document.close()


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of the text of a page, to be marked there.

    number: of the page, 1-based.
    text: the page's, as it was ingested.
    said: words for the comment on the mark.
    """

    number: int
    text: str
    start: int
    end: int
    said: str


def highlighted(path: Path, passages: Sequence[Passage], password: str | None = None) -> bytes:
    """Return a copy of a PDF with passages highlighted; a passage that is not found in print gets a comment with it.

    Raises:
        BrokenFile: it cannot be written in.
        PasswordNeeded, WrongPassword: the PDF is encrypted. The copy has the same password.
    """
    with alone_with_mupdf():
        document = open_pdf(path, password)
        try:
            for each in passages:
                page = document[each.number - 1]
                mark = _marked(page, each.text, each.start, each.end)
                if mark is None:
                    mark = page.add_text_annot(SIGN_AT, "")
                mark.set_info(title="Stockpot", content=f"{each.said}\n\n{each.text[each.start : each.end]}")
                mark.update()
            copy: bytes = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_KEEP)
            return copy
        except Exception as error:  # MuPDF raises many kinds
            raise BrokenFile(f"{path.name} cannot be marked ({one_line(str(error))[:120]}).") from error
        finally:
            document.close()


def _marked(page: Any, text: str, start: int, end: int) -> Any:
    """Highlight a passage on a page, and return the annotation; None if it is not found in print."""
    words = [(_letters(word), box) for *box, word, _, _, _ in page.get_text("words")]
    boxes = [pymupdf.Rect(box) for box in marked_boxes(words, text, start, end)]
    if not boxes:
        return None
    mark = page.add_highlight_annot(boxes)
    mark.set_colors(stroke=MARK)
    mark.update()
    return mark


def _drawn(page: Any, text: str, start: int, end: int) -> bytes:
    _marked(page, text, start, end)
    zoom = min(SHARPEST, LARGEST / max(page.rect.width, page.rect.height, 1))
    png: bytes = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom)).tobytes("png")
    return png


def marked_boxes(words: Sequence[tuple[str, Any]], text: str, start: int, end: int) -> list[Any]:
    """Return the boxes on paper of the words in characters `start` to `end` of a page's text.

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
    """Return letters and digits alone, without case, ligatures and accents: print and text may differ in them."""
    return _NO_LETTER.sub("", unicodedata.normalize("NFKD", text)).casefold()


def _occurrences(text: str, sought: str) -> Iterator[int]:
    at = text.find(sought) if sought else -1
    while at >= 0:
        yield at
        at = text.find(sought, at + 1)
