"""Lines that run from right to left, from where their characters stand on the page: words, numbers and signs in order.

A PDF says where each character is drawn, and MuPDF guesses the order: it turns the digits of Arabic numbers around, and
the words of a whole line if a program drew them from the left. So the order is found anew from the places, by the
Unicode bidirectional algorithm (UAX #9) backwards, without embeddings, which a page does not show.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple
from unicodedata import bidirectional

RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_GAP = 0.5  # of the size of the print: what is further apart has a blank between
_MIRRORED = str.maketrans("()[]{}<>«»‹›", ")(][}{><»«›‹")
_OPENING, _BRACKETS = set("([{<«‹"), set("()[]{}<>«»‹›")
# A letter for each character of a line, by the names of Unicode's kinds; what is not here is a neutral, "-".
_KINDS = {"R": "R", "AL": "R", "L": "L", "EN": "N", "AN": "A", "CS": ",", "ES": "+", "ET": "+"}
_FROM_RIGHT = re.compile("[RA](?:[^L]*[RA])?")  # within a line from the left
_FROM_LEFT = "(?=[^R]*L)[LNA](?:[^R]*[LNA])?"  # within one from the right; and numbers, to which in Hebrew signs belong
_ISLANDS = {
    True: re.compile(f"{_FROM_LEFT}|[NA]+(?:,[NA]+)*"),
    False: re.compile(f"{_FROM_LEFT}|[+]*[NA]+(?:[,+][NA]+)*[+]*"),
}


class Glyph(NamedTuple):
    """A character, and where it begins and ends along its line."""

    text: str
    start: float
    end: float


class Facing(NamedTuple):
    """How a page runs.

    leftward: from right to left, and so all its lines, whatever names are in them; as_drawn: its brackets are as they
    look, and not as they are meant.
    """

    leftward: bool
    as_drawn: bool


def facing(lines: Iterable[Sequence[Glyph]]) -> Facing:
    """How a page with these lines runs: by two thirds of its letters, and by most of the lines with a pair of brackets.

    Where there are none with a pair, the first bracket is meant to open one.
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
    return Facing(kinds["R"] > 2 * kinds["L"], votes > 0 or (votes == 0 and first not in _OPENING))


def in_order(glyphs: Sequence[Glyph], size: float, page: Facing) -> str:
    """The text of a line of such a page as it is read; size: of its print, in the unit of the places."""
    line = _spaced(sorted(_whole(glyphs), key=lambda each: each.start + each.end), size)
    kinds = "".join(_KINDS.get(bidirectional(each[0]), "-") for each in line)
    islands = _ISLANDS[any(bidirectional(each[0]) == "AL" for each in line)]
    turn = _MIRRORED if page.as_drawn else {}

    def from_right(start: int, end: int) -> str:
        pieces, at = [], start
        for island in islands.finditer(kinds, start, end):
            pieces += [each.translate(turn) for each in line[at : island.start()]]
            pieces.append("".join(line[island.start() : island.end()]))
            at = island.end()
        pieces += [each.translate(turn) for each in line[at:end]]
        return "".join(reversed(pieces))

    if kinds.count("R") > (0 if page.leftward else kinds.count("L")):
        return from_right(0, len(line))
    text, at = "", 0
    for part in _FROM_RIGHT.finditer(kinds):
        text += "".join(line[at : part.start()]) + from_right(part.start(), part.end())
        at = part.end()
    return text + "".join(line[at:])


def _whole(glyphs: Sequence[Glyph]) -> list[Glyph]:
    """Marks join their letter; and the letters of a ligature, of which all but the first have no width, join that."""
    joined: list[Glyph] = []
    waiting = ""
    for each, after in zip_longest(glyphs, glyphs[1:]):
        kind = bidirectional(each.text)
        thin = each.end - each.start < 0.01
        alone = not joined or abs(joined[-1].end - each.start) > 0.1
        if thin and alone and kind in ("R", "AL") and after is not None and abs(after.end - each.start) < 0.1:
            # MuPDF turned the ligature around, and its first letter is still to come.
            waiting = each.text + waiting
        elif joined and (kind == "NSM" or (thin and kind == bidirectional(joined[-1].text[0]))):
            joined[-1] = joined[-1]._replace(text=joined[-1].text + each.text)
        else:
            joined.append(each._replace(text=each.text + waiting))
            waiting = ""
    return joined


def _spaced(line: Sequence[Glyph], size: float) -> list[str]:
    """Texts of glyphs from the left, with a blank where the next one stands far off."""
    texts: list[str] = []
    for each, after in zip_longest(line, line[1:]):
        texts.append(each.text)
        if after is not None and after.start - each.end > _GAP * size and not (each.text + after.text).isspace():
            texts.append(" ")
    return texts
