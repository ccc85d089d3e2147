"""Words on pages: sentences around a passage, and whether a quotation is really there.

Texts are compared by their words alone. Case, punctuation, line breaks and the shape of quotation marks do not matter;
a quotation with another word is not one.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

QUOTE_CHARACTERS = 600
"""Most characters of the sentences around a passage; a longer sentence is cut at a clause, or between words."""

FEW_WORDS = 3  # fewer characters of a sentence at the edge do not count, unless they are half of it

_WORD = re.compile(r"\w+")
# Han, Kana, Thai, Lao, Burmese and Khmer have no blanks between words: each character counts as one.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
_SENTENCE_END = re.compile(
    r"(?P<stop>[.!?…؟۔।])[\"'”’»)\]*_]*(?=\s)|(?P<full>[。！？])[”’」』）]*|\n[ \t]*\n"
    r"|\n(?=[ \t]*\d+(?:\.\d+)+\.?\s+[^\W\d_a-zß-ÿ])"  # a numbered clause
)
_CLAUSE_END = re.compile(r"[,;:—–][\"'”’»)\]]*\s|[，；：、]")
_LINE_END = re.compile(r"(\S)[^\S\n]*\n")
_SAID = re.compile(r"\s*(?![#|`])(?!\d+[.)]$).*\w")  # start of a line of an answer
_WHOLE = re.compile(r"[.!?…؟۔।。！？][\"'”’»」』）)\]*_]*\s*$|^\s*(?:[-*•]|\d+[.)])\s+\w+\W+\w")
_ABBREVIATION = re.compile(
    r"\b(?:[A-Z]|Mr|Mrs|Ms|Messrs|Mme|Mlle|Dr|St|Mt|Nos?|Nr|vs|etc|al|Figs?|Eqs?|Sec|Prof|Capt|Col|Gen|Lt|Sgt|Rev|Hon"
    r"|Jr|Sr|Ltd|Inc|Co|Corp|Vol|cf|pp?|Ing|Dipl|Art|Abs|Bd|Hrsg)$"
)
_ITEM = re.compile(r"^[ \t]*\d+$", re.MULTILINE)  # the number of an item of a list, without its full stop
_NEXT = re.compile(r"\s+(\w)")
_QUOTATION = re.compile(
    r"“([^“”]{2,600})”|\"([^\"\n]{2,600})\"|«([^«»]{2,600})»|„([^„“”]{2,600})[“”]|「([^「」]{2,600})」|『([^『』]{2,600})』"
)


def words_of(text: str) -> str:
    """Return the words of `text` in a normal form, each with a space before and after it."""
    words = _WORD.findall(_UNSPACED.sub(r" \1 ", unicodedata.normalize("NFKC", text).casefold()))
    return f" {' '.join(words)} " if words else ""


class PageWords:
    """The words of a document's pages, to look up quotations in."""

    def __init__(self, pages: Sequence[str]) -> None:
        """Keep the texts of the pages; the words of a page are extracted at the first look-up."""
        self._texts = pages
        self._known: dict[int, str] = {}

    def _words(self, page: int) -> str:
        if page not in self._known:
            self._known[page] = words_of(self._texts[page])
        return self._known[page]

    def find(self, quote: str, most: int | None = None) -> int | None:
        """Return the index of the first page that holds the words of `quote`, which may run on to the next page; None
        if none does. most: number of first pages to look at; None for all.
        """
        words = words_of(quote)
        if not words:
            return None
        pages = [self._words(index) for index in range(len(self._texts[:most]))]
        for index, page in enumerate(pages):
            if words in page:
                return index
        for index, (page, following) in enumerate(pairwise(pages)):
            if words in page[-len(words) :].rstrip() + following[: len(words)]:
                return index
        return None


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a text.

    begins, ends: whether it begins and ends with a sentence; False where a long sentence is cut.
    """

    start: int
    end: int
    begins: bool = True
    ends: bool = True


def sentences_around(text: str, start: int, end: int, limit: int = QUOTE_CHARACTERS) -> Span:
    """Return the whole sentences that hold characters `start` to `end`, at most `limit` characters.

    Sentences at the edges are left out if only a few of their words belong to the passage, or if there are too many.

    Args:
        text: the text that the offsets count in; pass one page to keep the result on it.
        start: first character of the passage.
        end: offset behind its last character.
        limit: most characters.

    Returns:
        A span inside `text` without blank space at its ends. A sentence longer than the limit is cut.
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


def sentences_of(text: str, span: Span) -> list[Span]:
    """Return the sentences of a span of a text, without those that are blank; a cut one stays cut."""
    borders = [span.start, *_sentence_ends(text, span.start, span.end), span.end]
    found = [each for each in (_trimmed(text, *each) for each in pairwise(borders)) if each.start < each.end]
    found[0] = replace(found[0], begins=span.begins)
    found[-1] = replace(found[-1], ends=span.ends)
    return found


def _trimmed(text: str, start: int, end: int) -> Span:
    """Return a span without blank space at its ends."""
    stripped = text[start:end].lstrip()
    start = end - len(stripped)
    return Span(start, start + len(stripped.rstrip()))


def _cut(text: str, sentence: Span, start: int, end: int, limit: int) -> Span:
    """Return as much of a sentence around characters `start` to `end` as the limit allows.

    It is cut behind a clause, or else between words.
    """
    start, end = max(start, sentence.start), min(end, sentence.end, start + limit)
    first = max(sentence.start, end - limit)
    if first > sentence.start:
        clause = _CLAUSE_END.search(text, first, start)
        space = -1 if text[first - 1].isspace() else text.find(" ", first, start)
        first = clause.end() if clause else space + 1 if space >= 0 else first if text[first - 1].isspace() else start
    last = min(sentence.end, first + limit)
    if last < sentence.end:
        clauses = [clause.end() for clause in _CLAUSE_END.finditer(text, end, last)]
        space = -1 if text[last].isspace() else text.rfind(" ", end, last)
        last = clauses[-1] if clauses else space if space >= 0 else last if text[last].isspace() else end
    span = _trimmed(text, first, last)
    return Span(span.start, span.end, begins=first == sentence.start, ends=last == sentence.end)


def _sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Return the offsets just behind each end of a sentence or paragraph between `start` and `end`."""
    return [match.end() for match in _SENTENCE_END.finditer(text, start, min(end, len(text))) if _ends(text, match)]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Return whether a full stop ends a sentence; it does not after an abbreviation or before a small letter."""
    if match["stop"] is None:
        return True
    if (following := _NEXT.match(text, match.end())) and following[1].islower() and "\n\n" not in following[0]:
        return False
    stop = match.start()
    line = text.rfind("\n", 0, stop) + 1
    return match["stop"] != "." or not (
        _ABBREVIATION.search(text, max(0, stop - 6), stop) or (stop - line < 9 and _ITEM.search(text, line, stop))
    )


def is_sentence(text: str) -> bool:
    """Return whether a text is a whole sentence: it has an end, or is an item of a list with two words or more."""
    return bool(_WHOLE.search(text))


def quotations_in(answer: str) -> list[tuple[Span, str]]:
    """Return each quotation between double quotation marks in `answer`: its span with the marks, and its words."""
    found = []
    for match in _QUOTATION.finditer(answer):
        inner = next(group for group in match.groups() if group is not None)
        if words_of(inner):
            found.append((Span(match.start(), match.end()), inner))
    return found


def whole_sentences(answer: str, since: int) -> int:
    """Return how many characters of a growing answer are whole sentences.

    The end of a line ends a sentence too. Code, headings, rows of tables and bare list numbers are no sentences.

    Args:
        answer: the answer so far.
        since: characters known to be whole sentences.
    """
    if answer.count("```") % 2:
        return since
    start = max(since, answer.rfind("```") + 3)  # after code
    ends = _sentence_ends(answer, start, len(answer)) + [match.end(1) for match in _LINE_END.finditer(answer, start)]
    return max((end for end in ends if _SAID.match(answer, answer.rfind("\n", 0, end) + 1, end)), default=since)
