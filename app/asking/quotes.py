"""Words on pages: the sentences around a passage, and whether a quotation is really there.

Two texts are compared by their words alone (case, punctuation, line breaks and the shape of quotation marks do not
matter), because a quotation that differs in those is still a quotation; one that differs in a word is not.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

QUOTE_CHARACTERS = 600
"""The sentences around a passage are at most this long together; a longer one is cut at words."""

FEW_WORDS = 3  # fewer of a sentence at the edge of a passage do not count, unless they are half of it

_WORD = re.compile(r"\w+")
# Han, Kana, Thai, Lao, Burmese and Khmer, which have no blanks between words: each character counts as one.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
_SENTENCE_END = re.compile(r"(?P<stop>[.!?…؟۔।])[\"'”’»)\]*_]*(?=\s)|(?P<full>[。！？])[”’」』）]*|\n[ \t]*\n")
_LINE_END = re.compile(r"(\S)[^\S\n]*\n")
_SAID = re.compile(r"\s*(?![#|`])(?!\d+[.)]$).*\w")  # of a line of an answer
_ABBREVIATION = re.compile(
    r"\b(?:[A-Z]|Mr|Mrs|Ms|Messrs|Mme|Mlle|Dr|St|Mt|Nos?|Nr|vs|etc|al|Figs?|Eqs?|Sec|Prof|Capt|Col|Gen|Lt|Sgt|Rev|Hon"
    r"|Jr|Sr|Ltd|Inc|cf|pp?)$"
)
_ITEM = re.compile(r"^[ \t]*\d+$", re.MULTILINE)  # the number of an item of a list, without its full stop
_NEXT = re.compile(r"\s+(\w)")
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


def sentences_around(text: str, start: int, end: int, limit: int = QUOTE_CHARACTERS) -> Span:
    """Return the whole sentences that hold characters `start` to `end`, at most `limit` characters.

    Those at the edges are left out where only a few of their words are meant, or where there are too many.

    Args:
        text: the text that the offsets count in; pass one page to keep the result on it.

    Returns:
        A span inside `text` without blank space at its ends. A sentence longer than the limit is cut at words.
    """
    start, end = max(0, min(start, len(text))), max(0, min(end, len(text)))
    low, high = max(0, start - limit), min(len(text), end + limit)
    borders = [low, *_sentence_ends(text, low, high + 1), high]
    held = [
        sentence
        for sentence in (_trimmed(text, *each) for each in pairwise(borders))
        if max(start, sentence.start) < min(end, sentence.end)
    ]
    if not held:
        return Span(start, start)

    def covered(sentence: Span) -> int:
        return min(end, sentence.end) - max(start, sentence.start)

    def touched(sentence: Span) -> bool:
        words = words_of(text[max(start, sentence.start) : min(end, sentence.end)]).split()
        return len(words) < FEW_WORDS and 2 * covered(sentence) < sentence.end - sentence.start

    meant = [each for each in held if not touched(each)] or [max(held, key=covered)]
    while len(meant) > 1 and meant[-1].end - meant[0].start > limit:
        meant.pop(0 if covered(meant[0]) < covered(meant[-1]) else -1)
    first, last = meant[0].start, meant[-1].end
    return Span(first, last) if last - first <= limit else _cut(text, Span(first, last), start, end, limit)


def _trimmed(text: str, start: int, end: int) -> Span:
    """Return a span without the blank space at its ends."""
    stripped = text[start:end].lstrip()
    start = end - len(stripped)
    return Span(start, start + len(stripped.rstrip()))


def _cut(text: str, sentence: Span, start: int, end: int, limit: int) -> Span:
    """Return as much of a sentence around characters `start` to `end` as the limit allows, cut between words."""
    start, end = max(start, sentence.start), min(end, sentence.end, start + limit)
    first = max(sentence.start, end - limit)
    if first > sentence.start and not text[first - 1].isspace():
        space = text.find(" ", first, start)
        first = space + 1 if space >= 0 else start
    last = min(sentence.end, first + limit)
    if last < sentence.end and not text[last].isspace():
        space = text.rfind(" ", end, last)
        last = space if space >= 0 else end
    return _trimmed(text, first, last)


def _sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Return the offsets just behind each end of a sentence or paragraph between `start` and `end`."""
    return [match.end() for match in _SENTENCE_END.finditer(text, start, min(end, len(text))) if _ends(text, match)]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Tell whether a stop ends a sentence, which it does not behind an abbreviation or before a small letter."""
    if match["stop"] is None:
        return True
    if (following := _NEXT.match(text, match.end())) and following[1].islower() and "\n\n" not in following[0]:
        return False
    stop = match.start()
    line = text.rfind("\n", 0, stop) + 1
    return match["stop"] != "." or not (
        _ABBREVIATION.search(text, max(0, stop - 6), stop) or (stop - line < 9 and _ITEM.search(text, line, stop))
    )


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
