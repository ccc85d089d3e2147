"""A recap: two sentences on each chapter that a reader knows, by a sweep over the chapters.

Of a long chapter the beginning and the end are read again. A sentence is told if its names and most of its long words
stand there, and its numbers in one sentence; instead of any other, the sentence of the chapter that it comes closest to
is quoted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Place
from app.asking.document_map import Chapter, chapters
from app.asking.introduction import SHARED, telling, well_said, whole_sentences
from app.asking.named_pages import Named, as_kept, named_pages, page_name, pages_up_to, spans_of
from app.asking.not_found import says_not_found
from app.asking.quotes import Span, sentences_of
from app.asking.sweep import Finding, Shape, Task, every, findings_of
from app.reading.document_cache import DocumentCache
from app.service import Service
from ingest import Document
from ingest.document import noun_of_pages
from sessions import ContextRow

QUESTION = "Summarize this in two short sentences."
SHAPE = Shape("recap", AnswerOptions(0.0, max_tokens=80, max_reasoning=0), lambda *_: [])
SENTENCES = 2
"""Most sentences of a chapter."""
LETTERS = 2500
"""Characters of the beginning of a chapter that are read again, and of its end."""
STRETCHES = 12
"""Parts of a document without chapters."""


@dataclass(frozen=True)
class Part:
    """A chapter as far as it is known.

    document: its id.
    title: title of the chapter.
    page: its first page, as the file counts.
    pages: those that are read again, as the store keeps them.
    spans: their characters in the document's text.
    sentences: what happens there; None if that was not asked yet.
    """

    document: str
    title: str
    page: int
    pages: str
    spans: tuple[tuple[int, int], ...]
    sentences: tuple[str, ...] | None = None


def parts_of(context: ContextRow, up_to: str, document_cache: DocumentCache) -> list[Part]:
    """Return the chapters of a context, without sentences.

    Args:
        context: the context.
        up_to: the last page that is known, as a person names it; "" for all.
        document_cache: the documents.

    Raises:
        UsageError: there is no such page.
    """
    ids = context.document_ids
    pages = pages_up_to(up_to, ids, document_cache) if up_to.strip() else ""
    named = named_pages(pages, ids, document_cache) if pages else []
    ends = {id: end for id, _, end in spans_of(named, ids, document_cache)}
    found = []
    for number, id in enumerate(ids, 1):
        document = document_cache.document(id)
        known = ends.get(id, 0) if pages else len(document.text)
        for each in chapters(document) or _stretches(document):
            start, end = document.span(each.first)[0], min(known, document.span(each.last)[1])
            if start < end:
                read = _both_ends(document, number, start, end)
                spans = tuple((low, high) for _, low, high in spans_of(read, ids, document_cache))
                found.append(Part(id, each.title, each.first, as_kept(read, ids, document_cache), spans))
    return found


def _stretches(document: Document) -> list[Chapter]:
    """Return about STRETCHES parts of a document without chapters, of as many pages each."""
    pages, noun = len(document.pages), noun_of_pages(document.format)
    many = -(-pages // STRETCHES)
    found = [(first, min(pages, first + many - 1)) for first in range(1, pages + 1, many)]
    return [
        Chapter(
            f"{noun}s {page_name(document, first, last)}" if last > first else document.pages[first - 1].label,
            None,
            first,
            last,
        )
        for first, last in found
    ]


def _both_ends(document: Document, number: int, start: int, end: int) -> list[Named]:
    """Return what is read again of characters `start` to `end`: all, or of many about LETTERS of both ends.

    number: number of the document.
    """
    if end - start <= 2 * LETTERS:
        return [*_named(document, number, start, end)]
    return [*_named(document, number, start, start + LETTERS), *_named(document, number, end - LETTERS, end)]


def _named(document: Document, number: int, start: int, end: int) -> Iterator[Named]:
    """Yield the pages that have characters `start` to `end`; the paragraphs, where a document has no printed pages."""
    first, last = document.locate(start), document.locate(end - 1)
    if first.paragraph is None or last.paragraph is None:
        yield Named(number, first.page, last.page)
        return
    for page in range(first.page, last.page + 1):
        low = max(1, first.paragraph) if page == first.page else 1
        high = last.paragraph if page == last.page else document.paragraphs(page)
        if low <= high:
            yield Named(number, low, high, page)


def recap(service: Service, context: ContextRow, up_to: str) -> Task:
    """Return the sweep that sums up the chapters of a context. It is told as `parts` with their sentences.

    up_to: see `parts_of`.
    """
    parts = parts_of(context, up_to, service.document_cache)

    @cache
    def summed_up(part: Part, said: str) -> dict[str, Any]:
        return asdict(_summed_up(part, said, service.document_cache))

    def told(findings: Sequence[Finding]) -> dict[str, Any]:
        return {"parts": [summed_up(part, found.said) for part, found in zip(parts, findings, strict=False)]}

    return every([QUESTION], [Place(context.id, part.pages) for part in parts], SHAPE, told)


def known_recap(service: Service, context: ContextRow, up_to: str = "") -> list[Part]:
    """Return the chapters of a context, with the sentences that are known. up_to: see `parts_of`."""
    documents = service.document_cache
    parts = parts_of(context, up_to, documents)
    found = findings_of(service, [Place(context.id)])
    keys = [(Place(context.id, part.pages), QUESTION, SHAPE.name) for part in parts]
    return [
        _summed_up(part, found[key].said, documents) if key in found else part
        for part, key in zip(parts, keys, strict=True)
    ]


def _summed_up(part: Part, said: str, document_cache: DocumentCache) -> Part:
    """Return a chapter with the sentences of an answer that rest on its text, or those that others come closest to."""
    text = document_cache.document(part.document).text
    there = [text[each.start : each.end] for span in part.spans for each in sentences_of(text, Span(*span))]
    known, told = telling(" ".join(there)), list[str]()
    for each in [] if says_not_found(said) else whole_sentences(said) or [said]:
        best = max(there, key=lambda own: len(telling(own) & telling(each)))
        close = len(telling(best) & telling(each)) >= SHARED
        told += (well_said(each, known) if _stands_together(each, there) else []) or (
            [f"“{' '.join(best.split())}”"] if close else []
        )
    return replace(part, sentences=tuple(dict.fromkeys(told))[:SENTENCES])


def _stands_together(sentence: str, there: Sequence[str]) -> bool:
    """Return whether one sentence of a text has the numbers of another, and some of its telling words."""
    words = telling(sentence)
    figures = {word for word in words if any(map(str.isdecimal, word))}
    return not figures or any(figures <= telling(own) and len(telling(own) & words) >= SHARED for own in there)
