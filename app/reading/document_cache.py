"""The texts of documents, and the words on their pages, kept in memory while they are in use."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.asking.quotes import PageWords
from app.lru_cache import LruCache

if TYPE_CHECKING:
    import ingest

MOST_DOCUMENTS = 16


class DocumentCache:
    """Documents that were used lately, each read from its file once."""

    def __init__(self, fetch: Callable[[str], "ingest.Document"]) -> None:
        """fetch: gives the document of an id."""
        self._fetch = fetch
        self._documents: LruCache[str, ingest.Document] = LruCache(MOST_DOCUMENTS)
        self._words: LruCache[str, PageWords] = LruCache(MOST_DOCUMENTS)

    def document(self, document_id: str) -> "ingest.Document":
        """The document of an id."""
        return self._documents.get(document_id, lambda: self._fetch(document_id))

    def words(self, document_id: str) -> PageWords:
        """The words of its pages, for looking up quotations."""
        pages = self.document(document_id).pages
        return self._words.get(document_id, lambda: PageWords([page.text for page in pages]))

    def ids(self) -> list[str]:
        """The ids of the documents that are held."""
        return self._documents.ids()

    def drop(self, document_id: str) -> None:
        """Forget a document that was deleted."""
        self._documents.drop(document_id)
        self._words.drop(document_id)
