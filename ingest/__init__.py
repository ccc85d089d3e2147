"""From a file to a Document: pages, text, table of contents, and the page of every character.

This room knows nothing of tokens, models, screens or SQL. One file per format; `clean.py`, `sections.py` and `xml.py`
hold what formats share, `office.py`, `package.py` and `drawings.py` what Office's do; `layout.py`, `margins.py` and
`running_heads.py` what pages of print need, `worksheet.py` and `grid.py` what sheets do. Untrusted input is its
everyday work: whatever the file,
`ingest` either returns a Document, with warnings in it where something was doubtful, or raises an IngestError that says
what to do. `apart.py` does the same in a process of its own, which the app uses.

    document = ingest(Path("book.epub"))
    document.locate(10_000).label        # "Chapter 3: The Storm, paragraph 14"
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ingest import titles
from ingest.clean import one_line, unknown_signs
from ingest.detect import SUPPORTED, detect
from ingest.document import (
    PAGE_SEPARATOR,
    Document,
    Page,
    PageQuality,
    Place,
    Reading,
    TocEntry,
    count,
)
from ingest.errors import (
    BrokenFile,
    EmptyDocument,
    IngestError,
    OcrUnavailable,
    PasswordNeeded,
    TooLarge,
    UnsupportedFormat,
    WrongPassword,
    out_of_memory,
)
from ingest.formats import epub, fb2, html, mail, mbox, mobi, rtf, text
from ingest.limits import Limits
from ingest.office import odt, xlsx
from ingest.print.ocr import ocr_languages, ocr_languages_used

__all__ = [
    "PAGE_SEPARATOR", "SUPPORTED", "BrokenFile", "Document", "EmptyDocument", "IngestError", "Limits", "OcrUnavailable",
    "Page", "PageQuality", "PasswordNeeded", "Place", "TocEntry", "TooLarge", "UnsupportedFormat", "WrongPassword",
    "check_file", "fingerprint", "ingest", "ocr_languages", "ocr_languages_used",
]  # fmt: skip

_READERS: dict[str, Callable[[Path, Limits], Reading]] = {
    "mobi": mobi.read,
    "fb2": fb2.read,
    "html": html.read,
    "mhtml": mail.read,
    "eml": mail.read,
    "mbox": mbox.read,
    "odt": odt.read,
    "rtf": rtf.read,
    "xlsx": xlsx.read,
    "md": text.read_markdown,
    "txt": text.read_text,
}
"""Of formats that need nothing but the file, and no package that is slow to load; of others see `_read`."""


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
        title: overrides what the file says about itself.
        password: for encrypted PDFs.
        ocr: None recognises PDF pages without text where Tesseract is installed, False never, True demands it.
        on_page: called with (pages done, pages in all) while reading, from this thread. What it raises ends the
            reading and comes out as it is, so that a caller can cancel. Called for PDF and EPUB.

    Returns:
        A Document with text on at least one page.

    Raises:
        IngestError: one of its children, with a message for a person.
    """
    path = Path(path)
    stopped: list[Exception] = []

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
        reading = _read(path, kind, password, ocr, limits, report)
        if fingerprint(path) != sha256:  # by which its text would be taken for that of the other
            raise BrokenFile(
                f"{path.name} changed while it was being read: read it again when nothing writes to it any more, "
                "or a copy of it."
            )
    except Exception as error:  # a file made to confuse a parser must not end more than its own job
        if stopped:
            raise stopped[0] from None
        if isinstance(error, IngestError):
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
        title=one_line(title or "") or titles.choose(path, *reading.titles),
        format=kind,
        sha256=sha256,
        pages=tuple(reading.pages),
        toc=tuple(reading.toc),
        warnings=tuple(warnings + reading.warnings),
    )
    limits.check(path.name, "characters", len(document.text), limits.characters)
    document = replace(document, warnings=(*document.warnings, *_unknown_signs(document)))
    if any(page.quality.source == "none" or page.quality.warnings for page in document.pages):
        document = replace(document, warnings=(*document.warnings, document.coverage()))
    return document


def _unknown_signs(document: Document) -> list[str]:
    """A warning of characters without a meaning on pages that have too few of them to be doubted as a whole."""
    sure = [page for page in document.pages if not page.quality.warnings]
    found = [(page, number) for page in sure if (number := unknown_signs(page.text))]
    if not found:
        return []
    them = count(sum(number for _, number in found), "character")
    return [f"{them} private to a font or damaged, without a known meaning: see {found[0][0].label} first."]


def check_file(path: Path, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen, so shared safely
    """Refuse what cannot be a document before any of it is read: a folder, a device, a pipe, a file that is too large.

    Raises:
        BrokenFile, TooLarge.
    """
    if path.is_dir():
        raise BrokenFile(f"{path.name or path} is a folder: name the files in it.")
    if not path.exists():
        raise BrokenFile(f"{path.name} is not there: check the name.")
    if not path.is_file():
        raise BrokenFile(f"{path.name} is no file: save what comes through it as one, and name that.")
    limits.check(path.name, "bytes", path.stat().st_size, limits.file_bytes)


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal, read piece by piece; `check_file` says whether it has an end."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(
    path: Path,
    kind: str,
    password: str | None,
    ocr: bool | None,
    limits: Limits,
    on_page: Callable[[int, int], None],
) -> Reading:
    if kind == "pdf":
        from ingest.print import pdf  # PyMuPDF takes a second to load, which no other format needs

        return pdf.read(path, limits=limits, password=password, ocr=ocr, on_page=on_page)
    if kind == "docx":
        from ingest.office import (
            docx,  # python-docx and python-pptx take longer to load than most files take to be read
        )

        return docx.read(path, limits)
    if kind == "pptx":
        from ingest.office import pptx

        return pptx.read(path, limits)
    if kind == "epub":
        return epub.read(path, limits=limits, on_page=on_page)
    return _READERS[kind](path, limits)
