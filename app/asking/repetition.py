"""Find the point where an answer begins to repeat itself.

A small model that does not know how to continue says a word, a list, a sentence or a paragraph again and again. Words
are compared, so case, punctuation and list numbers do not matter, and a number may count up. Only the last few thousand
characters are searched, so the time does not grow with the answer.
"""

import re
from itertools import pairwise
from typing import NamedTuple

TAIL = 4000
"""Characters at the end of an answer that are searched."""

COPIES, WORDS, CHARACTERS = 3, 16, 40
"""Least copies in a row, and least words and characters of all copies together, that are a repetition."""

PARAGRAPH_WORDS = 40
"""Words of a passage for which two copies are enough."""

COUNTING_WORDS, BARE_WORDS = 40, 200
"""Least words besides numbers if numbers count up; least words if there is hardly any text beside the numbers."""

SENTENCES, SENTENCE_WORDS, SAID_BEFORE = 5, 4, 3
"""Sentences in a row, each of at least so many words and said so often before, that are a repetition in any order."""

LINES, SIGNS = 10, 400
"""Equal lines of code or of a table, and characters without any blank or word, that are a repetition."""

# Scripts without blanks between words: each character counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:[^\W{_UNSPACED}])+(?:['’][^\W{_UNSPACED}]+)*")
_LIST_NUMBER = re.compile(r"(?:\A|(?<=\s))\d{1,3}[.)](?=\s)")
_TABLE_ROW = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
_BORDER = re.compile(r"[.!?…؟۔।。！？]|\n")
_SENTENCE_END = re.compile(r"[.!?…؟۔।](?:[\"'”’»)\]*_]*)(?=\s|\Z)|[。！？]|\n")
_PAUSE = re.compile(r"[,;:、，；]")
_CLOSING = re.compile(r"[.!?…؟۔।。！？]*[\"'”’»)\]*_]*")
_LETTER = re.compile(r"[^\W\d_]")


class _Words(NamedTuple):
    """Words of a text in lower case, with the start and end of each."""

    words: list[str]
    places: list[tuple[int, int]]


def repetition_start(text: str) -> int | None:
    """Return how many characters of `text` to keep if it only repeats itself; None if it says new things.

    The repeated words are kept once. Tables and code count as repetition only if whole lines repeat. Refrains, and
    lists whose items differ in more than a number, do not count.
    """
    if (unbroken := _unbroken(text)) is not None:
        return unbroken
    begin = max(0, len(text) - TAIL)
    code = text.rfind("```") + 3
    if text.count("```") % 2:
        return _equal_lines(text, max(begin, code))
    rows = list(_TABLE_ROW.finditer(text, begin))
    if rows and not text[rows[-1].end() :].strip():
        return _equal_lines(text, begin)
    begin = max([begin, code if code > 2 else 0, *(row.end() for row in rows[-1:])])
    kept = _periodic(text, _words_of(text, begin))
    return _told_before(text, begin) if kept is None and _SENTENCE_END.search(text, len(text) - 1) else kept


def _unbroken(text: str) -> int | None:
    """Return the characters to keep of a text that ends in a long run of the same few characters without a blank."""
    size = len(text)
    tail = text[-40:]
    before = text.rfind(tail, max(0, size - 80), max(0, size - 1))
    if before < 0 or len(tail) < 40:
        return None
    period = size - len(tail) - before
    copy = text[-period:]
    if period > 1 and re.search(r"\s", copy.strip()):
        return None  # words are compared by _periodic
    needed = 4 * CHARACTERS if copy.isalnum() else SIGNS
    if size < needed + period or text[-needed:] != text[-needed - period : -period]:
        return None
    if re.search(r"\w", copy) and re.search(r"\s|[|,;]", copy):
        return None  # words and cells are compared elsewhere
    start = size - needed - period
    while start and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return start + period


def _words_of(text: str, begin: int) -> _Words:
    numbers = {match.start() for match in _LIST_NUMBER.finditer(text, begin)}
    found = [match for match in _WORD.finditer(text, begin) if match.start() not in numbers]
    if found and found[-1].end() == len(text):  # it may go on
        found.pop()
    return _Words([match[0].casefold() for match in found], [match.span() for match in found])


def _periodic(text: str, found: _Words) -> int | None:
    """Return the characters to keep of a text that ends in the same words several times in a row."""
    words = found.words
    for period in range(1, len(words) // 2 + 1):
        at = len(words) - 1
        if not _alike(words[at - period], words[at]):
            continue
        while at >= period and _alike(words[at - period], words[at]):
            at -= 1
        first = at + 1 - period  # start of the first copy
        if _enough(words[first:], period, text[found.places[first][0] :]):
            return _end_of_copy(text, found, first, period)
    return None


def _alike(before: str, now: str) -> bool:
    """Return whether two words are equal, or the second is the next number."""
    return before == now or (before.isdecimal() and now.isdecimal() and len(now) < 10 and int(now) == int(before) + 1)


def _enough(words: list[str], period: int, text: str) -> bool:
    """Return whether copies of the first `period` words are a repetition, not a refrain, a list or figures."""
    copy = words[:period]
    letters = sum(_LETTER.search(word) is not None for word in copy)
    least = 2 if period >= PARAGRAPH_WORDS else COPIES
    if len(words) < max(WORDS, least * period) or len(text) < CHARACTERS:
        return False
    if words[period : 2 * period] != copy:  # numbers count up
        return letters > 0 and letters * (len(words) // period) >= (COUNTING_WORDS if letters >= 3 else BARE_WORDS)
    return letters > 0 or len(words) >= BARE_WORDS


def _end_of_copy(text: str, found: _Words, first: int, period: int) -> int:
    """Return the end of the first copy, moved forward to the end of its sentence or line, or back to a pause."""
    last = first + period - 1
    gaps = [(end, following) for (_, end), (following, _) in pairwise(found.places)]
    for end, following in gaps[last : last + max(period, WORDS)]:
        if _BORDER.search(text, end, following):
            return _closed(text, end)
    for end, following in reversed(gaps[first : last + 1]):
        if _PAUSE.search(text, end, following):
            return end
    return _closed(text, found.places[last][1])


def _closed(text: str, end: int) -> int:
    """Return the offset after the punctuation that closes a sentence whose last word ends at `end`."""
    match = _CLOSING.match(text, end)
    return match.end() if match else end


def _told_before(text: str, begin: int) -> int | None:
    """Return the characters to keep of a text whose last sentences or lines were all said before, in any order."""
    count: dict[str, int] = {}
    run, at, kept = 0, begin, begin
    for border in _SENTENCE_END.finditer(text, begin):
        words = _words_of(text[at : border.end()] + " ", 0).words
        at = border.end()
        if not words:
            continue
        said = " ".join(words)
        count[said] = count.get(said, 0) + 1
        if len(words) < SENTENCE_WORDS and count[said] > 1:  # such as "Yes."
            continue
        run = run + 1 if count[said] > SAID_BEFORE else 0
        kept = kept if run else at
    return kept if run >= SENTENCES else None


def _equal_lines(text: str, begin: int) -> int | None:
    """Return the characters to keep of code or a table that ends in many equal lines."""
    lines = text[begin:].splitlines(keepends=True)
    if len(lines) < LINES or not lines[-1].endswith("\n"):
        return None
    last = lines[-1].strip()
    same = next((count for count, line in enumerate(reversed(lines)) if line.strip() != last), len(lines))
    if same < LINES or not re.search(r"\w", last):
        return None
    return len(text) - sum(map(len, lines[-same + 1 :])) - 1
