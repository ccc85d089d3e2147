"""Notes of a chat: answers and passages that a person keeps, with the document, page and quote of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.errors import NotFound
from app.reading.pages import called_by_title, pdf_of
from app.service import Service
from app.word import as_docx
from ingest.subprocess import highlighted_in_subprocess

FORMATS = ("md", "docx", "json")
"""Formats of an exported chat."""


@dataclass(frozen=True)
class Note:
    """A kept answer with its sources, or a kept source.

    name: "3" for the answer to the third question, "3.2" for its second source.
    turn: id of the turn.
    answer: the answer; "" for a source.
    sources: as in a turn, each with the title of its document.
    """

    name: str
    turn: str
    question: str
    answer: str
    sources: list[dict[str, Any]]


def notes_of(service: Service, session_id: str) -> list[Note]:
    """Return the notes of a chat, in the order of its questions."""
    session = service.store.sessions.get(session_id)
    titles = {row.id: row.title for row in service.store.contexts.documents(session.context_id)}
    notes = []
    for turn in service.store.turns.all(session_id):
        sources = [{"title": titles.get(each["document"], ""), **each} for each in turn.sources]
        for number in turn.kept:
            name = f"{turn.position + 1}.{number}" if number else f"{turn.position + 1}"
            own = [sources[number - 1]] if number else sources
            notes.append(Note(name, turn.id, turn.question, "" if number else turn.answer, own))
    return notes


def exported(service: Service, session_id: str, format: str, notes: bool = False) -> bytes:
    """Return a chat as a file to take along. format: one of FORMATS; notes: only the notes."""
    text = service.store.export_session(session_id, "json" if format == "json" else "md", notes)
    return as_docx(text) if format == "docx" else text.encode()


def quoted_pdfs(service: Service, session_id: str) -> dict[str, str]:
    """Return the titles by id of the PDFs that the notes of a chat quote."""
    found = {source["document"]: source["title"] for source in _quoted(service, session_id)}
    return {id: title for id, title in found.items() if pdf_of(service, id)}


def highlighted_pdf(service: Service, session_id: str, document_id: str, password: str | None = None) -> bytes:
    """Return a copy of a PDF with the passages highlighted that a chat's notes quote.

    Raises:
        NotFound: no note quotes this PDF.
        ingest.IngestError: it is encrypted, or cannot be written in.
    """
    path = pdf_of(service, document_id)
    document, passages = service.document_cache.document(document_id), []
    for source in _quoted(service, session_id):
        if source["document"] == document_id:
            page, start = document.pages[source["page"] - 1], document.page_starts[source["page"] - 1]
            first, end = max(0, source["start"] - start), min(source["end"] - start, len(page.text))
            passages.append(
                {"number": page.number, "text": page.text, "start": first, "end": end, "said": source["asked"]}
            )
    if path is None or not passages:
        raise NotFound(f"No note of this chat quotes a PDF {document_id}: keep a passage of it first.")
    title = service.store.documents.get(document_id).title
    with called_by_title(path, title, f"stockpot notes {session_id} --highlight FOLDER"):
        return highlighted_in_subprocess(path, passages, password)


def _quoted(service: Service, session_id: str) -> Iterator[dict[str, Any]]:
    """Yield each passage that the notes quote once, with the question that it answered."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for note in notes_of(service, session_id):
        for each in note.sources:
            if "start" in each:  # sources of old versions have none
                found.setdefault((each["document"], each["start"], each["end"]), {**each, "asked": note.question})
    yield from found.values()
