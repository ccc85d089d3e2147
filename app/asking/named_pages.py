"""Pages that a person names, to answer a question from these alone.

"12-14, iii" are pages as printed; if a PDF has no printed page numbers, pages as the file counts them; if a document
has no pages, sections. "12 of the file" is always a page as the file counts. "3/40-45" are paragraphs of the third
section, numbered as in sources. "2:5" is page 5 of the second of several documents, and "2:" is all of it.

"+ 12" keeps page 12 in view beside what is found, and "3-9 + 12" beside pages 3 to 9.

The store keeps them in one form (`as_kept`), with both numbers where they differ: "9 (page 12 of the file)".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import UsageError
from app.formatting import plural
from app.reading.document_cache import DocumentCache
from app.reading.token_stream import Stream
from ingest.document import Document, noun_of_pages
from ingest.wording import ranges

if TYPE_CHECKING:
    import torch

BESIDE = 2
"""Paragraphs on each side of a paragraph that are named with it."""

OF_THE_FILE = "of the file"

_DASH = r"\s*[-\u2010-\u2015]\s*"
_TO = rf"(?:{_DASH}(?P<last>\d{{1,9}}))?"
_DOCUMENT = re.compile(r"(?:(?P<document>\d{1,9})\s*:)?\s*(?P<rest>.*)")
_NOUN = re.compile(r"\A(?:pages?|slides?|sections?)\s+", re.IGNORECASE)
_NUMBERS = re.compile(rf"(?P<page>\d{{1,9}})(?:\s*/\s*(?P<paragraph>\d{{1,9}}))?{_TO}")
_COUNTED = re.compile(rf"(?:(?P<called>.*\S)\s*\(pages?\s+)?(?P<numbers>\d[^()]*?)\s+{OF_THE_FILE}\)?", re.IGNORECASE)
_ONE = re.compile(rf"(?:\d+:)?(?:[^,]+ \(page \d+ {OF_THE_FILE}\)|(?:\d+|\d+/\d+(?:-\d+)?)(?: {OF_THE_FILE})?)")
_PINNED = re.compile(r"(?:^|\s)\+")
_PLAIN = re.compile(r"[^\s,;:/()](?:[^,;:/()]*[^\s,;:/()])?")


@dataclass(frozen=True)
class Named:
    """Pages `first` to `last` of a document, or these paragraphs of its page `page`, numbered as the file counts.

    document: number of the document, from 1, in reading order.
    """

    document: int
    first: int
    last: int
    page: int | None = None

    def counted(self) -> str:
        """Return the numbers as the file counts them, without the document."""
        page = "" if self.page is None else f"{self.page}/"
        last = "" if self.last == self.first else f"-{self.last}"
        return f"{page}{self.first}{last}"


def with_pinned(pages: str) -> tuple[str, str]:
    """Return the pages to answer from alone, and those to keep in view; "" for none."""
    alone, *pinned = _PINNED.split(pages.strip(), maxsplit=1)
    return alone.strip(), "".join(pinned).strip()


def pinning(alone: str, pinned: str) -> str:
    """Return pages to answer from alone with those to keep in view, which `with_pinned` parts."""
    return f"{alone} + {pinned}".strip() if pinned else alone


def page_name(document: Document, first: int, last: int | None = None) -> str:
    """Return the name of one or more pages: "12", or "9 (page 12 of the file)" if another number is printed there."""
    last = first if last is None else last
    counted = f"{first}" if last == first else f"{first}-{last}"
    if not document.printed:
        return counted
    called = _called(document, first, last)
    counted = f"{counted} {OF_THE_FILE}"
    return f"{called} (page{'s' * (last > first)} {counted})" if _PLAIN.fullmatch(called) else counted


def page_number(text: str, document: Document) -> int:
    """Return the one page that a text names, as the file counts.

    Raises:
        UsageError: it names no page, several pages, or one that the document does not have.
    """
    named = _within(text, text.strip(), 1, document, "")
    if named.page is not None or named.first != named.last:
        raise UsageError(f"{text!r} is not one page: name one.")
    return named.first


def named_pages(text: str, document_ids: Sequence[str], document_cache: DocumentCache) -> list[Named]:
    """Return the pages that a text names, in its order.

    Args:
        text: the text as a person wrote it, or as the store keeps it.
        document_ids: the documents of the context, in reading order.
        document_cache: the documents.

    Raises:
        UsageError: it names no pages, or some that the documents do not have.
    """
    return [_named(part.strip(), document_ids, document_cache) for part in re.split("[,;]", text.strip().strip(",;"))]


def pages_up_to(text: str, document_ids: Sequence[str], document_cache: DocumentCache) -> str:
    """Return the name of all pages from the first one to another; "" if there are no more.

    Args:
        text: the last page, or paragraph of a section, as a person names it.
        document_ids: the documents of the context, in reading order. Those before it count as known.
        document_cache: the documents.

    Raises:
        UsageError: it is not one page, or the documents do not have it.
    """
    last = named_pages(text, document_ids, document_cache)
    if len(last) > 1 or last[0].first != last[0].last:
        raise UsageError(f"{text!r} is not one page: name one.")
    [at] = last
    pages = [len(document_cache.document(id).pages) for id in document_ids[: at.document]]
    if at.page is None and (at.document, at.first) == (len(document_ids), pages[-1]):
        return ""
    whole = at.first if at.page is None else at.page - 1
    found = [Named(number, 1, end) for number, end in enumerate([*pages[:-1], whole], 1) if end]
    if at.page is not None:
        found.append(Named(at.document, 1, at.last, at.page))
    return as_kept(found, document_ids, document_cache)


def _named(part: str, document_ids: Sequence[str], document_cache: DocumentCache) -> Named:
    found = _DOCUMENT.fullmatch(part)
    if found is None or not (found["rest"] or found["document"]):
        raise _names_none(part)
    document = None if found["document"] is None else int(found["document"])
    if document is None and len(document_ids) > 1:
        raise UsageError(
            f"There are {len(document_ids)} documents: put the number of the one that is meant before the page, as in "
            f"2:{part} for the second."
        )
    document = 1 if document is None else document
    if not 1 <= document <= len(document_ids):
        raise UsageError(f"There is no document {document}, only {plural(len(document_ids), 'document')}.")
    where = f" of document {document}" if len(document_ids) > 1 else ""
    known = document_cache.document(document_ids[document - 1])
    if not found["rest"]:
        return Named(document, 1, len(known.pages))
    return _within(part, found["rest"], document, known, where)


def _names_none(part: str) -> UsageError:
    return UsageError(
        f"{part!r} names no pages. Write 12-14 for pages or sections, 12 of the file for a page by the file's own "
        "count, 3/40-45 for paragraphs of section 3, 2: before what is in the second document, and 2: alone for all of "
        "it; commas between several."
    )


def _within(part: str, text: str, number: int, document: Document, where: str) -> Named:
    """Return the pages that a text names in one document.

    Args:
        part: the text as written, for error sentences.
        text: the text without the document's number.
        number: number of the document.
        document: the document.
        where: words for error sentences, " of document 2".
    """
    if counted := _COUNTED.fullmatch(_NOUN.sub("", text, count=1)):
        named = _by_number(part, counted["numbers"], number, document, where)
        called = counted["called"]
        if called and (named.page is not None or called != _called(document, named.first, named.last)):
            raise UsageError(f"{part!r} names two: {named.counted()} {OF_THE_FILE} is called otherwise. Name one.")
        return named
    if not document.printed:
        return _by_number(part, _NOUN.sub("", text, count=1), number, document, where)
    pages, slash, paragraphs = text.partition("/")
    first, last = _printed(part, pages.strip(), document, where)
    if not slash:
        return _checked(part, Named(number, first, last), document, where)
    return _by_number(part, f"{first}/{paragraphs}", number, document, where)


def _called(document: Document, first: int, last: int) -> str:
    """Return the printed numbers of pages."""
    names = document.printed or [str(number) for number in range(1, len(document.pages) + 1)]
    return names[first - 1] if first == last else f"{names[first - 1]}-{names[last - 1]}"


def _by_number(part: str, numbers: str, number: int, document: Document, where: str) -> Named:
    """Return pages or paragraphs given by numbers, pages as the file counts."""
    found = _NUMBERS.fullmatch(numbers.strip())
    if found is None:
        raise _names_none(part)
    page, paragraph, last = (None if each is None else int(each) for each in found.group("page", "paragraph", "last"))
    assert page is not None
    first = page if paragraph is None else paragraph
    named = Named(number, first, first if last is None else last, None if paragraph is None else page)
    return _checked(part, named, document, where)


def _checked(part: str, named: Named, document: Document, where: str) -> Named:
    """Return the pages if the document has them; else raise UsageError."""
    if named.first > named.last:
        raise UsageError(f"{part!r} ends before it begins: write the earlier one first.")
    noun, total = noun_of_pages(document.format), len(document.pages)
    for number in (named.first, named.last) if named.page is None else (named.page,):
        if not 1 <= number <= total:
            counted = f" {OF_THE_FILE}" if document.printed and not where else ""
            raise UsageError(f"There is no {noun} {number}{counted}{where}, only {plural(total, noun)}.")
    if named.page is not None and not 1 <= named.first <= document.paragraphs(named.page):
        there = plural(document.paragraphs(named.page), "paragraph")
        raise UsageError(f"There is no paragraph {named.first} in {noun} {named.page}{where}, only {there}.")
    return named


def _printed(part: str, text: str, document: Document, where: str) -> tuple[int, int]:
    """Return the first and last page, as the file counts, of pages named by their printed numbers."""
    for each in dict.fromkeys([text, _NOUN.sub("", text, count=1)]):
        if _pages_called(each, document):
            return (page := _page_called(each, document, where)), page
        for dash in re.finditer(_DASH, each):
            first, last = each[: dash.start()], each[dash.end() :]
            if _pages_called(first, document) and _pages_called(last, document):
                return _page_called(first, document, where), _page_called(last, document, where)
    first, last = document.printed[0], document.printed[-1]
    raise UsageError(
        f"No page{where} is called {text!r}: the first is called {first}, the last {last}. By the file's own count the "
        f"last is {len(document.pages)} {OF_THE_FILE}."
    )


def _pages_called(text: str, document: Document) -> list[int]:
    """Return the pages with this printed number. Case counts only if it distinguishes pages."""
    pages = list(enumerate(document.printed, 1))
    return [number for number, called in pages if called == text] or [
        number for number, called in pages if called.casefold() == text.casefold()
    ]


def _page_called(text: str, document: Document, where: str) -> int:
    found = _pages_called(text, document)
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} pages{where} are called {text}: {ranges(found)} {OF_THE_FILE}. Write {found[0]} "
            f"{OF_THE_FILE} for the first."
        )
    return found[0]


def as_kept(named: Sequence[Named], document_ids: Sequence[str], document_cache: DocumentCache) -> str:
    """Return pages in the form that the store keeps; the inverse of `named_pages`."""

    def one(each: Named) -> str:
        known = document_cache.document(document_ids[each.document - 1])
        if each.page is None and len(document_ids) > 1 and (each.first, each.last) == (1, len(known.pages)):
            return f"{each.document}:"
        if each.page is None:
            name = page_name(known, each.first, each.last)
        else:
            name = f"{each.counted()}{f' {OF_THE_FILE}' if known.printed else ''}"
        return f"{each.document}:{name}" if len(document_ids) > 1 else name

    return ", ".join(map(one, named))


def kept(pages: str, ids: Sequence[str], document_cache: DocumentCache, others: Sequence[str] | None = None) -> str:
    """Return pages, and those to keep in view, in the form that the store keeps; "" for none.

    Args:
        pages: the pages as a person wrote them, or as the store keeps them.
        ids: the documents of the context, in reading order.
        document_cache: the documents.
        others: the documents to number instead; None for the same.

    Raises:
        UsageError: they name no pages, or some that the documents do not have.
    """
    others = ids if others is None else others
    alone, pinned = (
        as_kept(named_pages(each, ids, document_cache), others, document_cache) if each else ""
        for each in with_pinned(pages)
    )
    return pinning(alone, pinned)


def is_one(pages: str) -> bool:
    """Return whether kept pages are one page, or paragraphs of one."""
    return _ONE.fullmatch(pages) is not None


def pages_in_words(pages: str) -> str:
    """Return kept pages with their noun: "page 9", "pages 9, 12", "document 2 and page 1:9", "page 3 + page 9"."""
    alone, pinned = with_pinned(pages)
    if pinned:
        return pinning(pages_in_words(alone) if alone else "", pages_in_words(pinned))
    parts = pages.split(", ")
    whole = [part.removesuffix(":") for part in parts if part.endswith(":")]
    rest = ", ".join(part for part in parts if not part.endswith(":"))
    said = [f"document{'s' * (len(whole) > 1)} {', '.join(whole)}"] if whole else []
    return " and ".join([*said, f"page{'' if is_one(rest) else 's'} {rest}"] if rest else said)


def split_names(text: str) -> list[str]:
    """Return the names of documents that a text lists, with commas between them."""
    return [each.strip() for each in text.split(",") if each.strip()]


def all_of(texts: Sequence[str], documents: Sequence[tuple[str, str]]) -> str:
    """Return the name of whole documents of a context, as pages.

    Args:
        texts: a number, an id, the beginning of one, or a title for each.
        documents: id and title of each document of the context, in reading order.

    Raises:
        UsageError: one of the texts names none of them, or several.
    """
    numbers = []
    for text in texts:
        wanted = text.strip().casefold()
        fitting = [
            number
            for number, (id, title) in enumerate(documents, 1)
            if wanted and (wanted == str(number) or id.startswith(wanted) or title.casefold().startswith(wanted))
        ]
        exact = [each for each in fitting if wanted in (str(each), documents[each - 1][1].casefold())]
        if len(exact or fitting) != 1:
            there = "; ".join(f"{number}. {title}" for number, (_, title) in enumerate(documents, 1))
            what = "names several" if fitting else "names none"
            raise UsageError(f"{text!r} {what} of the documents that were read. Write one of their numbers: {there}.")
        numbers += exact or fitting
    return ", ".join(f"{number}:" for number in dict.fromkeys(numbers))


def pages_around(page: int, paragraph: int | None, document: int | None = None, place: str = "") -> str:
    """Return the name of a source's page, or of the paragraphs around the source if it has them.

    Args:
        page: page of the source, as the file counts.
        paragraph: its paragraph, if the document has paragraphs.
        document: number of its document, if there are several.
        place: the source's place in words.
    """
    if paragraph is None:
        name = f"{page}" if place.endswith(f" {page}") else f"{page} {OF_THE_FILE}"
    else:
        name = Named(document or 1, max(1, paragraph - BESIDE), paragraph + BESIDE, page).counted()
    return name if document is None else f"{document}:{name}"


def spans_of(
    named: Sequence[Named], document_ids: Sequence[str], document_cache: DocumentCache
) -> Iterator[tuple[str, int, int]]:
    """Yield the document's id, the first character and the end of each."""
    for each in named:
        id = document_ids[each.document - 1]
        document = document_cache.document(id)
        if each.page is None:
            yield id, document.span(each.first)[0], document.span(each.last)[1]
        else:
            yield id, *document.span(each.page, each.first, each.last)


def tokens_of(
    named: Sequence[Named], document_ids: Sequence[str], stream: Stream, document_cache: DocumentCache
) -> "torch.Tensor":
    """Return the tokens of pages, each once, in the order of the text, int64 [N].

    Args:
        named: the pages.
        document_ids: the documents of the context, in reading order.
        stream: the text as tokens.
        document_cache: the documents.

    Raises:
        UsageError: there is no text on them.
    """
    import torch

    found: set[int] = set()
    for id, start, end in spans_of(named, document_ids, document_cache):
        found.update(stream.between(id, start, end))
    if not found:
        raise UsageError(f"There is no text on {pages_in_words(as_kept(named, document_ids, document_cache))}.")
    return torch.tensor(sorted(found))
