"""Sources of an answer: map passages of tokens to places with their words, and check quotations."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.asking.quotes import quotations_in, sentences_around
from app.reading.document_cache import DocumentCache

if TYPE_CHECKING:
    import engine
    from app.reading.token_stream import Stream

MOST_SOURCES = 5  # for the answer as a whole; those of its sentences are added
MOST_CITED = 12
CUT = "…"
"""Stands in a quote where a sentence is cut."""


@dataclass(frozen=True)
class Source:
    """A place in a document that an answer attended to.

    document: id of the document.
    page: number of the page, as the file counts, from 1.
    place: the place in words, "page 12".
    quote: the whole sentences there, as on the page; "…" stands where a very long one is cut.
    weight: share of the attention on the documents, 0 to 1.
    start, end: characters of the quote in the document's text.
    paragraph: number of the paragraph, if the document has paragraphs.
    """

    document: str
    page: int
    place: str
    quote: str
    weight: float
    start: int
    end: int
    paragraph: int | None = None


@dataclass(frozen=True)
class Quotation:
    """Characters `start` to `end` of an answer in quotation marks, and the place of these words, if they are there."""

    start: int
    end: int
    document: str | None
    page: int | None
    place: str | None


def find_sources(passages: Sequence["engine.Passage"], stream: "Stream", document_cache: DocumentCache) -> list[Source]:
    """Return the places of an answer's passages, heaviest first, at most MOST_SOURCES.

    Passages whose sentences overlap become one source.
    """
    found: list[Source] = []
    for passage in sorted(passages, key=lambda passage: -passage.weight):
        spans = stream.spans(passage.start, passage.end)
        for span in spans:
            source = _source(document_cache, span.document_id, span.start, span.end, passage.weight / len(spans))
            if source is None:
                continue
            same = [other for other in found if _overlap(other, source)]
            found = [other for other in found if other not in same]
            found.append(_merged(document_cache, [*same, source]) if same else source)
    return sorted(found, key=lambda source: -source.weight)[:MOST_SOURCES]


@dataclass(frozen=True)
class Citation:
    """A sentence of an answer, characters `start` to `end`, and the index of the source that it attended to most."""

    start: int
    end: int
    source: int


def with_citations(
    sources: Sequence[Source], sentences: Sequence["engine.Sentence"], stream: "Stream", document_cache: DocumentCache
) -> tuple[list[Source], list[Citation]]:
    """Cite the heaviest source for each sentence of an answer with several sentences.

    Returns:
        The sources, with those of sentences added, heaviest first, at most MOST_CITED; and the citations.
    """
    if len(sentences) < 2:
        return list(sources), []
    known, cited = list(sources), []
    for sentence in sentences:
        for source in find_sources(sentence.passages[:1], stream, document_cache)[:1]:
            number = next((at for at, other in enumerate(known) if _overlap(other, source)), len(known))
            if number == len(known) < MOST_CITED:
                known.append(source)
            if number < len(known):
                cited.append((sentence, known[number]))
    known.sort(key=lambda source: -source.weight)
    return known, [Citation(sentence.start, sentence.end, known.index(source)) for sentence, source in cited]


def _overlap(first: Source, second: Source) -> bool:
    return first.document == second.document and first.start < second.end and second.start < first.end


def _source(document_cache: DocumentCache, document_id: str, start: int, end: int, weight: float) -> Source | None:
    """Return the source of the sentences around characters `start` to `end` of a document; None if all are blank."""
    document = document_cache.document(document_id)
    while start < end and document.text[start].isspace():
        start += 1
    if start >= end:
        return None
    index = bisect_right(document.page_starts, start) - 1
    offset, page_text = document.page_starts[index], document.pages[index].text
    span = sentences_around(page_text, start - offset, end - offset)
    if span.start >= span.end:
        return None
    found = _at(document_cache, document_id, offset + span.start, offset + span.end, weight)
    return replace(found, quote=f"{'' if span.begins else CUT}{found.quote}{'' if span.ends else CUT}")


def _merged(document_cache: DocumentCache, sources: Sequence[Source]) -> Source:
    """Return one source for several that overlap."""
    first, last = min(sources, key=lambda each: each.start), max(sources, key=lambda each: each.end)
    found = _at(document_cache, first.document, first.start, last.end, sum(each.weight for each in sources))
    before, behind = (CUT if cut else "" for cut in (first.quote.startswith(CUT), last.quote.endswith(CUT)))
    return replace(found, quote=f"{before}{found.quote}{behind}")


def _at(document_cache: DocumentCache, document_id: str, start: int, end: int, weight: float) -> Source:
    document = document_cache.document(document_id)
    place = document.locate(start)
    quote = document.text[start:end]
    return Source(document_id, place.page, place.label, quote, float(weight), start, end, place.paragraph)


def check_quotations(answer: str, document_ids: Sequence[str], document_cache: DocumentCache) -> list[Quotation]:
    """Return every quotation in an answer with the place of its words, or None for the place."""
    quotations = quotations_in(answer)
    checked = [Quotation(span.start, span.end, None, None, None) for span, _ in quotations]
    for document_id in document_ids:  # opens each document once, because the cache may not hold all
        missing = [number for number, found in enumerate(checked) if found.document is None]
        for number in missing:
            span, words = quotations[number]
            index = document_cache.words(document_id).find(words)
            if index is not None:
                page = document_cache.document(document_id).pages[index]
                checked[number] = Quotation(span.start, span.end, document_id, page.number, page.label)
        if not missing:
            break
    return checked
