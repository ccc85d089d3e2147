"""The text of one PDF page: lines of print from MuPDF's spans, or by OCR from its picture."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pymupdf

from ingest.clean import attach_accents, is_unreadable, one_line, superscript, tidy
from ingest.document import OCR_FOUND_NOTHING
from ingest.print.annotations import attached_files, below_print, comments, fill_in
from ingest.print.bidi import RIGHT_TO_LEFT, Glyph, PageDirection, logical_order, page_direction
from ingest.print.layout import PrintedPage, join_rows
from ingest.print.letter_spacing import may_have_false_blanks, remove_false_blanks
from ingest.print.lines import Line, LineBlock
from ingest.wording import count

OCR_DPI = 300
FEW = 150  # characters; a page with fewer that is mostly a picture may hold more text
PICTURE_SHARE = 0.5  # of the page
OUTLINES = 20  # paths drawn on a page without text: fewer are a frame, more may be letters
SMALL, LIFTED = 0.85, 0.15  # of the line's font size: the largest superscript, and its least height above the base line
# No ligatures (MuPDF spells them out), no pictures. Characters without a mapping come as U+FFFD and are counted. Print
# that is drawn twice, a hair apart, to look bold comes once.
_FLAGS = pymupdf.TEXT_MEDIABOX_CLIP | pymupdf.TEXT_COLLECT_STYLES
_HYPHEN = re.compile(  # at the end of a line, however mapped
    r"\u00ad(?=\s*$)|(?<=[^\W\d_]{2})[\u2212\uffff\u2011](?=\s*$)"
)
_NOTE = re.compile(r"\[?\d{1,3}[)\]]|\(\d{1,3}\)")  # a footnote's mark, in brackets or before half of one


@dataclass(frozen=True)
class PdfPage:
    """A page as MuPDF or Tesseract gave it; the last fields but one are those of `PageQuality`."""

    layout: PrintedPage
    source: str  # "text" | "ocr" | "none"
    warnings: tuple[str, ...] = ()
    pictured: bool | None = None  # there may be text in a picture on it
    attached: tuple[str, ...] = ()  # names of the files attached to places on it


def read_page(document: Any, index: int, language: str) -> PdfPage:
    """Read one page. A page that cannot be read is returned empty, with a warning.

    Args:
        document: opened by `open_pdf`.
        index: 0-based.
        language: for Tesseract, as in "eng+fra"; "" without OCR.
    """
    try:
        page = document[index]
        height = float(page.rect.height)
        blocks = text_blocks(page.get_text("dict", flags=_FLAGS), page.rotation_matrix)
        raw = "\n".join(line.text for block in blocks for line in block)
        if RIGHT_TO_LEFT.search(raw) or any(map(may_have_false_blanks, raw.split("\n"))):
            blocks = text_blocks(page.get_text("rawdict", flags=_FLAGS), page.rotation_matrix)
        if document.is_form_pdf:
            blocks = fill_in(page, blocks)
        notes = below_print(page, comments(page) if document.is_pdf else ())
        attached = attached_files(page) if document.is_pdf else ()
        pictured, warnings = _is_pictured(page, len(raw)), []
        if language and (pictured or is_unreadable(raw)):
            try:
                recognised = recognise(page, language)
                if text_length(recognised) > (0 if is_unreadable(raw) else 2 * len(raw)):  # more than was there already
                    return PdfPage(PrintedPage([*recognised, *notes], height), "ocr", attached=attached)
                warnings.append(OCR_FOUND_NOTHING)
            except Exception as error:  # Tesseract's trouble with one page must not lose the book
                warnings.append(f"OCR failed: {one_line(str(error))[:120]}")
        if not blocks and not pictured and (complaint := _mupdf_error(page)):
            warnings.append(f"could not be read: {complaint}")
        beside = len(raw) + text_length(notes)
        if pictured and beside and not language:
            warnings.append(f"a picture fills the page, with only {count(beside, 'character')} of text beside it")
        blocks += notes
        return PdfPage(PrintedPage(blocks, height), "text" if blocks else "none", tuple(warnings), pictured, attached)
    except Exception as error:  # one bad page must not lose the book
        return PdfPage(PrintedPage([], 1.0), "none", (f"could not be read: {one_line(str(error))[:120]}",))


def recognise(page: Any, language: str) -> list[LineBlock]:
    """Return the lines that Tesseract finds in the picture of a page."""
    found = page.get_textpage_ocr(dpi=OCR_DPI, full=True, language=language)
    return text_blocks(page.get_text("dict", flags=_FLAGS, textpage=found))


def text_length(blocks: list[LineBlock]) -> int:
    """Count the characters of the lines of a page."""
    return sum(len(line.text) for block in blocks for line in block)


def text_blocks(page: dict[str, Any], turn: pymupdf.Matrix = pymupdf.Identity) -> list[LineBlock]:
    """Return the lines of print of a page in MuPDF's "dict" or "rawdict" form.

    turn: from the coordinates of the text to those of the page as it is shown.
    """
    blocks = []
    page_facing = page_direction(_glyphs(line) for block in page["blocks"] for line in block.get("lines", ()))
    for block in page["blocks"]:
        lines = []
        for line in block.get("lines", ()):
            if "chars" in line["spans"][0]:
                remove_false_blanks(line)
            main = max(line["spans"], key=lambda span: len(span.get("text") or span["chars"]))
            raw = _line_text(line, main, page_facing)
            raw = _HYPHEN.sub("-", raw).replace("\ufffe", "-")
            text = attach_accents(tidy(raw))
            if not text:
                continue
            x0, y0, x1, y1 = pymupdf.Rect(line["bbox"]) * turn
            mono = bool(main["flags"] & pymupdf.TEXT_FONT_MONOSPACED)
            across, along = line["dir"]
            level = abs(across * turn.b + along * turn.d) < 0.1
            lines.append(Line(text, x0, y0, x1, y1, main["size"], mono, level, raw[-1].isspace(), raw[0].isspace()))
        if lines:
            blocks.append(lines)
    return join_rows(blocks)


def _is_pictured(page: Any, characters: int) -> bool:
    """Return whether a page with little text is mostly a picture, or a page without text has anything drawn on it."""
    if characters >= FEW:
        return False
    drawn = page.get_bboxlog()
    kinds = [kind for kind, _ in drawn]
    if "ignore-text" in kinds:  # invisible text, which an OCR program put in
        return False
    if not characters and sum("path" in kind for kind in kinds) >= OUTLINES:
        return True
    covered = sum(float(abs(pymupdf.Rect(box) & page.rect)) for kind, box in drawn if "image" in kind)
    return covered > (PICTURE_SHARE * float(abs(page.rect)) if characters else 0.0)


def _mupdf_error(page: Any) -> str:
    """Return MuPDF's first error about a page, or ""."""
    before = pymupdf.TOOLS.mupdf_warnings(False)
    page.get_text("text", flags=_FLAGS)
    said = pymupdf.TOOLS.mupdf_warnings(False)[len(before) :].split("\n")
    return next((one_line(each)[:120] for each in said if "error" in each), "")


def _glyphs(line: dict[str, Any]) -> list[Glyph]:
    """Return the characters of a line with their places along it; none if the line has no places."""
    across, along = line["dir"]
    found = []
    for each in (each for span in line["spans"] for each in span.get("chars", ())):
        x0, y0, x1, y1 = each["bbox"]
        ends = x0 * across + y0 * along, x1 * across + y1 * along
        found.append(Glyph(each["c"], min(ends), max(ends)))
    return found


def _line_text(line: dict[str, Any], main: dict[str, Any], page: PageDirection) -> str:
    """Return the text of a line, with right-to-left parts in reading order if the line has places.

    main: the span with the most characters; superscripts are raised above it.
    """
    spans = line["spans"]
    texts = [span["text"] if "text" in span else "".join(each["c"] for each in span["chars"]) for span in spans]
    if "text" in spans[0] or not RIGHT_TO_LEFT.search("".join(texts)):
        return "".join(_with_superscripts(spans, texts, main, line["dir"]))
    return logical_order(_glyphs(line), max(span["size"] for span in spans), page)


def _with_superscripts(
    spans: Sequence[dict[str, Any]], texts: Sequence[str], main: dict[str, Any], direction: Sequence[float]
) -> Iterator[str]:
    """Yield the texts of a line's spans, superscripts marked; one at its beginning is the number of a note."""
    across, along = direction

    def is_raised(number: int) -> bool:
        span = spans[number]
        right, down = (there - base for there, base in zip(span["origin"], main["origin"], strict=True))
        lift = right * along - down * across
        return bool(span["size"] < SMALL * main["size"] and lift > LIFTED * main["size"])

    begun = False
    for lifted, numbers in groupby(range(len(spans)), is_raised):
        text = "".join(texts[number] for number in numbers)
        if lifted and (mark := text.strip()):
            marked = superscript(mark, linked=bool(_NOTE.fullmatch(mark))) if begun else mark
            text = marked + (" " if not begun or text[-1].isspace() else "")
        yield text
        begun = begun or bool(text.strip())
