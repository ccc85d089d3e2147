"""The pages of documents, by the numbers that the file counts them by: as they were read, and as they are printed."""

from dataclasses import dataclass
from pathlib import Path

from app.errors import NotFound
from app.named_pages import OF_THE_FILE
from app.service import Service
from ingest import IngestError, Page, PasswordNeeded, TocEntry
from ingest.subprocess import page_image_in_subprocess


@dataclass(frozen=True)
class DocumentPage:
    """A page of a document.

    start: where in the document's text it begins; numbers: of the first and the last page; contents: of the document.
    """

    document: str
    title: str
    page: Page
    start: int
    numbers: tuple[int, int]
    printed: Path | None  # the file that shows it as it is printed, if it is a PDF
    contents: tuple[TocEntry, ...] = ()


def page_of(service: Service, document_id: str, number: int) -> DocumentPage:
    """The page with that number.

    Raises:
        NotFound: it has no such page.
    """
    document = service.library.document(document_id)
    for page, start in zip(document.pages, document.page_starts, strict=True):
        if page.number == number:
            title, printed = service.store.document(document_id).title, pdf_of(service, document_id)
            numbers = document.pages[0].number, document.pages[-1].number
            return DocumentPage(document_id, title, page, start, numbers, printed, document.toc)
    there = f"its pages are 1 to {document.pages[-1].number:,}" if document.pages else "it has none"
    raise NotFound(f"There is no page {number} in {document_id}: {there}.")


def pdf_of(service: Service, document_id: str) -> Path | None:
    """The file of a document, if it is a PDF and still there."""
    is_pdf = service.store.document(document_id).format == "pdf"
    return service.store.document_file(document_id) if is_pdf else None


def picture_of_page(found: DocumentPage, start: int = 0, end: int = 0, password: str | None = None) -> bytes:
    """A page as it is printed, a PNG.

    Args:
        start, end: the characters of the document's text that are marked, where they can be found in print.
        password: of an encrypted file, which is kept as it came.

    Raises:
        NotFound: only PDF has printed pages.
        ingest.IngestError: the file is encrypted, or its page cannot be drawn.
    """
    if found.printed is None:
        raise NotFound(f"{found.title!r} has no printed pages: only those of a PDF are shown as they are.")
    start, end = max(0, start - found.start), min(end - found.start, len(found.page.text))
    number = found.page.number
    try:
        return page_image_in_subprocess(found.printed, number, found.page.text, start, end, password)
    except PasswordNeeded as error:
        raise PasswordNeeded(
            f"{found.title} is encrypted, and its password is not kept: open the PDF itself, or draw the page with "
            f"`STOCKPOT_PASSWORD=... stockpot show {found.document} --page '{number} {OF_THE_FILE}' --picture "
            "page.png`."
        ) from error
    except IngestError as error:  # which knows the file by its name in the home
        raise type(error)(str(error).replace(found.printed.name, found.title)) from error
