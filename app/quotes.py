"""Words on pages: the sentence around a passage, and whether a quotation is really there.

Two texts are compared by their words alone (case, punctuation, line breaks and the shape of quotation marks do not
matter), because a quotation that differs in those is still a quotation; one that differs in a word is not.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

QUOTE_CHARACTERS = 400
"""A source's quote is at most this long."""

_WORD = re.compile(r"\w+")
# Han, Kana, Thai, Lao, Burmese and Khmer, which have no blanks between words: each character counts as one.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
_SENTENCE_END = re.compile(r"(?P<stop>[.!?…؟۔।])[\"'”’»)\]*_]*(?=\s)|(?P<full>[。！？])[”’」』）]*|\n[ \t]*\n")
_LINE_END = re.compile(r"(\S)[^\S\n]*\n")
_SAID = re.compile(r"\s*(?![#|`])(?!\d+[.)]$).*\w")  # of a line of an answer
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|No|vs|etc|Prof|Capt|Col|Gen|Rev|Hon|Jr|Sr|cf|pp?))$")
_QUOTATION = re.compile(
    r"“([^“”]{2,600})”|\"([^\"\n]{2,600})\"|«([^«»]{2,600})»|„([^„“”]{2,600})[“”]|「([^「」]{2,600})」|『([^『』]{2,600})』"
)


def words_of(text: str) -> str:
    """The words of `text` in one normal form, each with a space before and after it."""
    words = _WORD.findall(_UNSPACED.sub(r" \1 ", unicodedata.normalize("NFKC", text).casefold()))
    return f" {' '.join(words)} " if words else ""


class PageWords:
    """The words of a document's pages, for looking up quotations."""

    def __init__(self, pages: Sequence[str]) -> None:
        """pages: their texts; the words of a page are found when it is first asked about."""
        self._texts = pages
        self._known: dict[int, str] = {}

    def _words(self, page: int) -> str:
        if page not in self._known:
            self._known[page] = words_of(self._texts[page])
        return self._known[page]

    def find(self, quote: str) -> int | None:
        """Index of the first page that holds the words of `quote`, also where they run on to the next one."""
        words = words_of(quote)
        if not words:
            return None
        pages = [self._words(index) for index in range(len(self._texts))]
        for index, page in enumerate(pages):
            if words in page:
                return index
        for index, (page, following) in enumerate(pairwise(pages)):
            if words in page[-len(words) :].rstrip() + following[: len(words)]:
                return index
        return None


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a text."""

    start: int
    end: int


def sentence_around(text: str, start: int, end: int, limit: int = QUOTE_CHARACTERS) -> Span:
    """The sentence or sentences that hold characters `start` to `end`, at most `limit` characters.

    Args:
        text: the text that the offsets count in; pass one page to keep the result on it.

    Returns:
        A span inside `text` without blank space at its ends; cut at words where the sentence is too long.
    """
    start, end = max(0, min(start, len(text))), max(0, min(end, len(text)))
    end = min(end, start + limit)
    first = max(0, end - limit)
    if before := _sentence_ends(text, first, start):
        first = before[-1]
    elif first > 0:
        space = text.find(" ", first, start)
        first = space + 1 if space >= 0 else start
    last = min(len(text), first + limit)
    if after := [each for each in _sentence_ends(text, max(start, end - 2), last + 1) if each >= end - 1]:
        last = after[0]
    elif last < len(text):
        space = text.rfind(" ", end, last)
        last = space if space >= 0 else end
    quote = text[first:last].lstrip()
    first = last - len(quote)
    return Span(first, first + len(quote.rstrip()))


def _sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Offsets just behind each end of a sentence or paragraph between `start` and `end`."""
    return [
        match.end()
        for match in _SENTENCE_END.finditer(text, start, min(end, len(text)))
        if match["stop"] != "." or not _ABBREVIATION.search(text, max(0, match.start() - 6), match.start())
    ]


def quotations_in(answer: str) -> list[tuple[Span, str]]:
    """Every stretch of `answer` between double quotation marks: its span with the marks, and the words within."""
    found = []
    for match in _QUOTATION.finditer(answer):
        inner = next(group for group in match.groups() if group is not None)
        if words_of(inner):
            found.append((Span(match.start(), match.end()), inner))
    return found


def whole_sentences(answer: str, since: int) -> int:
    """How much of an answer, of which so much is whole sentences, is now.

    A line is one too, for no answer breaks lines elsewhere; but neither code, headings and rows of tables are, nor the
    number of an item by itself.
    """
    if answer.count("```") % 2:
        return since
    start = max(since, answer.rfind("```") + 3)  # behind code
    ends = _sentence_ends(answer, start, len(answer)) + [match.end(1) for match in _LINE_END.finditer(answer, start)]
    return max((end for end in ends if _SAID.match(answer, answer.rfind("\n", 0, end) + 1, end)), default=since)
