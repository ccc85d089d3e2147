"""The text of one PDF page: lines of print from MuPDF's spans, or by OCR from its picture."""

import re
from collections import defaultdict
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
from ingest.print.order import in_order
from ingest.print.structure import Mark, flatten, is_tagged, with_marks
from ingest.print.tables import Grid, grids, split_at_rules, with_tables
from ingest.wording import count

OCR_DPI = 300
FEW = 150  # characters; a page with fewer that is mostly a picture may hold more text
PICTURE_SHARE = 0.5  # of the page
OUTLINES = 20  # paths drawn on a page without text: fewer are a frame, more may be letters
DOUBLED = 0.5  # of an invisible line's width; more of it lies over visible letters
_ROW = 50.0  # points: lines are looked for by their place
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
        form = document.is_form_pdf and page.first_widget is not None
        tables = () if form else grids(page)
        blocks = text_blocks(_printed(page, "rawdict" if tables else "dict"), page.rotation_matrix, tables, form)
        raw = "\n".join(line.text for block in blocks for line in block)
        if not tables and (RIGHT_TO_LEFT.search(raw) or any(map(may_have_false_blanks, raw.split("\n")))):
            blocks = text_blocks(_printed(page, "rawdict"), page.rotation_matrix, form=form)
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


def _printed(page: Any, form: str) -> dict[str, Any]:
    """Return the print of a page in MuPDF's "dict" or "rawdict" form, with marks for lists and tables if it has any."""
    if is_tagged(page.parent):
        marked: dict[str, Any] = page.get_text(form, flags=_FLAGS | pymupdf.TEXT_COLLECT_STRUCTURE)
        if flatten(marked):
            return marked
    printed: dict[str, Any] = page.get_text(form, flags=_FLAGS)
    return printed


def text_length(blocks: list[LineBlock]) -> int:
    """Count the characters of the lines of a page."""
    return sum(len(line.text) for block in blocks for line in block)


def text_blocks(
    page: dict[str, Any], turn: pymupdf.Matrix = pymupdf.Identity, tables: Sequence[Grid] = (), form: bool = False
) -> list[LineBlock]:
    """Return the lines of print of a page in MuPDF's "dict" or "rawdict" form, in reading order.

    Args:
        page: as MuPDF gave it.
        turn: from the coordinates of the text to those of the page as it is shown.
        tables: those with rules; only in "rawdict" form.
        form: it has fields, whose values will stand beside their labels.
    """
    blocks = []
    _drop_doubles(page)
    split_at_rules(page, tables)
    _join_pieces(page)
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
            if mono and level:  # blanks before a line of a program
                x0 += (len(raw) - len(raw.lstrip())) * (x1 - x0) / len(raw)
            lines.append(Line(text, x0, y0, x1, y1, main["size"], mono, level, raw[-1].isspace(), raw[0].isspace()))
        if lines:
            blocks.append((block.get("mark", Mark()), lines))
    plain = with_marks(blocks)
    return join_rows(in_order(plain if form else with_tables(plain, tables)))


def _drop_doubles(page: dict[str, Any]) -> None:
    """Remove the invisible lines that lie over visible ones, as an OCR program adds them to a page that has text."""
    lines = [line for block in page["blocks"] for line in block.get("lines", ())]
    shown = [pymupdf.Rect(line["bbox"]) for line in lines if not _is_invisible(line)]
    if len(shown) in (0, len(lines)):
        return
    rows: dict[int, list[pymupdf.Rect]] = defaultdict(list)
    for box in shown:
        for row in range(int(box.y0 // _ROW), int(box.y1 // _ROW) + 1):
            rows[row].append(box)

    def is_double(line: dict[str, Any]) -> bool:
        box = pymupdf.Rect(line["bbox"])
        middle = (box.y0 + box.y1) / 2
        beside = [each for each in rows[int(middle // _ROW)] if each.y0 <= middle <= each.y1]
        covered = sum(max(0.0, min(box.x1, each.x1) - max(box.x0, each.x0)) for each in beside)
        return bool(covered > DOUBLED * box.width)

    for block in page["blocks"]:
        if "lines" in block:
            block["lines"] = [line for line in block["lines"] if not (_is_invisible(line) and is_double(line))]


def _is_invisible(line: dict[str, Any]) -> bool:
    """Return whether all letters of a line are neither filled nor outlined."""
    drawn = pymupdf.mupdf.FZ_STEXT_FILLED | pymupdf.mupdf.FZ_STEXT_STROKED
    return not any(span.get("char_flags", drawn) & drawn for span in line["spans"])


def _join_pieces(page: dict[str, Any]) -> None:
    """Join the lines that stand side by side into one where letters are placed one by one, as in Hebrew and Arabic.

    MuPDF begins a new line at each digit that is drawn to the left of the one before.
    """
    for block in page["blocks"]:
        joined: list[dict[str, Any]] = []
        for line in block.get("lines", ()):
            before = joined[-1] if joined else None
            if before is not None and "chars" in line["spans"][0] and _goes_on(before, line):
                before["spans"] = [*line["spans"], *before["spans"]]
                before["bbox"] = tuple(pymupdf.Rect(before["bbox"]) | pymupdf.Rect(line["bbox"]))
            else:
                joined.append(line)
        if joined:
            block["lines"] = joined


def _goes_on(before: dict[str, Any], line: dict[str, Any]) -> bool:
    """Return whether a piece of a line stands directly to the left of the one drawn before it, on one base line."""
    size = line["spans"][0]["size"]
    level = abs(before["spans"][0]["origin"][1] - line["spans"][0]["origin"][1]) < 0.1 * size
    straight = before["dir"][0] > 0.99 and line["dir"][0] > 0.99
    gap = before["bbox"][0] - line["bbox"][2]
    signs = "".join(each["c"] for one in (before, line) for span in one["spans"] for each in span["chars"])
    return level and straight and abs(gap) < 0.3 * size and not re.search("[A-Za-z]", signs)


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
    if _is_mirrored(line):  # an OCR program wrote it from the right, in reading order
        return "".join(each.text for each in sorted(_glyphs(line), key=lambda each: each.start))
    return logical_order(_glyphs(line), max(span["size"] for span in spans), page)


def _is_mirrored(line: dict[str, Any]) -> bool:
    """Return whether a line runs from the right, and yet its letters do not stand on their heads."""
    first = line["spans"][0]["chars"][0]
    _, y0, _, y1 = first["bbox"]
    return bool(line["dir"][0] < -0.9 and first["origin"][1] > (y0 + y1) / 2)


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
