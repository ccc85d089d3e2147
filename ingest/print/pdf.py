"""PDF, through PyMuPDF: text in reading order, page by page; scans through Tesseract where it is installed.

Comments and filled form fields stand below the print of their page. A row of a table is one line. Left out: pictures,
and attached files (a warning names them).
"""

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingest import titles
from ingest.clean import is_unreadable, one_line, text_warnings, tidy, tidy_code
from ingest.conversion import Content, ConvertOptions
from ingest.document import Page, PageQuality, TocEntry, page_label
from ingest.errors import BrokenFile, EmptyDocument, NeedsOcr, OcrUnavailable
from ingest.print.annotations import attachments_warning, xfa_warning
from ingest.print.glyph_names import mend_fonts
from ingest.print.layout import Paragrapher
from ingest.print.mupdf import alone_with_mupdf, open_pdf, repair_warnings
from ingest.print.ocr import ocr_languages_used
from ingest.print.pdf_page import PdfPage, read_page, text_length
from ingest.print.running_heads import drop_running_heads
from ingest.wording import count

OCR_HINT = (
    "install Tesseract with its language data (for example `apt install tesseract-ocr`, or set TESSDATA_PREFIX "
    "to the folder of its .traineddata files) and read the file again"
)


def convert(path: Path, options: ConvertOptions, kind: str = "pdf") -> Content:
    """Convert a PDF to pages of text.

    kind: MuPDF's name of another format with pages.

    Raises:
        BrokenFile: it cannot be opened, or has no pages.
        PasswordNeeded, WrongPassword: it is encrypted.
        TooLarge: too many pages or characters.
        NeedsOcr: no text on any page, which OCR may change.
        EmptyDocument: no text on any page.
        OcrUnavailable: OCR was demanded and Tesseract has no data here.
    """
    languages = () if options.ocr is False else ocr_languages_used()
    if options.ocr and not languages:
        raise OcrUnavailable(f"{path.name}: OCR was asked for, but Tesseract's language data is not here: {OCR_HINT}.")
    with alone_with_mupdf() as messages:
        content = _convert(path, options, "+".join(languages), kind)
    content.warnings.extend(repair_warnings(messages))
    return content


def _convert(path: Path, options: ConvertOptions, language: str, kind: str) -> Content:
    """Convert a PDF with MuPDF locked. language: for Tesseract; "" without OCR."""
    limits = options.limits
    document = open_pdf(path, options.password, kind)
    try:
        total: int = document.page_count
        if not total:
            raise BrokenFile(f"{path.name} has no pages: it is damaged or incomplete. Fetch it again.")
        limits.check(path.name, "pages", total, limits.pages)
        found: list[PdfPage] = []
        characters = 0
        fonts: set[int] = set()
        for index in range(total):
            with suppress(Exception):  # a font too damaged to be mended is read as it is
                mend_fonts(document, index, fonts)
            page = read_page(document, index, language)
            characters += text_length(page.layout.blocks)
            limits.check(path.name, "characters", characters, limits.characters)
            found.append(page)
            options.on_page(index + 1, total)
        pages = _pages(found, _labels(document, total))
        if not any(page.text for page in pages):
            raise _without_text(path.name, pages, language)
        metadata_title = (document.metadata or {}).get("title")
        attached = [name for page in found for name in page.attached]
        warnings = [*attachments_warning(document, attached), *xfa_warning(document)] if document.is_pdf else []
        return Content(pages, _toc(document, total), [metadata_title, _title_in_print(found)], warnings)
    finally:
        document.close()


def _pages(found: list[PdfPage], labels: list[str]) -> list[Page]:
    """Return pages as paragraphs, without running heads, with words joined across page ends."""
    layouts = drop_running_heads([page.layout for page in found])
    paragrapher = Paragrapher(layouts)
    texts = [_tidied(paragrapher.page(layout)) for layout in layouts]
    for index in range(len(texts) - 1):
        texts[index], texts[index + 1] = paragrapher.join_across_pages(texts[index], texts[index + 1])
    pages = []
    for number, (text, page, label) in enumerate(zip(texts, found, labels, strict=True), 1):
        doubt = page.warnings + text_warnings(text)
        if is_unreadable(text):  # worse than no text: a model would take it for words
            text = ""
        quality = PageQuality(len(text), page.source if text else "none", doubt, page.pictured)
        pages.append(Page(number, label, text, quality))
    return pages


def _labels(document: Any, total: int) -> list[str]:
    """Return the label of each page: its number, after the printed number if the file has one."""
    printed = [""] * total
    try:
        if document.get_page_labels():
            printed = [one_line(document[index].get_label()) for index in range(total)]
    except Exception:  # damaged labels are no reason to lose the book
        printed = [""] * total
    names = [label or str(number) for number, label in enumerate(printed, 1)]
    times = Counter(names)
    return [page_label(number, name, alone=times[name] == 1) for number, name in enumerate(names, 1)]


def _toc(document: Any, total: int) -> list[TocEntry]:
    """Return the outline of a PDF as a table of contents."""
    try:
        entries = document.get_toc(simple=True)
    except Exception:  # a damaged outline is no reason to lose the book
        return []
    toc = []
    for level, title, number in entries:
        if (title := one_line(title)) and number >= 1:
            toc.append(TocEntry(max(1, level), title, min(number, total)))
    return toc


def _title_in_print(found: list[PdfPage]) -> str | None:
    """Return the largest print on the first page with text, if it stands out and is short enough for a title."""
    first = next((page.layout for page in found if page.layout.blocks), None)
    if not first:
        return None
    lines = [
        line for block in first.blocks for line in block if line.horizontal and re.search(r"[^\W\d_]{2}", line.text)
    ]
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
    return titles.usable_title(" ".join(title)) or None


def _tidied(text: str) -> str:
    """Return the text of a page in plain characters; lines of a program keep the blanks before them."""
    return tidy_code(text).strip() if "\n " in text else tidy(text)


def _without_text(name: str, pages: list[Page], language: str) -> EmptyDocument:
    """Return the error for a PDF without text: the likely reason, and the way out. language: see `_convert`."""
    unread = sum(any(warning.startswith("could not") for warning in page.quality.warnings) for page in pages)
    message = f"{name} has no text on {'its one page' if len(pages) == 1 else f'any of its {len(pages)} pages'}"
    if unread:
        return EmptyDocument(
            f"{message}; {count(unread, 'page')} could not be read. The file is damaged: fetch it again."
        )
    if any(
        "could not be mapped" in warning or "private" in warning for page in pages for warning in page.quality.warnings
    ):
        return NeedsOcr(
            f"{message} that can be read: its fonts do not say which characters their glyphs stand for. "
            f"The pages can be recognised from their looks: {OCR_HINT}."
        )
    if not any(page.quality.pictured for page in pages):
        return EmptyDocument(f"{message} and no pictures of text either: there is nothing to read in it.")
    if language:
        return EmptyDocument(f"{message}, only pictures, and OCR found nothing in them. Try a sharper scan.")
    return NeedsOcr(f"{message}, only pictures, such as scans. To read them, {OCR_HINT}.")
