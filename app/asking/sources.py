"""Sources of an answer: map passages of tokens to places with their words, and check quotations."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.asking.quotes import Span, quotations_in, sentences_around, sentences_of
from app.reading.document_cache import DocumentCache

if TYPE_CHECKING:
    import engine
    from app.reading.token_stream import Stream, TextSpan

MOST_SOURCES = 5  # for the answer as a whole; those of its sentences are added
MOST_CITED = 12
LEAST_SHARE = 0.05  # of the attention; places with less are not shown
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


def find_sources(
    passages: Sequence["engine.Passage"], stream: "Stream", document_cache: DocumentCache, said: str = ""
) -> list[Source]:
    """Return the places of an answer's passages, heaviest first, at most MOST_SOURCES, none under LEAST_SHARE.

    Passages whose sentences overlap become one source.

    Args:
        passages: what the answer attended to.
        stream: the tokens of the text.
        document_cache: gives its documents.
        said: the question and its answer, whose words choose between the pages of a passage.
    """
    found = _places_of(passages, stream, document_cache, said)
    return [source for source in found if source.weight >= LEAST_SHARE][:MOST_SOURCES]


def _places_of(
    passages: Sequence["engine.Passage"], stream: "Stream", document_cache: DocumentCache, said: str
) -> list[Source]:
    """Return all places of passages, heaviest first."""
    found: list[Source] = []
    words = _telling(said)
    for passage in sorted(passages, key=lambda passage: -passage.weight):
        spans = stream.spans(passage.start, passage.end)
        for span in spans:
            source = _source(document_cache, span, passage.weight / len(spans), words)
            if source is None:
                continue
            same = [other for other in found if _overlap(other, source)]
            found = [other for other in found if other not in same]
            found.append(_merged(document_cache, [*same, source]) if same else source)
    return sorted(found, key=lambda source: -source.weight)


@dataclass(frozen=True)
class Citation:
    """A sentence of an answer, characters `start` to `end`, and the index of the source that it attended to most."""

    start: int
    end: int
    source: int


def with_citations(
    sources: Sequence[Source],
    sentences: Sequence["engine.Sentence"],
    stream: "Stream",
    document_cache: DocumentCache,
    said: str,
) -> tuple[list[Source], list[Citation]]:
    """Cite the heaviest source for each sentence of an answer with several sentences.

    Returns:
        The sources, with those of sentences added, heaviest first and at most MOST_CITED, and the citations. No added
        source has less than LEAST_SHARE.
    """
    if len(sentences) < 2:
        return list(sources), []
    known, cited = list(sources), []
    for sentence in sentences:
        for source in _places_of(sentence.passages[:1], stream, document_cache, said)[:1]:
            number = next((at for at, other in enumerate(known) if _overlap(other, source)), len(known))
            if number == len(known) < MOST_CITED and source.weight >= LEAST_SHARE:
                known.append(source)
            if number < len(known):
                cited.append((sentence, known[number]))
    known.sort(key=lambda source: -source.weight)
    return known, [Citation(sentence.start, sentence.end, known.index(source)) for sentence, source in cited]


def _overlap(first: Source, second: Source) -> bool:
    return first.document == second.document and first.start < second.end and second.start < first.end


def _source(document_cache: DocumentCache, span: "TextSpan", weight: float, words: set[str]) -> Source | None:
    """Return the source of the sentences in a piece of text, on the page that has most of the words; None if blank."""
    document = document_cache.document(span.document_id)
    found: list[tuple[int, int, Span]] = []  # how many words, and characters, are on a page, and where
    first, last = (bisect_right(document.page_starts, at) - 1 for at in (span.start, max(span.start, span.end - 1)))
    for page in range(first, last + 1):
        text, offset = document.pages[page].text, document.page_starts[page]
        held = sentences_around(text, max(0, span.start - offset), span.end - offset)
        if held.start < held.end:
            has = len(words & _telling(text[held.start : held.end]))
            found.append((has, held.end - held.start, replace(held, start=offset + held.start, end=offset + held.end)))
    if not found:
        return None
    *_, best = max(found, key=lambda each: each[:2])
    source = source_at(document_cache, span.document_id, best.start, best.end, weight)
    return _marked(source, begins=best.begins, ends=best.ends)


def narrowed(sources: Sequence[Source], document_cache: DocumentCache, said: str) -> list[Source]:
    """Return sources with the sentences from the first to the last with a word of the answer; all if none has one.

    Attention tells the place, and words tell the sentence.
    """
    words, found = _telling(said), []
    for source in sources:
        text = document_cache.document(source.document).text
        whole = Span(source.start, source.end, not source.quote.startswith(CUT), not source.quote.endswith(CUT))
        having = [each for each in sentences_of(text, whole) if words & _telling(text[each.start : each.end])]
        if having:
            kept = source_at(document_cache, source.document, having[0].start, having[-1].end, source.weight)
            source = _marked(kept, begins=having[0].begins, ends=having[-1].ends)
        found.append(source)
    return found


def _marked(source: Source, *, begins: bool, ends: bool) -> Source:
    """Return a source with signs where its sentences are cut."""
    return replace(source, quote=f"{'' if begins else CUT}{source.quote}{'' if ends else CUT}")


def _telling(text: str) -> set[str]:
    """Return the terms of a text that say something about a place."""
    from engine.finding.words import ASKING, terms

    return set(terms(text)) - ASKING


def _merged(document_cache: DocumentCache, sources: Sequence[Source]) -> Source:
    """Return one source for several that overlap."""
    first, last = min(sources, key=lambda each: each.start), max(sources, key=lambda each: each.end)
    found = source_at(document_cache, first.document, first.start, last.end, sum(each.weight for each in sources))
    return _marked(found, begins=not first.quote.startswith(CUT), ends=not last.quote.endswith(CUT))


def source_at(document_cache: DocumentCache, document_id: str, start: int, end: int, weight: float) -> Source:
    """Return the source of characters `start` to `end` of a document."""
    document = document_cache.document(document_id)
    place = document.locate(start)
    quote = document.text[start:end]
    return Source(document_id, place.page, place.label, quote, float(weight), start, end, place.paragraph)


def page_source(document_id: str, page: int, document_cache: DocumentCache) -> Source:
    """Return a page as the source of an answer. It quotes the first sentences there."""
    document = document_cache.document(document_id)
    held, start = sentences_around(document.pages[page - 1].text, 0, 1), document.page_starts[page - 1]
    source = source_at(document_cache, document_id, start + held.start, start + held.end, 1.0)
    return _marked(source, begins=held.begins, ends=held.ends)


def check_quotations(answer: str, stream: "Stream", document_cache: DocumentCache) -> list[Quotation]:
    """Return every quotation in an answer with the place of its words in a text, or None for the place."""
    quotations = quotations_in(answer)
    checked = [Quotation(span.start, span.end, None, None, None) for span, _ in quotations]
    for stretch in stream.stretches:  # opens each document once, because the cache may not hold all
        document_id = stretch.document_id
        missing = [number for number, found in enumerate(checked) if found.document is None]
        for number in missing:
            span, words = quotations[number]
            pages = bisect_left(document_cache.document(document_id).page_starts, stretch.characters)
            index = document_cache.words(document_id).find(words, pages)
            if index is not None:
                page = document_cache.document(document_id).pages[index]
                checked[number] = Quotation(span.start, span.end, document_id, page.number, page.label)
        if not missing:
            break
    return checked
