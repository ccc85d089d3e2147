"""A cache of the texts of documents, and of the words on their pages."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Self

from app.asking.quotes import PageWords
from app.lru_cache import LruCache

if TYPE_CHECKING:
    import ingest
    from sessions import TextFile

MOST_DOCUMENTS = 16


class DocumentCache:
    """The documents used last, each loaded from its file once."""

    def __init__(self, fetch: Callable[[str], "ingest.Document"]) -> None:
        """Start empty. fetch: loads the document with an id."""
        self._fetch = fetch
        self._documents: LruCache[str, ingest.Document] = LruCache(MOST_DOCUMENTS)
        self._words: LruCache[str, PageWords] = LruCache(MOST_DOCUMENTS)

    def over(self, texts: "Sequence[TextFile]") -> Self:
        """Return this cache with the documents of these texts; what is loaded is held by both."""
        import ingest

        files, other = {each.id: each for each in texts}, copy(self)
        other._fetch = lambda id: ingest.Document.from_json(files[id].content())
        return other

    def document(self, document_id: str) -> "ingest.Document":
        """Return the document with this id."""
        return self._documents.get(document_id, lambda: self._fetch(document_id))

    def words(self, document_id: str) -> PageWords:
        """Return the words of a document's pages, to look up quotations in."""
        pages = self.document(document_id).pages
        return self._words.get(document_id, lambda: PageWords([page.text for page in pages]))

    def ids(self) -> list[str]:
        """Return the ids of the documents held."""
        return self._documents.ids()

    def drop(self, document_id: str) -> None:
        """Drop a document that was deleted."""
        self._documents.drop(document_id)
        self._words.drop(document_id)
