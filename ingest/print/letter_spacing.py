"""Blanks that MuPDF sees in gaps which are none: behind ligatures, and between letters that are set apart.

It knows of no spaces but by gaps wider than a seventh of the font's size. Where glyphs stand it says on demand.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

NARROW = 0.21  # of the font's size: a gap behind a ligature that parts no words
APART = 0.6  # the widest gap between the letters of a word
WORDS = 1.7  # times as wide as the gap between letters is that between words
LEAST_LETTERS = 5
_LIGATURE = re.compile(r"f[fil] [a-zß-ÿ]")
_LONE = re.compile(r"(?:^|(?<=\s))[^\W\d_](?=\s|$)")


def has_false_blanks(text: str) -> bool:
    """Whether a line of print may have blanks that are none."""
    return bool(_LIGATURE.search(text)) or _is_spaced(text)


def _is_spaced(text: str) -> bool:
    words = text.split()
    return len(words) >= LEAST_LETTERS and len(_LONE.findall(text)) >= 0.7 * len(words)


def settle(line: Mapping[str, Any]) -> None:
    """Take the blanks out of a line of MuPDF's, with its glyphs, that part no words; text from left to right alone."""
    if tuple(line["dir"]) != (1.0, 0.0):
        return
    signs = [(span, sign) for span in line["spans"] for sign in span.get("chars", ())]
    text = "".join(sign["c"] for _, sign in signs)
    gone = _between_letters(signs) if _is_spaced(text) else _behind_ligatures(signs)
    for span in line["spans"]:
        if "chars" in span:
            span["chars"] = [sign for sign in span["chars"] if id(sign) not in gone]
    line["spans"][:] = [span for span in line["spans"] if span.get("chars", True)] or line["spans"]


def _behind_ligatures(signs: Sequence[tuple[Any, Any]]) -> set[int]:
    """A ligature is several letters, of which only the first has a width."""
    gone = set()
    for (_, before), (span, blank), (_, after) in zip(signs, signs[1:], signs[2:], strict=False):
        if not blank["c"].isspace() or before["c"] not in "fil" or not after["c"].islower():
            continue
        gap = after["bbox"][0] - before["bbox"][2]
        if _width(before) < 0.01 * span["size"] and gap < NARROW * span["size"]:
            gone.add(id(blank))
    return gone


def _between_letters(signs: Sequence[tuple[Any, Any]]) -> set[int]:
    """Where letters are set apart, the gaps between words are much wider than those between letters."""
    letters = [(index, sign) for index, (_, sign) in enumerate(signs) if not sign["c"].isspace()]
    gaps = [after["bbox"][0] - before["bbox"][2] for (_, before), (_, after) in pairwise(letters)]
    if len(gaps) < LEAST_LETTERS - 1:
        return set()
    usual, size = median(gaps), max(span["size"] for span, _ in signs)
    wide = [gap > WORDS * usual for gap in gaps]
    if not 0 < usual < APART * size or not any(wide):
        return set()
    gone = set()
    for ((start, _), (end, _)), apart in zip(pairwise(letters), wide, strict=True):
        if not apart:
            gone |= {id(sign) for _, sign in signs[start + 1 : end]}
    return gone


def _width(sign: Mapping[str, Any]) -> float:
    return float(sign["bbox"][2] - sign["bbox"][0])
