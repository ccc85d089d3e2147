"""Logical order of right-to-left lines, from the places of their characters on the page.

A PDF gives the place of each character, and MuPDF guesses the order. It reverses the digits of Arabic numbers, and all
words of a line that a program drew from the left. So the order is computed from the places, by the Unicode
bidirectional algorithm (UAX #9) backwards, without embeddings, which a page does not show.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple
from unicodedata import bidirectional

RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_GAP = 0.5  # of the font size; a wider gap is a blank
_MIRRORED = str.maketrans("()[]{}<>«»‹›", ")(][}{><»«›‹")
_OPENING, _BRACKETS = set("([{<«‹"), set("()[]{}<>«»‹›")
# Bidirectional class of a character -> a letter for the patterns below; other classes are neutral, "-".
_KINDS = {"R": "R", "AL": "R", "L": "L", "EN": "N", "AN": "A", "CS": ",", "ES": "+", "ET": "+"}
_FROM_RIGHT = re.compile("[RA](?:[^L]*[RA])?")  # right-to-left parts of a left-to-right line
_FROM_LEFT = "(?=[^R]*L)[LNA](?:[^R]*[LNA])?"  # left-to-right parts of a right-to-left line, with numbers
_ISLANDS = {
    True: re.compile(f"{_FROM_LEFT}|[NA]+(?:,[NA]+)*"),
    False: re.compile(f"{_FROM_LEFT}|[+]*[NA]+(?:[,+][NA]+)*[+]*"),
}


class Glyph(NamedTuple):
    """A character with its start and end along its line."""

    text: str
    start: float
    end: float


class PageDirection(NamedTuple):
    """The direction of a page.

    right_to_left: all its lines run from right to left, whatever names are in them.
    brackets_as_drawn: its characters for brackets are those that are seen, not those that are meant.
    """

    right_to_left: bool
    brackets_as_drawn: bool


def page_direction(lines: Iterable[Sequence[Glyph]]) -> PageDirection:
    """Return the direction of a page with some lines.

    Two thirds of its letters decide, and for brackets most of the lines that have a pair. Without a pair, the first
    bracket is taken for an opening one.
    """
    kinds: Counter[str | None] = Counter()
    votes, first = 0, ""
    for glyphs in lines:
        kinds.update(_KINDS.get(bidirectional(sign)) for each in glyphs for sign in each.text)
        signs = [each.text for each in sorted(glyphs, key=lambda each: each.start) if each.text in _BRACKETS]
        if signs and any(RIGHT_TO_LEFT.search(each.text) for each in glyphs):
            first = first or signs[0]
            if len({sign in _OPENING for sign in signs}) == 2:
                votes += 1 if signs[0] in _OPENING else -1
    return PageDirection(kinds["R"] > 2 * kinds["L"], votes > 0 or (votes == 0 and first not in _OPENING))


def logical_order(glyphs: Sequence[Glyph], size: float, page: PageDirection) -> str:
    """Return the text of a line in logical order.

    Args:
        glyphs: the line's, in any order.
        size: the font size, in the unit of the places.
        page: the direction of its page.
    """
    line = _with_blanks(sorted(_join_marks(glyphs), key=lambda each: each.start + each.end), size)
    kinds = "".join(_KINDS.get(bidirectional(each[0]), "-") for each in line)
    islands = _ISLANDS[any(bidirectional(each[0]) == "AL" for each in line)]
    turn = _MIRRORED if page.brackets_as_drawn else {}

    def from_right(start: int, end: int) -> str:
        pieces, at = [], start
        for island in islands.finditer(kinds, start, end):
            pieces += [each.translate(turn) for each in line[at : island.start()]]
            pieces.append("".join(line[island.start() : island.end()]))
            at = island.end()
        pieces += [each.translate(turn) for each in line[at:end]]
        return "".join(reversed(pieces))

    if kinds.count("R") > (0 if page.right_to_left else kinds.count("L")):
        return from_right(0, len(line))
    text, at = "", 0
    for part in _FROM_RIGHT.finditer(kinds):
        text += "".join(line[at : part.start()]) + from_right(part.start(), part.end())
        at = part.end()
    return text + "".join(line[at:])


def _join_marks(glyphs: Sequence[Glyph]) -> list[Glyph]:
    """Join combining marks to their letter, and the letters of a ligature. Only its first letter has a width."""
    joined: list[Glyph] = []
    waiting = ""
    for each, after in zip_longest(glyphs, glyphs[1:]):
        kind = bidirectional(each.text)
        thin = each.end - each.start < 0.01
        alone = not joined or abs(joined[-1].end - each.start) > 0.1
        if thin and alone and kind in ("R", "AL") and after is not None and abs(after.end - each.start) < 0.1:
            # MuPDF reversed the ligature: its first letter comes last.
            waiting = each.text + waiting
        elif joined and (kind == "NSM" or (thin and kind == bidirectional(joined[-1].text[0]))):
            joined[-1] = joined[-1]._replace(text=joined[-1].text + each.text)
        else:
            joined.append(each._replace(text=each.text + waiting))
            waiting = ""
    return joined


def _with_blanks(line: Sequence[Glyph], size: float) -> list[str]:
    """Return the texts of glyphs from the left, with a blank at each wide gap."""
    texts: list[str] = []
    for each, after in zip_longest(line, line[1:]):
        texts.append(each.text)
        if after is not None and after.start - each.end > _GAP * size and not (each.text + after.text).isspace():
            texts.append(" ")
    return texts
