"""PDF, through PyMuPDF: text in its natural order, page by page; scans through Tesseract where it is installed.

Left out: pictures, comments, attachments, and the layout of tables beyond one row a line.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymupdf

from ingest import titles
from ingest.bidi import RIGHT_TO_LEFT, Glyph, in_order, mostly
from ingest.clean import doubts, mend_accents, one_line, tidy, unreadable
from ingest.document import Page, PageQuality, Reading, TocEntry, count
from ingest.errors import BrokenFile, EmptyDocument, OcrUnavailable, PasswordNeeded, WrongPassword
from ingest.layout import Block, Line, Paragrapher, Sheet, rows
from ingest.limits import Limits
from ingest.ocr import ocr_languages
from ingest.running_heads import drop_running_heads

OCR_DPI = 300
OCR_HINT = (
    "install Tesseract with its language data (for example `apt install tesseract-ocr`, or set TESSDATA_PREFIX "
    "to the folder of its .traineddata files) and read the file again"
)
# No ligatures (MuPDF spells them out), no pictures; characters without a mapping come as U+FFFD and are counted.
_FLAGS = pymupdf.TEXT_MEDIABOX_CLIP

# MuPDF is not thread-safe and keeps its messages in one place for the whole process.
_mupdf_lock = threading.Lock()


@contextmanager
def _mupdf() -> Iterator[list[str]]:
    """Alone with MuPDF, its chatter on stderr off; the list yielded holds its distinct messages afterwards."""
    messages: list[str] = []
    tools = pymupdf.TOOLS
    with _mupdf_lock:
        errors, warnings = tools.mupdf_display_errors(), tools.mupdf_display_warnings()
        tools.mupdf_display_errors(False)
        tools.mupdf_display_warnings(False)
        tools.reset_mupdf_warnings()
        try:
            yield messages
        finally:
            messages.extend(dict.fromkeys(line for line in tools.mupdf_warnings().splitlines() if line.strip()))
            tools.mupdf_display_errors(errors)
            tools.mupdf_display_warnings(warnings)


def read(
    path: Path,
    *,
    limits: Limits,
    password: str | None,
    ocr: bool | None,
    on_page: Callable[[int, int], None],
) -> Reading:
    """Read a PDF.

    Args:
        ocr: None recognises pages without text where Tesseract is installed, False never, True demands it.
        on_page: called with (pages done, pages in all) after each page.

    Raises:
        BrokenFile, PasswordNeeded, WrongPassword, TooLarge, EmptyDocument, OcrUnavailable.
    """
    languages = () if ocr is False else ocr_languages()
    if ocr and not languages:
        raise OcrUnavailable(f"{path.name}: OCR was asked for, but Tesseract's language data is not here: {OCR_HINT}.")
    with _mupdf() as messages:
        reading = _read(path, limits, password, "+".join(languages[:3]), on_page)
    reading.warnings.extend(_explain(messages))
    return reading


def _open(path: Path, password: str | None) -> Any:
    """Open a file as a PDF, whatever its name says; the caller holds `_mupdf()` and closes it.

    Raises:
        BrokenFile, PasswordNeeded, WrongPassword.
    """
    try:
        document = pymupdf.open(str(path), filetype="pdf")
    except Exception as error:  # FileDataError, RuntimeError, ValueError: MuPDF's own kinds differ by cause
        raise BrokenFile(
            f"{path.name} cannot be opened as PDF ({_reason(error, path)}). "
            "The file is damaged or incomplete: fetch it again, or open and re-save it elsewhere."
        ) from error
    try:
        if document.needs_pass:
            if password is None:
                raise PasswordNeeded(f"{path.name} is encrypted: give its password and try again.")
            if not document.authenticate(password):
                raise WrongPassword(f"The password given does not open {path.name}: check it and try again.")
    except BaseException:
        document.close()
        raise
    return document


def _reason(error: Exception, path: Path) -> str:
    return one_line(str(error).replace(str(path), path.name)).rstrip(".")[:120]


def _read(
    path: Path, limits: Limits, password: str | None, language: str, on_page: Callable[[int, int], None]
) -> Reading:
    document = _open(path, password)
    try:
        total: int = document.page_count
        if not total:
            raise BrokenFile(f"{path.name} has no pages: it is damaged or incomplete. Fetch it again.")
        limits.check(path.name, "pages", total, limits.pages)
        sheets, sources, warnings = [], [], []
        characters = 0
        for index in range(total):
            sheet, source, doubt = _sheet(document, index, language)
            characters += sum(len(line.text) for block in sheet.blocks for line in block)
            limits.check(path.name, "characters", characters, limits.characters)
            sheets.append(sheet)
            sources.append(source)
            warnings.append(doubt)
            on_page(index + 1, total)
        pages = _pages(sheets, sources, warnings)
        if not any(page.text for page in pages):
            raise EmptyDocument(_no_text(path.name, document, pages, language))
        metadata_title = (document.metadata or {}).get("title")
        return Reading(pages, _toc(document, total), [metadata_title, _heading(sheets)], [])
    finally:
        document.close()


def _sheet(document: Any, index: int, language: str) -> tuple[Sheet, str, tuple[str, ...]]:
    """One page's lines, where they came from, and warnings. A page that cannot be read is an empty one."""
    try:
        page = document[index]
        height = float(page.rect.height)
        blocks = _blocks(page.get_text("dict", flags=_FLAGS), page.rotation_matrix)
        raw = "\n".join(line.text for block in blocks for line in block)
        if RIGHT_TO_LEFT.search(raw):
            blocks = _blocks(page.get_text("rawdict", flags=_FLAGS), page.rotation_matrix)
        if document.is_form_pdf:
            blocks += _fields(page, raw)
        warnings: tuple[str, ...] = ()
        if language and (not raw.strip() or unreadable(raw)):
            try:
                recognised = _blocks(
                    page.get_text(
                        "dict", flags=_FLAGS, textpage=page.get_textpage_ocr(dpi=OCR_DPI, full=True, language=language)
                    )
                )
                if recognised:
                    return Sheet(recognised, height), "ocr", ()
            except Exception as error:  # Tesseract's trouble with one page must not lose the book
                warnings = (f"OCR failed: {one_line(str(error))[:120]}",)
        return Sheet(blocks, height), "text" if blocks else "none", warnings
    except Exception as error:  # one bad page never stops the book
        return Sheet([], 1.0), "none", (f"could not be read: {one_line(str(error))[:120]}",)


def _blocks(page: dict[str, Any], turn: pymupdf.Matrix = pymupdf.Identity) -> list[Block]:
    """Lines of print. turn: from the coordinates of the text to those of the page as it is shown."""
    blocks = []
    leftward = mostly("".join(each["c"] for each in _characters(page)))
    for block in page["blocks"]:
        lines = []
        for line in block.get("lines", ()):
            raw = _text(line, leftward)
            text = mend_accents(tidy(raw.replace("\u00ad", "-") if raw.rstrip().endswith("\u00ad") else raw))
            if not text:
                continue
            main = max(line["spans"], key=lambda span: len(span.get("text") or span["chars"]))
            x0, y0, x1, y1 = pymupdf.Rect(line["bbox"]) * turn
            mono = bool(main["flags"] & pymupdf.TEXT_FONT_MONOSPACED)
            across, along = line["dir"]
            level = abs(across * turn.b + along * turn.d) < 0.1
            lines.append(Line(text, x0, y0, x1, y1, main["size"], mono, level, raw[-1].isspace(), raw[0].isspace()))
        if lines:
            blocks.append(rows(lines))
    return blocks


def _characters(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of a page that says where they stand."""
    for block in page["blocks"]:
        for line in block.get("lines", ()):
            for span in line["spans"]:
                yield from span.get("chars", ())


def _text(line: dict[str, Any], leftward: bool) -> str:
    """The text of a line of MuPDF's; in order where parts of it run from right to left, if it says where they stand."""
    spans = line["spans"]
    if "text" in spans[0]:
        return "".join(span["text"] for span in spans)
    characters = [each for span in spans for each in span["chars"]]
    text = "".join(each["c"] for each in characters)
    if not RIGHT_TO_LEFT.search(text):
        return text
    across, along = line["dir"]
    ends = [(x0 * across + y0 * along, x1 * across + y1 * along) for x0, y0, x1, y1 in (c["bbox"] for c in characters)]
    glyphs = [Glyph(each["c"], min(place), max(place)) for each, place in zip(characters, ends, strict=True)]
    return in_order(glyphs, max(span["size"] for span in spans), leftward)


def _fields(page: Any, raw: str) -> list[Block]:
    """What is filled into a form and not already in the page's text, one line a field, below everything else."""
    lines = []
    for widget in page.widgets():
        value = tidy(str(widget.field_value or ""))
        if value and value not in raw and value != "Off":
            name = one_line(widget.field_label or widget.field_name or "")
            y = page.rect.y1 / 2  # away from the margins, where running heads are looked for
            lines.append(Line(f"{name}: {value}" if name else value, 0, y, 1, y, 0, mono=True))
    return [lines] if lines else []


def _pages(sheets: list[Sheet], sources: list[str], warnings: list[tuple[str, ...]]) -> list[Page]:
    sheets = drop_running_heads(sheets)
    paragrapher = Paragrapher(sheets)
    texts = [tidy(paragrapher.page(sheet)) for sheet in sheets]
    for index in range(len(texts) - 1):
        texts[index], texts[index + 1] = paragrapher.bridge(texts[index], texts[index + 1])
    pages = []
    for number, (text, source, doubt) in enumerate(zip(texts, sources, warnings, strict=True), 1):
        doubt += doubts(text)
        if unreadable(text):  # worse than no text: it would be read as if it said something
            text = ""
        quality = PageQuality(len(text), source if text else "none", doubt)
        pages.append(Page(number, f"page {number}", text, quality))
    return pages


def _toc(document: Any, total: int) -> list[TocEntry]:
    try:
        entries = document.get_toc(simple=True)
    except Exception:  # a damaged outline is no reason to lose the book
        return []
    toc = []
    for level, title, number in entries:
        if (title := one_line(title)) and number >= 1:
            toc.append(TocEntry(max(1, level), title, min(number, total)))
    return toc


def _heading(sheets: list[Sheet]) -> str | None:
    """The largest print on the first page that has text, where it stands out and is short enough for a title."""
    first = next((sheet for sheet in sheets if sheet.blocks), None)
    if not first:
        return None
    lines = [line for block in first.blocks for line in block if line.level and any(map(str.isalpha, line.text))]
    if len(lines) < 2:
        return None
    largest = max(line.size for line in lines)
    typical = sorted(line.size for line in lines)[len(lines) // 2]
    if largest < 1.15 * typical:
        return None
    start = next(index for index, line in enumerate(lines) if line.size == largest)
    title = []
    for line in lines[start : start + 4]:
        if abs(line.size - largest) > 0.5:
            break
        title.append(line.text)
    return titles.sane(" ".join(title)) or None


def _no_text(name: str, document: Any, pages: list[Page], language: str) -> str:
    try:
        pictures = sum(bool(page.get_images()) for page in document)
    except Exception:
        pictures = 0
    unread = sum(any(warning.startswith("could not") for warning in page.quality.warnings) for page in pages)
    message = f"{name} has no text on {'its one page' if len(pages) == 1 else f'any of its {len(pages)} pages'}"
    if unread:
        return f"{message}; {count(unread, 'page')} could not be read. The file is damaged: fetch it again."
    if any(
        "could not be mapped" in warning or "private" in warning for page in pages for warning in page.quality.warnings
    ):
        return (
            f"{message} that can be read: its fonts do not say which characters their glyphs stand for. "
            f"The pages can be recognised from their looks: {OCR_HINT}."
        )
    if not pictures:
        return f"{message} and no pictures of text either: there is nothing to read in it."
    if language:
        return f"{message}, only pictures, and OCR found nothing in them. Try a sharper scan."
    return f"{message}, only pictures, such as scans. To read them, {OCR_HINT}."


def _explain(messages: list[str]) -> list[str]:
    """MuPDF's messages as at most two warnings."""
    warnings = []
    if any("repair" in message for message in messages):
        warnings.append("The file is damaged and was repaired while reading: compare the result with the original.")
    rest = [message for message in messages if "error" in message.split(":")[0] and "xref" not in message]
    if rest:
        more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
        warnings.append(f"While reading, MuPDF reported: {one_line(rest[0])[:160]}{more}.")
    return warnings
