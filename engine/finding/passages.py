"""Passages: a text of tokens, cut into stretches of whole sentences."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

LETTERS = 600  # of a passage; it ends with the sentence that reaches them
LONGEST = 2  # times as many letters at most, where no sentence ends

SENTENCE_END = re.compile(r"[.!?…؟۔।][\"'”’»)\]]*(?=\s)|[。！？]|\n[ \t]*\n")


def decoded(ids: Sequence[int], decode: Callable[[list[int]], str]) -> list[str]:
    """Return the text of each token. decode: returns the text of tokens; called once for each kind of token."""
    known = {number: decode([number]) for number in dict.fromkeys(ids)}
    return [known[number] for number in ids]


def cut(pieces: Sequence[str], letters: int = LETTERS) -> list[range]:
    """Cut a text into passages of whole sentences, about `letters` characters each.

    Args:
        pieces: the text of each token.
        letters: length of a passage in characters.

    Returns:
        The tokens of each passage, in order and without gaps.
    """
    ends = list(accumulate(len(piece) for piece in pieces))  # characters up to the end of each token
    sentences = [bisect_left(ends, match.end()) + 1 for match in SENTENCE_END.finditer("".join(pieces))]
    found: list[range] = []
    start = 0

    def close(end: int) -> None:
        nonlocal start
        found.append(range(start, end))
        start = end

    for end in (*sentences, len(pieces)):
        before = ends[start - 1] if start else 0
        while end > start and ends[end - 1] - before > LONGEST * letters:
            close(min(end, bisect_left(ends, before + letters) + 1))
            before = ends[start - 1]
        if end > start and (ends[end - 1] - before >= letters or end == len(pieces)):
            close(end)
    return found
