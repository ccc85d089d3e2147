"""Pages that a person names, to be turned to before a question is answered: read again, or looked at alone.

"12-14, 20" are pages, or sections where a document has no printed pages; "3/40-45" are paragraphs of the third section,
numbered as sources name them; "2:5" is page 5 of the second of several documents.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import UsageError
from app.library import Library
from app.stream import Stream
from app.words import plural, roughly
from ingest.document import noun_of_pages

if TYPE_CHECKING:
    import torch

MOST_TOKENS = 16_384
"""Of all pages that are read again for one question; those that are only looked at may be any number."""

SURELY = 1.5
"""Times as many are too many by an estimate too."""

BESIDE = 2
"""Paragraphs to each side of one that are named with it."""

_TO = r"(?:\s*[-\u2010-\u2015]\s*(?P<last>\d{1,9}))?"
_PART = re.compile(rf"(?:(?P<document>\d{{1,9}})\s*:)?\s*(?P<page>\d{{1,9}})(?:\s*/\s*(?P<paragraph>\d{{1,9}}))?{_TO}")


@dataclass(frozen=True)
class Named:
    """Pages `first` to `last` of a document, or these paragraphs of its page `page`.

    document: its number, from 1 in the order in which a context reads them.
    """

    document: int
    first: int
    last: int
    page: int | None = None

    def written(self, several: bool) -> str:
        """As a person names it. several: whether there are several documents."""
        document = f"{self.document}:" if several else ""
        page = "" if self.page is None else f"{self.page}/"
        last = "" if self.last == self.first else f"-{self.last}"
        return f"{document}{page}{self.first}{last}"


def named_pages(text: str, document_ids: Sequence[str], library: Library) -> list[Named]:
    """The pages that a text names, in its order.

    Args:
        document_ids: of the context.

    Raises:
        UsageError: it names none, or some that the documents do not have.
    """
    return [_named(part.strip(), document_ids, library) for part in re.split("[,;]", text.strip().strip(",;"))]


def _named(part: str, document_ids: Sequence[str], library: Library) -> Named:
    found = _PART.fullmatch(part)
    if found is None:
        raise UsageError(
            f"{part!r} names no pages. Write 12-14 for pages or sections, 3/40-45 for paragraphs of section 3, and 2: "
            "before what is in the second document; commas between several."
        )
    document, page, paragraph, last = (
        None if number is None else int(number) for number in found.group("document", "page", "paragraph", "last")
    )
    if document is None and len(document_ids) > 1:
        raise UsageError(
            f"There are {len(document_ids)} documents: put the number of the one that is meant before the page, as in "
            f"2:{part} for the second."
        )
    document = 1 if document is None else document
    if not 1 <= document <= len(document_ids):
        raise UsageError(f"There is no document {document}, only {plural(len(document_ids), 'document')}.")
    assert page is not None
    known = library.document(document_ids[document - 1])
    first = page if paragraph is None else paragraph
    asked = Named(document, first, first if last is None else last, None if paragraph is None else page)
    if asked.first > asked.last:
        raise UsageError(f"{part!r} ends before it begins: write the lower number first.")
    noun, where = noun_of_pages(known.format), f" of document {document}" if len(document_ids) > 1 else ""
    for number in (asked.first, asked.last) if paragraph is None else (page,):
        if not 1 <= number <= len(known.pages):
            raise UsageError(f"There is no {noun} {number}{where}, only {plural(len(known.pages), noun)}.")
    if paragraph is not None and not 1 <= paragraph <= known.paragraphs(page):
        there = plural(known.paragraphs(page), "paragraph")
        raise UsageError(f"There is no paragraph {paragraph} in {noun} {page}{where}, only {there}.")
    return asked


def written(named: Sequence[Named], document_ids: Sequence[str]) -> str:
    """Pages as a person names them; the inverse of `named_pages`."""
    return ", ".join(each.written(len(document_ids) > 1) for each in named)


def in_words(pages: str) -> str:
    """Pages as they are written, with their noun: "page 9", "pages 9, 12"; paragraphs are of one page."""
    found = _PART.fullmatch(pages)
    one = found is not None and (found["paragraph"] or found["last"] is None)
    return f"page{'' if one else 's'} {pages}"


def around(page: int, paragraph: int | None, document: int | None = None) -> str:
    """What names a place, and what stands around it: its page, or the paragraphs about it, where it has such.

    document: the number of its document, where there are several.
    """
    if paragraph is None:
        named = Named(document or 1, page, page)
    else:
        named = Named(document or 1, max(1, paragraph - BESIDE), paragraph + BESIDE, page)
    return named.written(several=document is not None)


def spans_of(named: Sequence[Named], document_ids: Sequence[str], library: Library) -> Iterator[tuple[str, int, int]]:
    """The document, the first character and the end of each."""
    for each in named:
        id = document_ids[each.document - 1]
        document = library.document(id)
        if each.page is None:
            yield id, document.span(each.first)[0], document.span(each.last)[1]
        else:
            yield id, *document.span(each.page, each.first, each.last)


def require_few(named: Sequence[Named], document_ids: Sequence[str], library: Library, per_character: float) -> None:
    """Refuse pages of which surely not all can be read again, before their tokens are counted.

    per_character: tokens, on average.

    Raises:
        UsageError: there are far too many.
    """
    about = per_character * sum(end - start for _, start, end in spans_of(named, document_ids, library))
    if about > SURELY * MOST_TOKENS:
        raise _too_many(f"about {roughly(about)} tokens", named, document_ids)


def _too_many(tokens: str, named: Sequence[Named], document_ids: Sequence[str]) -> UsageError:
    there = f"{tokens} on {in_words(written(named, document_ids))}"
    return UsageError(f"There are {there}, and {MOST_TOKENS:,} at most are read again for one question: name fewer.")


def tokens_of(
    named: Sequence[Named], document_ids: Sequence[str], stream: Stream, library: Library, read_again: bool
) -> "torch.Tensor":
    """The tokens of pages, each once, in the order of the text: int64 [N].

    read_again: whether they are to be, and not looked at alone.

    Raises:
        UsageError: there is no text on them, or more than can be read again.
    """
    import torch

    found: set[int] = set()
    for id, start, end in spans_of(named, document_ids, library):
        found.update(stream.between(id, start, end))
    if not found:
        raise UsageError(f"There is no text on {in_words(written(named, document_ids))}.")
    if read_again and len(found) > MOST_TOKENS:
        raise _too_many(plural(len(found), "token"), named, document_ids)
    return torch.tensor(sorted(found))
