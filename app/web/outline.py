"""The outline of documents: their chapters, and where these begin. A document never changes, so it is made once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.reading.memory_map import STRETCHES, Remembered
from app.service import Service
from ingest.document import noun_of_pages
from ingest.formats import FORMATS


@dataclass(frozen=True)
class Chapter:
    """A line of the contents. level: from 1; page: as the file counts; start: first character in the text."""

    level: int
    title: str
    page: int
    start: int


@dataclass(frozen=True)
class Outline:
    """The outline of a document.

    chapters: its table of contents; sections, where it has none.
    places: first character and page of each page.
    characters: length of the text.
    noun: noun for its pages.
    """

    chapters: tuple[Chapter, ...]
    places: tuple[tuple[int, int], ...]
    characters: int
    noun: str

    def page_at(self, character: int) -> int:
        """Return the page of a character."""
        return max((page for start, page in self.places if start <= character), default=1)


@dataclass(frozen=True)
class Cell:
    """A stretch of a document in its map. share: part of it that the memory holds; None if it holds everything."""

    document: str
    start: int
    end: int
    page: int
    share: float | None


class Outlines:
    """The outlines of a home's documents."""

    def __init__(self, service: Service) -> None:
        """Start with no outline made."""
        self._service = service
        self._known: dict[str, Outline] = {}

    def of(self, document_id: str) -> Outline:
        """Return the outline of a document.

        Raises:
            sessions.StoreError: its text is missing or altered.
        """
        if document_id not in self._known:
            document = self._service.document_cache.document(document_id)
            starts = dict(zip((page.number for page in document.pages), document.page_starts, strict=True))
            listed = [(entry.level, entry.title, entry.page) for entry in document.toc if entry.page in starts]
            if not listed and len(document.pages) > 1 and not FORMATS[document.format].has_fixed_pages:
                listed = [(1, page.label, page.number) for page in document.pages]
            self._known[document_id] = Outline(
                tuple(Chapter(level, title, page, starts[page]) for level, title, page in listed),
                tuple(zip(document.page_starts, starts, strict=True)),
                len(document.text),
                noun_of_pages(document.format),
            )
        return self._known[document_id]


def cells(outlines: Sequence[tuple[str, Outline]], remembered: Sequence[Remembered]) -> list[Cell]:
    """Return the cells of a map from beginning to end.

    Args:
        outlines: id and outline of each document, in reading order.
        remembered: the memory map; empty if everything is held.
    """
    known = dict(outlines)
    if remembered:
        return [
            Cell(each.document, each.start, each.end, known[each.document].page_at(each.start), each.share)
            for each in remembered
            if each.document in known
        ]
    total = sum(outline.characters for _, outline in outlines) or 1
    found = []
    for id, outline in outlines:
        pieces = max(1, round(STRETCHES * outline.characters / total))
        edges = [outline.characters * number // pieces for number in range(pieces + 1)]
        for start, end in pairwise(edges):
            found.append(Cell(id, start, end, outline.page_at(start), None))
    return found
