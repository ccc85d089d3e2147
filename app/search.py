"""Search: contexts and sessions by title, turns by their words, and documents by their text."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.asking.named_pages import pages_around
from app.formatting import plural
from app.listing import method_in_short
from app.service import Service
from ingest.document import PARAGRAPH_SEPARATOR, Document
from sessions import ContextRow, SessionRow, StoreError, TurnRow, shown_title

PIECE_CHARACTERS = 1500
"""Characters of the paragraphs that are searched as one piece; all words of a query must be in one."""


@dataclass(frozen=True)
class Passage:
    """A passage of a document with the words of a search.

    document: id of the document.
    title: its title.
    page: number of the page, as the file counts.
    place: the place in words.
    start, end: characters of the matching words in the document's text.
    snippet: text around them.
    highlights: (start, end) offsets of the words in `snippet`.
    context: the latest context that read the document; None if none did.
    pages: the name of the place for a question about it, in `context`.
    """

    document: str
    title: str
    page: int
    place: str
    start: int
    end: int
    snippet: str
    highlights: list[tuple[int, int]]
    context: ContextRow | None
    pages: str

    @property
    def lines(self) -> list[str]:
        """Lines to show: the place with its document, and the words."""
        return [f"{self.place} · {shown_title(self.title)}", " ".join(self.snippet.split())]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, with the fields of `SearchHit`."""
        return {
            "context": self.context and self.context.id,
            "context_title": self.context and self.context.title,
            "session": None,
            "title": self.title,
            "turn": None,
            "snippet": self.snippet,
            "highlights": self.highlights,
            "question": None,
            "answer": None,
            "sources": [],
            "document": self.document,
            "page": self.page,
            "place": self.place,
            "start": self.start,
            "end": self.end,
            "pages": self.pages,
        }


@dataclass(frozen=True)
class SearchHit:
    """A context or session with a matching title, or a turn with matching words.

    row: the context or session; for a turn, its session.
    context: the context itself, or the one that a session is over.
    turn: the matching turn, if it is one.
    snippet: part of the turn with the words.
    highlights: (start, end) offsets of the words in `snippet`.
    """

    row: ContextRow | SessionRow
    context: ContextRow
    turn: TurnRow | None = None
    snippet: str = ""
    highlights: list[tuple[int, int]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """Lines to show below the title: the words, and the context."""
        how = method_in_short(self.context)
        if isinstance(self.row, ContextRow):
            return [f"{plural(self.row.tokens, 'token')} · {how}"]
        said = " ".join(self.snippet.split()) if self.turn else plural(self.row.turns, "question")
        return [said, f"{shown_title(self.context.title)} · {how}"]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; session and turn are None if there is none."""
        session = self.row if isinstance(self.row, SessionRow) else None
        return {
            "context": self.context.id,
            "context_title": self.context.title,
            "session": session and session.id,
            "title": self.row.title,
            "turn": self.turn and self.turn.id,
            "snippet": self.snippet,
            "highlights": self.highlights,
            "question": self.turn and self.turn.question,
            "answer": self.turn and self.turn.answer,
            "sources": self.turn.sources if self.turn else [],
            "document": None,
            "page": None,
            "place": None,
            "start": None,
            "end": None,
            "pages": None,
        }


def with_title_words(titles: Mapping[str, str], query: str) -> list[str]:
    """Return the ids of the titles that have every word of a query. titles: by id.

    Accents and case do not matter, and "words in quotes" are a phrase, as in the search of turns.
    """
    given = (_folded(phrase or word) for phrase, word in re.findall(r'"([^"]+)"|([^\s"]+)', query))
    wanted = [each for each in given if each]
    return [id for id, title in titles.items() if wanted and all(each in _folded(title) for each in wanted)]


def _folded(text: str) -> str:
    letters = (each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join("".join(letters).casefold().split())


def pieces_of(document: Document) -> Iterator[tuple[int, int, str]]:
    """Yield page, first character and text of the pieces that a document is searched in: a few paragraphs each."""
    for page, offset in zip(document.pages, document.page_starts, strict=True):
        start = at = 0
        for paragraph in page.text.split(PARAGRAPH_SEPARATOR):
            if at > start and at + len(paragraph) - start > PIECE_CHARACTERS:
                yield page.number, offset + start, page.text[start:at]
                start = at
            at += len(paragraph) + len(PARAGRAPH_SEPARATOR)
        if page.text[start:]:
            yield page.number, offset + start, page.text[start:]


def index_documents(service: Service) -> None:
    """Index documents that were added since the last search. One whose text is missing or altered is left out."""
    for id in service.store.search.unindexed():
        with suppress(StoreError, ValueError):  # ValueError: another version wrote it
            service.store.search.index(id, pieces_of(service.document_cache.document(id)))


def search_documents(
    service: Service, query: str, limit: int, documents: Sequence[str] | None = None, context: ContextRow | None = None
) -> list[Passage]:
    """Return passages of documents with all words of a query, best first.

    Args:
        service: the home in use.
        query: the words.
        limit: most passages.
        documents: ids of the documents to search; None for all.
        context: the context that questions about them are put to; None for the latest one of each document.

    Raises:
        sessions.StoreError: the limit is below 1 or above MOST_HITS.
    """
    index_documents(service)
    hits = service.store.search.pages(query, limit, documents)
    found_in = {hit.document_id for hit in hits if context is None}
    latest = {id: row for id in found_in for row in service.store.contexts.all(id, most=1)}
    found = []
    for hit in hits:
        with suppress(StoreError):  # deleted or damaged meanwhile
            place = service.document_cache.document(hit.document_id).locate(hit.start)
            title, over = service.store.documents.get(hit.document_id).title, context or latest.get(hit.document_id)
            of = over.document_ids if over else [hit.document_id]
            number = of.index(hit.document_id) + 1 if len(of) > 1 else None
            pages = pages_around(place.page, place.paragraph, number, place.label)
            where = (hit.document_id, title, place.page, place.label, hit.start, hit.end)
            found.append(Passage(*where, hit.snippet, hit.highlights, over, pages))
    return found


def search_everything(
    service: Service, query: str, limit: int, document: str | None = None
) -> list["SearchHit | Passage"]:
    """Return what `search_home` finds, then passages of documents, which get half of the limit if they need it.

    Args:
        service: the home in use.
        query: the words.
        limit: most hits.
        document: id of the only document to search; None for everything.

    Raises:
        sessions.StoreError: the limit is below 1 or above MOST_HITS.
    """
    if document is not None:
        return [*search_documents(service, query, limit, [document])]
    said, there = search_home(service, query, limit), search_documents(service, query, limit)
    there = there[: max(limit - len(said), limit // 2)]
    return [*said[: limit - len(there)], *there]


def search_home(service: Service, query: str, limit: int) -> list[SearchHit]:
    """Return contexts with a matching title, then sessions with one and no matching turn, then matching turns.

    Raises:
        sessions.StoreError: the limit is below 1 or above MOST_HITS.
    """
    store = service.store
    said = store.search.turns(query, limit)
    named = with_title_words({row.id: row.title for row in store.contexts.names()}, query)[:limit]
    titled = with_title_words(store.sessions.titles(), query)
    there = store.search.sessions(query, titled)
    talks = store.sessions.existing([id for id in titled if id not in there][:limit])
    over = {*named, *(row.context_id for row in talks), *(hit.session.context_id for hit in said)}
    contexts = {row.id: row for row in store.contexts.existing([*over])}  # without those deleted meanwhile
    found = [SearchHit(contexts[id], contexts[id]) for id in named if id in contexts]
    found += [SearchHit(row, contexts[row.context_id]) for row in talks if row.context_id in contexts]
    found += [
        SearchHit(hit.session, contexts[hit.session.context_id], hit.turn, hit.snippet, hit.highlights)
        for hit in said
        if hit.session.context_id in contexts
    ]
    return found[:limit]
