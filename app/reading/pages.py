"""The pages of documents, numbered as the file counts them: their text, and a PDF's pages as pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app.asking.named_pages import OF_THE_FILE
from app.errors import NotFound
from app.service import Service
from ingest import Document, IngestError, Page, PasswordNeeded, TocEntry
from ingest.subprocess import page_image_in_subprocess

NOT_READ = "not read"


@dataclass(frozen=True)
class DocumentPage:
    """A page of a document.

    document: id of the document.
    start: offset of the page in the document's text, in characters.
    numbers: numbers of the first and the last page.
    printed: the PDF that shows the page as printed, if there is one.
    contents: table of contents of the document.
    """

    document: str
    title: str
    page: Page
    start: int
    numbers: tuple[int, int]
    printed: Path | None
    contents: tuple[TocEntry, ...] = ()


def page_of(service: Service, document_id: str, number: int) -> DocumentPage:
    """Return the page with this number.

    Raises:
        NotFound: the document has no such page.
    """
    document = service.document_cache.document(document_id)
    for page, start in zip(document.pages, document.page_starts, strict=True):
        if page.number == number:
            title, printed = service.store.documents.get(document_id).title, pdf_of(service, document_id)
            numbers = document.pages[0].number, document.pages[-1].number
            return DocumentPage(document_id, title, page, start, numbers, printed, _contents(document))
    known = f"its pages are 1 to {document.pages[-1].number:,}" if document.pages else "it has none"
    raise NotFound(f"There is no page {number} in {document_id}: {known}.")


def _contents(document: Document) -> tuple[TocEntry, ...]:
    """Return the table of contents, with pages marked that are not read."""
    unread = {page.number for page in document.imprints}
    return tuple(
        replace(entry, title=f"{entry.title} ({NOT_READ})") if entry.page in unread else entry for entry in document.toc
    )


def pdf_of(service: Service, document_id: str) -> Path | None:
    """Return the file of a document if it is a PDF and still there, else None."""
    is_pdf = service.store.documents.get(document_id).format == "pdf"
    return service.store.documents.file(document_id) if is_pdf else None


def picture_of_page(found: DocumentPage, start: int = 0, end: int = 0, password: str | None = None) -> bytes:
    """Return a page as printed, as a PNG.

    Args:
        found: a page of a PDF.
        start: first character of the document's text to mark, where it can be found in print.
        end: offset behind the last character to mark.
        password: password of an encrypted file.

    Raises:
        NotFound: the document is no PDF, or its file is gone.
        ingest.IngestError: the file is encrypted, or its page cannot be drawn.
    """
    if found.printed is None:
        raise NotFound(f"{found.title!r} has no printed pages: only those of a PDF are shown as they are.")
    start, end = max(0, start - found.start), min(end - found.start, len(found.page.text))
    number = found.page.number
    command = f"stockpot show {found.document} --page '{number} {OF_THE_FILE}' --picture page.png"
    with called_by_title(found.printed, found.title, command):
        return page_image_in_subprocess(found.printed, number, found.page.text, start, end, password)


@contextmanager
def called_by_title(file: Path, title: str, command: str) -> Iterator[None]:
    """Let errors about a kept file name it by its title. command: does the same with a password."""
    try:
        yield
    except PasswordNeeded as error:
        raise PasswordNeeded(
            f"{title} is encrypted, and its password is not kept: open the PDF itself, or type "
            f"`STOCKPOT_PASSWORD=... {command}`."
        ) from error
    except IngestError as error:  # it names the file as the home does
        raise type(error)(str(error).replace(file.name, title)) from error
