"""Where an answer rested: passages of tokens become places with the words there, and quotations are checked."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.asking.quotes import quotations_in, sentences_around
from app.reading.document_cache import DocumentCache

if TYPE_CHECKING:
    import engine
    from app.reading.token_stream import Stream

MOST_SOURCES = 5  # of what the answer as a whole rested on; what its sentences did comes on top
MOST_CITED = 12


@dataclass(frozen=True)
class Source:
    """A place in a document that an answer rested on.

    document: id; page: 1-based; place: in words ("page 12"); quote: the whole sentences there, as they are on the page;
    weight: share of the attention that fell on the source, 0 to 1; start, end: the quote's place in the document's
    text; paragraph: as `ingest.Place` has it.
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
    """Words in quotation marks in an answer: characters `start` to `end` of it, and where they are, if anywhere."""

    start: int
    end: int
    document: str | None
    page: int | None
    place: str | None


def find_sources(passages: Sequence["engine.Passage"], stream: "Stream", document_cache: DocumentCache) -> list[Source]:
    """Return the places of an answer's passages, at most MOST_SOURCES; passages whose sentences overlap are one source.

    Returns:
        The heaviest first.
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
    """A sentence of an answer, characters `start` to `end` of it, and what it rested on most: the index of a source."""

    start: int
    end: int
    source: int


def with_citations(
    sources: Sequence[Source], sentences: Sequence["engine.Sentence"], stream: "Stream", document_cache: DocumentCache
) -> tuple[list[Source], list[Citation]]:
    """What each of several sentences rested on most; a single one has all sources.

    Returns:
        The sources with those added that sentences rested on, heaviest first, at most MOST_CITED; and the citations.
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
    return (
        _at(document_cache, document_id, offset + span.start, offset + span.end, weight)
        if span.start < span.end
        else None
    )


def _merged(document_cache: DocumentCache, sources: Sequence[Source]) -> Source:
    """Return one source of several that overlap."""
    start, end = min(each.start for each in sources), max(each.end for each in sources)
    return _at(document_cache, sources[0].document, start, end, sum(each.weight for each in sources))


def _at(document_cache: DocumentCache, document_id: str, start: int, end: int, weight: float) -> Source:
    document = document_cache.document(document_id)
    place = document.locate(start)
    quote = document.text[start:end]
    return Source(document_id, place.page, place.label, quote, float(weight), start, end, place.paragraph)


def check_quotations(answer: str, document_ids: Sequence[str], document_cache: DocumentCache) -> list[Quotation]:
    """Every quotation in an answer, with the place where its words really are, or None for the place."""
    quotations = quotations_in(answer)
    checked = [Quotation(span.start, span.end, None, None, None) for span, _ in quotations]
    for document_id in document_ids:  # each is opened once, as not all may be held
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
