"""Turn files into documents. Each file is converted once, and recognised by its SHA-256 afterwards.

Documents that are kept can be read again without their files.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import ingest
from app.errors import AppError, phrase
from app.service import Service
from ingest.formats import formats_once
from ingest.subprocess import check_password_in_subprocess, ingest_in_subprocess
from sessions import DocumentRow, ReadOnlyHome, StoreError

log = logging.getLogger(__name__)

LEFT_OUT = "Left out: "
"""First words of the warning about a file that could not be used."""

OnPage = Callable[[str, int, int], None]
"""Callback with the file's name, the pages done and all pages (0 while unknown). Its exceptions end the work."""


@dataclass(frozen=True)
class IngestOptions:
    """Options for turning files into documents.

    title: title of a new document, or of the context if there are several or the document is known.
    password: password of encrypted files, known ones too.
    ocr: whether to recognise text in pictures; None decides page by page.
    beside: whether other documents are read together with these.
    opened: ids of documents whose files were decrypted before; they need no password now.
    refused: SHA-256 of encrypted files that no password has opened; they are left out, known ones too.
    """

    title: str | None = None
    password: str | None = None
    ocr: bool | None = None
    beside: bool = False
    opened: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


@dataclass
class Added:
    """Documents in the order of their files, with warnings and the errors of files that were left out.

    title: title of a context of several; None to use the titles of its documents.
    """

    documents: list[DocumentRow] = field(default_factory=list)
    title: str | None = None
    warnings: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)


def add_documents(
    service: Service,
    sources: Sequence[Path | DocumentRow],
    options: IngestOptions,
    on_page: OnPage,
    added: Added | None = None,
) -> Added:
    """Turn files into documents and keep them. A file that cannot be used is left out, if another can be.

    Args:
        service: the home in use.
        sources: files and kept documents, in reading order.
        options: how to convert the files.
        on_page: told about progress.
        added: result to extend; it is filled in even if an error ends the work.

    Raises:
        ingest.IngestError, sessions.StoreError, OSError, AppError: the only file cannot be used.
        AppError: none of several files can be used.
        Exception: any exception of `on_page`.
    """
    added = Added() if added is None else added
    if service.store.database.read_only:
        raise ReadOnlyHome(service.home)  # before a file is opened, which may take minutes
    if len(sources) > 1 or options.beside:
        options, added.title = replace(options, title=None), options.title
    ended: list[Exception] = []

    def report(name: str, done: int, total: int) -> None:
        try:
            on_page(name, done, total)
        except Exception as error:
            ended.append(error)
            raise

    for source in sources:
        name = source.name if isinstance(source, Path) else source.title
        try:
            report(name, 0, 0)
            row = _add(service, source, options, report)
        except (AppError, ingest.IngestError, StoreError, OSError) as error:
            if ended:
                raise
            log.info("left out %s: %s", name, error)
            added.failures.append(error)
            added.warnings.append(f"{LEFT_OUT}{phrase(error)}")
            continue
        if options.title and options.title.strip() != row.title:  # known before; other readings of it keep their title
            added.title = options.title
        if any(row.id == other.id for other in added.documents):
            if isinstance(source, Path):
                added.warnings.append(f"{LEFT_OUT}{name} is the same as {row.title!r}, which is read once.")
            continue
        added.documents.append(row)
        added.warnings += [f"{row.title}: {warning}" for warning in row.warnings]
    added.warnings[:] = formats_once(added.warnings)
    if not added.documents:
        if len(added.failures) == 1:
            raise added.failures[0]
        raise AppError(" ".join(added.warnings) or "No file was given.")
    return added


def _add(service: Service, source: Path | DocumentRow, options: IngestOptions, on_page: OnPage) -> DocumentRow:
    known = source if isinstance(source, DocumentRow) else _find(service, source)
    if known is not None and isinstance(source, Path):
        password = "" if options.password is None and known.sha256 in options.refused else options.password
        if password is not None and known.format == "pdf" and known.id not in options.opened:
            check_password_in_subprocess(source, password)
        if not service.store.documents.has_content(known.id):
            _mend(service, known, source, options, on_page)
    if known is not None and not (options.ocr and _ocr_may_help(service, known)):
        return known
    was_read = known is not None and service.store.contexts.all(known.id) and ingest.ocr_languages()
    if isinstance(source, DocumentRow) or was_read:
        assert known is not None
        raise AppError(f"{known.title!r} was read without OCR; delete {known.id}, then read the file again with it.")
    document = _ingested(source, options.title or (known.title if known else None), options, on_page)
    row = service.store.documents.add(
        sha256=document.sha256,
        title=document.title,
        format=document.format,
        pages=len(document.pages),
        characters=len(document.text),
        content=document.to_json(),
        file=source,
        warnings=list(document.warnings),
        instead_of=known.id if known else None,
    )
    if known:
        service.document_cache.drop(known.id)
    return row


def _ingested(file: Path, title: str | None, options: IngestOptions, on_page: OnPage) -> ingest.Document:
    return ingest_in_subprocess(
        file,
        title=title,
        password=options.password,
        ocr=options.ocr,
        on_page=lambda done, total: on_page(file.name, done, total),
    )


def _mend(service: Service, known: DocumentRow, file: Path, options: IngestOptions, on_page: OnPage) -> None:
    """Make the lost or altered text of a known document again from its file.

    Raises:
        StoreCorrupt: the new text differs, so that contexts of the document would not fit it.
    """
    content = _ingested(file, None, options, on_page).to_json()
    titles = (content["title"], known.title)  # the original title, or the one it was renamed to
    if not any(service.store.documents.mend_content(known.id, {**content, "title": title}) for title in titles):
        service.store.documents.content(known.id)  # raises with the reason
    service.document_cache.drop(known.id)
    log.warning("the text of %s was damaged, and is made anew from %s", known.id, file.name)


def _find(service: Service, file: Path) -> DocumentRow | None:
    """Return the document of a file, or None if it is not kept."""
    ingest.check_file(file)
    return service.store.documents.find(ingest.fingerprint(file))


def _ocr_may_help(service: Service, row: DocumentRow) -> bool:
    """Return whether OCR could add text to pages of a known document."""
    pages = service.document_cache.document(row.id).pages
    return row.format == "pdf" and any(page.quality.ocr_may_help for page in pages)
