"""Previews: chosen files are opened in the background, so that the page can say how long they are before it reads them.

Nothing of a preview is kept on disk. A file that was opened before is known by its SHA-256.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ingest
from app.errors import phrase
from app.formatting import plural, roughly
from app.language import t
from app.lru_cache import LruCache
from app.reading.token_stream import read_text
from ingest.subprocess import ingest_in_subprocess
from sessions import StoreError

if TYPE_CHECKING:
    from sessions import DocumentRow

PAGE_CHARACTERS = 1_500
"""Characters of a page of an ordinary book."""
MOST_PREVIEWS = 256
SAMPLES, SAMPLE_CHARACTERS = 3, 8_000
"""Pieces of a text, and their length, that its number of tokens is estimated from."""


@dataclass(frozen=True)
class Length:
    """The length of a document. printed: its pages in print; 0 for documents without printed pages."""

    printed: int
    characters: int

    @property
    def pages(self) -> int:
        """Pages in print, or those that a printed book of this length would have."""
        return self.printed or pages_of(self.characters)


@dataclass(frozen=True)
class Preview:
    """The size of a document.

    title: its title.
    length: its length.
    samples: some pieces of its text.
    reason: why it cannot be opened, or not yet; empty if it can.
    readable: False if this computer cannot read it, not even with a password.
    """

    title: str
    length: Length = Length(0, 0)
    samples: tuple[str, ...] = ()
    reason: str = ""
    readable: bool = True

    def tokens(self, count: Callable[[str], int]) -> int:
        """Return the estimated number of tokens of the text. count: returns the tokens of a piece of text."""
        sampled = sum(map(len, self.samples))
        return round(sum(map(count, self.samples)) * self.length.characters / sampled) if sampled else 0


def pages_of(characters: float) -> int:
    """Return the pages of an ordinary book that a text of so many characters fills."""
    return max(1, round(characters / PAGE_CHARACTERS))


def length_of(format: str, pages: int, characters: int) -> Length:
    """Return the length of a document of a format, with its pages as the document counts them."""
    return Length(pages if ingest.FORMATS[format].has_fixed_pages else 0, characters)


def pages_in_words(lengths: Sequence[Length]) -> str:
    """Return the length of documents: "12 pages" if all are in print, else "about 450 pages"."""
    pages = sum(each.pages for each in lengths)
    if all(each.printed for each in lengths):
        return plural(pages, "page")
    return t("about 1 page") if pages == 1 else t("about {n} pages", n=roughly(pages))


def preview_of(document: ingest.Document, title: str = "") -> Preview:
    """Return the preview of a document. title: shown instead of its own."""
    text = read_text(document)
    last = max(0, len(text) - SAMPLE_CHARACTERS)
    starts = sorted({last * number // (SAMPLES - 1) for number in range(SAMPLES)})
    samples = tuple(text[start : start + SAMPLE_CHARACTERS] for start in starts)
    return Preview(title or document.title, length_of(document.format, len(document.pages), len(text)), samples)


class Previews:
    """Previews of files by path. Files are opened one after another, in processes of their own."""

    def __init__(self, find: Callable[[str], "DocumentRow | None"], fetch: Callable[[str], ingest.Document]) -> None:
        """Start without previews.

        Args:
            find: returns the kept document with this SHA-256, or None.
            fetch: returns the text of a kept document by its id.
        """
        self._find, self._fetch = find, fetch
        self._found: LruCache[Path, Future[Preview]] = LruCache(MOST_PREVIEWS)
        self._thread = ThreadPoolExecutor(1, "preview")
        self._closed = threading.Event()

    def get(self, path: Path) -> Preview | None:
        """Return the preview of a file, or None while it is being opened. The first call begins with it."""
        future = self._found.get(path, lambda: self._thread.submit(self._open, path))
        return future.result() if future.done() else None

    def forget_refusals(self) -> None:
        """Forget files that could not be opened, so that `get` tries again: a missing program may be there by then."""
        self._found.drop_where(lambda future: future.done() and bool(future.result().reason))

    def close(self) -> None:
        """Stop opening files."""
        self._closed.set()
        self._thread.shutdown(cancel_futures=True)

    def _open(self, path: Path) -> Preview:
        try:
            ingest.check_file(path)
            row = self._find(ingest.fingerprint(path))
            if row is not None:
                return preview_of(self._fetch(row.id), row.title)
            return preview_of(ingest_in_subprocess(path, ocr=False, on_page=self._look))
        except (ingest.PasswordNeeded, StoreError, OSError, _Closed) as error:
            return Preview(path.name, reason=phrase(error))
        except ingest.IngestError as error:
            if isinstance(error, ingest.NeedsOcr) and ingest.ocr_languages():
                reason = f"The pages of {path.name} are pictures: their text is recognised before it is read."
                return Preview(path.name, reason=reason)
            return Preview(path.name, reason=phrase(error), readable=False)

    def _look(self, done: int, total: int) -> None:
        if self._closed.is_set():
            raise _Closed


class _Closed(Exception):
    """The program ends."""
