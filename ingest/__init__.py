"""A file in, a Document out: pages, text, table of contents, and the page of every character.

    document = ingest(Path("book.epub"))
    document.locate(10_000).label        # "Chapter 3: The Storm, paragraph 14"

Nothing here knows tokens, models, screens or SQL. Untrusted input is the rule: whatever the file, `ingest` returns a
Document, with warnings about its doubtful parts, or raises an IngestError that says what to do next. The app calls
`ingest.subprocess`, which does the same in a process of its own.

    formats/   the table of formats, and e-books, web pages, mail and plain text
    office/    Word, PowerPoint, Excel and OpenDocument files, and the parts they share
    print/     PDF, and the layout of printed pages
    markup/    HTML, XML and formulas, which many formats share
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ingest import titles
from ingest.clean import count_unknown_characters, one_line
from ingest.conversion import ConvertOptions
from ingest.detect import detect
from ingest.document import PAGE_SEPARATOR, Document, Page, PageQuality, Place, TocEntry
from ingest.errors import (
    BrokenFile,
    EmptyDocument,
    IngestError,
    NeedsOcr,
    OcrUnavailable,
    PasswordNeeded,
    TooLarge,
    UnsupportedFormat,
    WrongPassword,
    out_of_memory,
)
from ingest.formats import FORMATS
from ingest.limits import Limits
from ingest.print.ocr import ocr_languages, ocr_languages_used
from ingest.wording import count

__all__ = [
    "FORMATS", "PAGE_SEPARATOR", "BrokenFile", "Document", "EmptyDocument", "IngestError", "Limits", "NeedsOcr",
    "OcrUnavailable", "Page", "PageQuality", "PasswordNeeded", "Place", "TocEntry", "TooLarge", "UnsupportedFormat",
    "WrongPassword", "check_file", "fingerprint", "ingest", "ocr_languages", "ocr_languages_used",
]  # fmt: skip


def ingest(
    path: Path,
    *,
    title: str | None = None,
    password: str | None = None,
    ocr: bool | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen, so shared safely
    on_page: Callable[[int, int], None] | None = None,
) -> Document:
    """Turn a file into a Document.

    Args:
        path: the file.
        title: used instead of the file's own.
        password: for encrypted PDFs.
        ocr: None recognises PDF pages without text where Tesseract is installed, False never, True demands it.
        limits: how large the file may be.
        on_page: called with (pages done, pages in all), from this thread, for PDF and EPUB. An exception that it
            raises ends the work and reaches the caller unchanged, so that a caller can cancel.

    Returns:
        A Document with text on at least one page.

    Raises:
        IngestError: one of its children, with a message for a person.
    """
    path = Path(path)
    stopped: list[Exception] = []
    warnings: list[str] = []

    def report(done: int, total: int) -> None:
        try:
            if on_page:
                on_page(done, total)
        except Exception as error:
            stopped.append(error)
            raise

    try:
        check_file(path, limits)
        sha256 = fingerprint(path)
        kind, warnings = detect(path, limits)
        options = ConvertOptions(limits=limits, password=password, ocr=ocr, on_page=report)
        content = FORMATS[kind].convert(path, options)
        if fingerprint(path) != sha256:  # the text would be filed under the other version's fingerprint
            raise BrokenFile(
                f"{path.name} changed while it was being read: read it again when nothing writes to it any more, "
                "or a copy of it."
            )
    except Exception as error:  # a file made to confuse a parser must not end more than its own job
        if stopped:
            raise stopped[0] from None
        if isinstance(error, IngestError):
            if warnings:  # that the name misleads: without a document, only the error can say so
                raise type(error)(" ".join([str(error), *warnings])) from error
            raise
        if isinstance(error, MemoryError):
            raise out_of_memory(path.name) from error
        if isinstance(error, OSError):
            reason = error.strerror or one_line(str(error))
            raise BrokenFile(f"{path.name} cannot be read: {reason}. Check its permissions.") from error
        raise BrokenFile(
            f"{path.name} could not be read ({type(error).__name__}: {one_line(str(error))[:120]}). "
            "Convert it to PDF or plain text, and please report it."
        ) from error
    document = Document(
        title=one_line(title or "") or titles.choose_title(path, *content.titles),
        format=kind,
        sha256=sha256,
        pages=tuple(content.pages),
        toc=tuple(content.toc),
        warnings=tuple(warnings + content.warnings),
    )
    limits.check(path.name, "characters", len(document.text), limits.characters)
    document = replace(document, warnings=(*document.warnings, *_unknown_signs(document)))
    if any(page.quality.source == "none" or page.quality.warnings for page in document.pages):
        document = replace(document, warnings=(*document.warnings, document.coverage()))
    return document


def check_file(path: Path, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen, so shared safely
    """Refuse a folder, a device, a pipe or a file that is too large, before any of it is read.

    Raises:
        BrokenFile: it is no file, or not there.
        TooLarge: it has more bytes than the limit.
    """
    if path.is_dir():
        raise BrokenFile(f"{path.name or path} is a folder: name the files in it.")
    if not path.exists():
        raise BrokenFile(f"{path.name} is not there: check the name.")
    if not path.is_file():
        raise BrokenFile(f"{path.name} is no file: save what comes through it as one, and name that.")
    limits.check(path.name, "bytes", path.stat().st_size, limits.file_bytes)


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal. Call `check_file` first: a pipe may have no end."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unknown_signs(document: Document) -> list[str]:
    """Warn of meaningless characters on pages that have too few of them to be doubtful as a whole."""
    sure = [page for page in document.pages if not page.quality.warnings]
    found = [(page, number) for page in sure if (number := count_unknown_characters(page.text))]
    if not found:
        return []
    them = count(sum(number for _, number in found), "character")
    return [f"{them} private to a font or damaged, without a known meaning: see {found[0][0].label} first."]
