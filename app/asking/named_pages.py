"""Pages that a person names, to be turned to before a question is answered: read again, or looked at alone.

"12-14, iii" are pages as they are printed, where a PDF says what is printed on them, else as the file counts them, and
sections where a document has no printed pages; "12 of the file" is a page by the file's own count. "3/40-45" are
paragraphs of the third section, numbered as sources name them; "2:5" is page 5 of the second of several documents.

They are kept as `written` writes them, which says both where they differ: "9 (page 12 of the file)", as sources do.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import UsageError
from app.formatting import plural, roughly
from app.reading.document_cache import DocumentCache
from app.reading.token_stream import Stream
from ingest.document import Document, noun_of_pages, ranges

if TYPE_CHECKING:
    import torch

MOST_TOKENS = 16_384
"""Of all pages that are read again for one question; those that are only looked at may be any number."""

SURELY = 1.5
"""Times as many are too many by an estimate too."""

BESIDE = 2
"""Paragraphs to each side of one that are named with it."""

OF_THE_FILE = "of the file"

_DASH = r"\s*[-\u2010-\u2015]\s*"
_TO = rf"(?:{_DASH}(?P<last>\d{{1,9}}))?"
_DOCUMENT = re.compile(r"(?:(?P<document>\d{1,9})\s*:)?\s*(?P<rest>.*)")
_NOUN = re.compile(r"\A(?:pages?|slides?|sections?)\s+", re.IGNORECASE)
_NUMBERS = re.compile(rf"(?P<page>\d{{1,9}})(?:\s*/\s*(?P<paragraph>\d{{1,9}}))?{_TO}")
_COUNTED = re.compile(rf"(?:(?P<called>.*\S)\s*\(pages?\s+)?(?P<numbers>\d[^()]*?)\s+{OF_THE_FILE}\)?", re.IGNORECASE)
_ONE = re.compile(rf"(?:\d+:)?(?:[^,]+ \(page \d+ {OF_THE_FILE}\)|(?:\d+|\d+/\d+(?:-\d+)?)(?: {OF_THE_FILE})?)")
_PLAIN = re.compile(r"[^\s,;:/()](?:[^,;:/()]*[^\s,;:/()])?")


@dataclass(frozen=True)
class Named:
    """Pages `first` to `last` of a document, or these paragraphs of its page `page`, all as the file counts them.

    document: its number, from 1 in the order in which a context reads them.
    """

    document: int
    first: int
    last: int
    page: int | None = None

    def counted(self) -> str:
        """As the file counts them, without the document."""
        page = "" if self.page is None else f"{self.page}/"
        last = "" if self.last == self.first else f"-{self.last}"
        return f"{page}{self.first}{last}"


def page_name(document: Document, first: int, last: int | None = None) -> str:
    """What names a page, or several of them: "12", and where something else is printed "9 (page 12 of the file)"."""
    last = first if last is None else last
    counted = f"{first}" if last == first else f"{first}-{last}"
    if not document.printed:
        return counted
    called = _called(document, first, last)
    counted = f"{counted} {OF_THE_FILE}"
    return f"{called} (page{'s' * (last > first)} {counted})" if _PLAIN.fullmatch(called) else counted


def page_number(text: str, document: Document) -> int:
    """The one page that a text names, as the file counts it.

    Raises:
        UsageError: it names none, or several, or one that the document does not have.
    """
    named = _within(text, text.strip(), 1, document, "")
    if named.page is not None or named.first != named.last:
        raise UsageError(f"{text!r} is not one page: name one.")
    return named.first


def named_pages(text: str, document_ids: Sequence[str], document_cache: DocumentCache) -> list[Named]:
    """The pages that a text names, in its order.

    Args:
        document_ids: of the context.

    Raises:
        UsageError: it names none, or some that the documents do not have.
    """
    return [_named(part.strip(), document_ids, document_cache) for part in re.split("[,;]", text.strip().strip(",;"))]


def _named(part: str, document_ids: Sequence[str], document_cache: DocumentCache) -> Named:
    found = _DOCUMENT.fullmatch(part)
    if found is None or not found["rest"]:
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
    return _within(part, found["rest"], document, document_cache.document(document_ids[document - 1]), where)


def _names_none(part: str) -> UsageError:
    return UsageError(
        f"{part!r} names no pages. Write 12-14 for pages or sections, 12 of the file for a page by the file's own "
        "count, 3/40-45 for paragraphs of section 3, and 2: before what is in the second document; commas between "
        "several."
    )


def _within(part: str, text: str, number: int, document: Document, where: str) -> Named:
    """What a text names of one document. part: what was written; where: said behind a page that is not there."""
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
    """What pages are called by what is printed on them."""
    names = document.printed or [str(number) for number in range(1, len(document.pages) + 1)]
    return names[first - 1] if first == last else f"{names[first - 1]}-{names[last - 1]}"


def _by_number(part: str, numbers: str, number: int, document: Document, where: str) -> Named:
    """Pages or paragraphs by numbers, the pages as the file counts them."""
    found = _NUMBERS.fullmatch(numbers.strip())
    if found is None:
        raise _names_none(part)
    page, paragraph, last = (None if each is None else int(each) for each in found.group("page", "paragraph", "last"))
    assert page is not None
    first = page if paragraph is None else paragraph
    named = Named(number, first, first if last is None else last, None if paragraph is None else page)
    return _checked(part, named, document, where)


def _checked(part: str, named: Named, document: Document, where: str) -> Named:
    """What was named, if it is there."""
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
    """The first and the last page that a text names by what is printed on them, as the file counts them."""
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
    """The pages on which that is printed; case counts only where it makes a difference."""
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
    """Pages as they are kept; the inverse of `named_pages`."""

    def one(each: Named) -> str:
        known = document_cache.document(document_ids[each.document - 1])
        if each.page is None:
            name = page_name(known, each.first, each.last)
        else:
            name = f"{each.counted()}{f' {OF_THE_FILE}' if known.printed else ''}"
        return f"{each.document}:{name}" if len(document_ids) > 1 else name

    return ", ".join(map(one, named))


def is_one(pages: str) -> bool:
    """Whether pages as they are kept are a single one, or paragraphs of it."""
    return _ONE.fullmatch(pages) is not None


def pages_in_words(pages: str) -> str:
    """Pages as they are kept, with their noun: "page 9", "pages 9, 12"."""
    return f"page{'' if is_one(pages) else 's'} {pages}"


def pages_around(page: int, paragraph: int | None, document: int | None = None, place: str = "") -> str:
    """What names a place, and what stands around it: its page, or the paragraphs about it, where it has such.

    document: the number of its document, where there are several; place: what a source calls it.
    """
    if paragraph is None:
        name = f"{page}" if place.endswith(f" {page}") else f"{page} {OF_THE_FILE}"
    else:
        name = Named(document or 1, max(1, paragraph - BESIDE), paragraph + BESIDE, page).counted()
    return name if document is None else f"{document}:{name}"


def spans_of(
    named: Sequence[Named], document_ids: Sequence[str], document_cache: DocumentCache
) -> Iterator[tuple[str, int, int]]:
    """The document, the first character and the end of each."""
    for each in named:
        id = document_ids[each.document - 1]
        document = document_cache.document(id)
        if each.page is None:
            yield id, document.span(each.first)[0], document.span(each.last)[1]
        else:
            yield id, *document.span(each.page, each.first, each.last)


def require_few(
    named: Sequence[Named], document_ids: Sequence[str], document_cache: DocumentCache, per_character: float
) -> None:
    """Refuse pages of which surely not all can be read again, before their tokens are counted.

    per_character: tokens, on average.

    Raises:
        UsageError: there are far too many.
    """
    about = per_character * sum(end - start for _, start, end in spans_of(named, document_ids, document_cache))
    if about > SURELY * MOST_TOKENS:
        raise _too_many(f"about {roughly(about)} tokens", as_kept(named, document_ids, document_cache))


def _too_many(tokens: str, pages: str) -> UsageError:
    there = f"{tokens} on {pages_in_words(pages)}"
    return UsageError(f"There are {there}, and {MOST_TOKENS:,} at most are read again for one question: name fewer.")


def tokens_of(
    named: Sequence[Named], document_ids: Sequence[str], stream: Stream, document_cache: DocumentCache, read_again: bool
) -> "torch.Tensor":
    """The tokens of pages, each once, in the order of the text: int64 [N].

    read_again: whether they are to be, and not looked at alone.

    Raises:
        UsageError: there is no text on them, or more than can be read again.
    """
    import torch

    found: set[int] = set()
    for id, start, end in spans_of(named, document_ids, document_cache):
        found.update(stream.between(id, start, end))
    if not found:
        raise UsageError(f"There is no text on {pages_in_words(as_kept(named, document_ids, document_cache))}.")
    if read_again and len(found) > MOST_TOKENS:
        raise _too_many(plural(len(found), "token"), as_kept(named, document_ids, document_cache))
    return torch.tensor(sorted(found))
