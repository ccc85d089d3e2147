"""Line ends that are meant: those of verse and of lists without bullets.

Their only sign in print is that line after line begins with a capital letter or a number. In prose one in ten words
does so (in German one in three). So by chance few lines in a row do.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log
from statistics import median

from ingest.clean import ends_sentence
from ingest.print.lines import CELL, Line

CHANCE = 0.003  # that a run of lines of prose is taken for verse
LEAST_SHARE = 0.1  # of words with capital letters, in a text too short to tell
EVEN = 1.5  # points; lines of justified prose end within them
INDENT = 5.0  # font sizes; lines of verse are indented by less
WIDER = 0.35  # of a line's height; a gap that is wider by more parts stanzas
_BROKEN = re.compile(r"[^\W\d_][-‐]$")
_BEGINNING = re.compile(r"[^\w]*(\w)")


def share_of_beginnings(lines: Iterable[Line]) -> float:
    """Return the share of the words within lines that have a capital letter or are numbers."""
    words = [word for line in lines for word in line.text.split()[1:]]
    return max(LEAST_SHARE, sum(map(_begins, words)) / max(1, len(words)))


@dataclass(frozen=True)
class Seam:
    """Two lines that follow one another, and the border between them: "paragraph", "line", or "" if they are one."""

    before: Line
    line: Line
    border: str


def with_meant_ends(seams: Iterable[Seam], share: float) -> list[Seam]:
    """Return the seams of a page, with borders between lines of verse and between entries of lists.

    share: see `share_of_beginnings`.
    """
    mended: list[Seam] = []
    run: list[Seam] = []
    for seam in seams:
        if not _in_one_column(seam) or (run and abs(seam.line.x0 - run[0].before.x0) > INDENT * seam.line.size):
            mended += [*_mended(run, share), seam]
            run = []
        else:
            run.append(seam)
    return mended + _mended(run, share)


def _begins(text: str) -> bool:
    """Return whether a text begins with a capital letter or a number."""
    first = _BEGINNING.match(text)
    return first is not None and (first[1].isupper() or first[1].isdigit())


def _in_one_column(seam: Seam) -> bool:
    """Return whether the second line stands below the first one, in print of the same size."""
    before, line = seam.before, seam.line
    height = max(before.y1 - before.y0, 1.0)
    plain = all(each.horizontal and not each.monospaced and CELL not in each.text for each in (before, line))
    alike = abs(line.size - before.size) <= 0.1 * max(line.size, 1.0)
    return plain and alike and -0.5 * height < line.y0 - before.y1 < 2 * height


def _mended(run: list[Seam], share: float) -> list[Seam]:
    """Return the seams of lines that stand below each other, with borders where they are meant."""
    lines = [*(seam.before for seam in run), *(seam.line for seam in run[-1:])]
    if len(run) < 2 or _is_justified(lines):
        return run
    runovers = _runovers(lines)
    typical = median(seam.line.y0 - seam.before.y1 for seam in run)
    share = max(share, share_of_beginnings(lines))
    mended, begun = list(run), list[int]()
    told = [_is_told(seam, typical, runovers) for seam in run]
    for index, seam in enumerate([*run, None]):
        if seam is not None and told[index]:
            continue
        if seam is not None and _begins(seam.line.text) and not _BROKEN.search(seam.before.text):
            begun.append(index)
            continue
        if len(begun) * log(share) + log(max(1, told.count(False) - len(begun) + 1)) < log(CHANCE):
            for number in range(begun[0], begun[-1] + 1):
                wide = _is_wide(run[number], typical)
                if number in begun or (run[number].border == "paragraph" and not wide):
                    mended[number] = replace(run[number], border="paragraph" if wide else "line")
        begun = []
    return mended


def _is_wide(seam: Seam, typical: float) -> bool:
    """Return whether two lines stand further apart than others do. typical: the usual gap, in points."""
    return seam.line.y0 - seam.before.y1 > typical + WIDER * (seam.line.y1 - seam.line.y0)


def _is_told(seam: Seam, typical: float, runovers: list[float]) -> bool:
    """Return whether other signs tell the border, so that a capital letter there says nothing more."""
    if any(abs(seam.line.x0 - place) < 2 for place in runovers):
        return True
    return seam.border == "paragraph" and (ends_sentence(seam.before.text) or _is_wide(seam, typical))


def _runovers(lines: list[Line]) -> list[float]:
    """Return where runover lines begin: indented, in small letters, with the rest of the line above."""
    left = min(line.x0 for line in lines)
    return [line.x0 for line in lines if line.x0 > left + 0.8 * line.size and not _begins(line.text)]


def _is_justified(lines: list[Line]) -> bool:
    """Return whether lines end at one right edge, as those of prose do."""
    right = max(line.x1 for line in lines)
    return len(lines) > 3 and sum(right - line.x1 < EVEN for line in lines) >= 0.5 * len(lines)
