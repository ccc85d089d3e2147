"""Anchors: names of passages that a program can keep, read again and check a quotation against.

An anchor is "d-2kvdfj:9f86d081884c7d65:12:1034-1290": the document, the beginning of the SHA-256 of its text, the page
as the file counts, and the first character of the passage and the end. With another text it is no longer valid.
"""

import re
from dataclasses import dataclass

from app.asking.named_pages import page_name
from app.asking.quotes import words_of
from app.errors import UsageError
from app.service import Service

DIGITS = 16
"""Digits of the digest in an anchor."""
_ANCHOR = re.compile(r"(?P<document>d-\w+):(?P<digest>[0-9a-f]+):\d+:(?P<start>\d{1,12})-(?P<end>\d{1,12})")


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    stands: whether the words of the quotation stand in the passage.
    because: a sentence that says why not; "" if they do.
    """

    stands: bool
    because: str = ""


def anchor_of(service: Service, document_id: str, start: int, end: int) -> str:
    """Return the anchor of characters `start` to `end` of a document's text."""
    document = service.document_cache.document(document_id)
    return f"{document_id}:{document.text_digest[:DIGITS]}:{document.locate(start).page}:{start}-{end}"


def verify(service: Service, anchor: str, quote: str) -> Verdict:
    """Return whether the words of a quotation stand in the passage of an anchor, in this order and without a gap.

    Raises:
        UsageError: it is no anchor, or the quotation has no words.
        sessions.NotFound: the document was deleted.
    """
    found, words = _ANCHOR.fullmatch(anchor.strip()), words_of(quote)
    if found is None:
        raise UsageError(f"{anchor!r} is no anchor: send one as `read` and `ask` return it.")
    if not words:
        raise UsageError("The quotation has no words: send those that the passage is to have.")
    id, start, end = found["document"], int(found["start"]), int(found["end"])
    service.store.documents.get(id)
    document = service.document_cache.document(id)
    if len(found["digest"]) != DIGITS or not document.text_digest.startswith(found["digest"]):
        return Verdict(False, "This anchor belongs to another version of the text: read or ask again.")
    if not start < end <= len(document.text):
        return Verdict(False, f"The text has no characters {start} to {end}.")
    if words in words_of(_whole_words(document.text, start, end)):
        return Verdict(True)
    index = service.document_cache.words(id).find(quote)
    if index is None:
        return Verdict(False, "These words stand nowhere in the document.")
    page = page_name(document, document.pages[index].number)
    return Verdict(False, f"These words do not stand in this passage, but on page {page}.")


def _whole_words(text: str, start: int, end: int) -> str:
    """Return characters `start` to `end` of a text, with the rest of the words at both ends."""
    while start and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
        end += 1
    return text[start:end]
