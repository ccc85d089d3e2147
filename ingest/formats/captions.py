"""Captions (SRT, WebVTT, SBV): the words that are said, in paragraphs with the time at which each begins.

Captions made by machines roll: each shows the line before it once more. Such a line is read once.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ingest.clean import one_line
from ingest.sections import Block

SUFFIXES = ("srt", "vtt", "sbv")

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,3}))?"
_TIMES = re.compile(rf"\s*{_TIME}\s*(?:-->|,)\s*{_TIME}(?:\s.*)?")
_END = "0:00:00.000 --> 0:00:00.000"  # behind the last caption
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s+([^<>]+)>")
_TAG = re.compile(r"</?(?:[cibuv]|s|ruby|rt|lang|font|em|strong)(?:[.\s][^<>]*)?>|<\d+:[\d:.]+>", re.IGNORECASE)
_STYLE = re.compile(r"\{\\[^{}]*\}")  # {\an8}
_REMARK = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")
_PAUSE, _LONGEST = 2.0, 60.0  # seconds between two paragraphs, and of one


@dataclass
class _Caption:
    start: float  # seconds, as is `end`
    end: float
    lines: list[str]


def caption_blocks(text: str) -> list[Block] | None:
    """Return the paragraphs of captions; None if the text holds no times. text: with line feeds for line ends."""
    captions = _captions(text)
    if not captions:
        return None
    if _rolls(captions):
        shown: list[str] = []
        for caption in captions:
            known = _overlap(shown, caption.lines)
            shown, caption.lines = caption.lines, caption.lines[known:]
    return list(_paragraphs(captions))


def _captions(text: str) -> list[_Caption]:
    """Return the captions of a file in its order, without tags, names and remarks."""
    captions: list[_Caption] = []
    named = text.startswith("WEBVTT")
    parts: list[list[str]] = [[]]  # the lines of the caption, parted at blank lines
    for line in [*text.split("\n"), _END]:
        if times := _TIMES.fullmatch(line):
            before = parts[-1]
            alone = named and len(before) == 1 and len(parts) > 1
            if before and line != _END and (alone or before[-1].strip().isdecimal()):
                before.pop()  # the name or number of the caption that begins here
            if captions:
                first = parts[:1] + [part for part in parts[1:] if part and not (named and _REMARK.match(part[0]))]
                lines = [_plain(line) for part in first for line in part]
                captions[-1].lines = [line for line in lines if line]
            captions.append(_Caption(_seconds(*times.groups()[:4]), _seconds(*times.groups()[4:]), []))
            parts = [[]]
        elif line:
            parts[-1].append(line)
        elif parts[-1]:
            parts.append([])
    return captions[:-1]


def _plain(line: str) -> str:
    """Return a line without tags, its speaker before a colon."""
    line = _STYLE.sub("", _TAG.sub("", _VOICE.sub(lambda voice: f"{voice[1].strip()}: ", line)))
    return one_line(html.unescape(line))


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction or 0}")


def _rolls(captions: list[_Caption]) -> bool:
    """Return whether most captions repeat lines of the one before."""
    filled = [caption.lines for caption in captions if caption.lines]
    again = sum(_overlap(before, after) > 0 for before, after in pairwise(filled))
    return len(filled) > 2 and again * 2 >= len(filled) - 1


def _overlap(before: list[str], after: list[str]) -> int:
    """Return how many of the first lines are the last ones of the caption before."""
    return next((n for n in range(min(len(before), len(after)), 0, -1) if before[-n:] == after[:n]), 0)


def _paragraphs(captions: list[_Caption]) -> Iterator[Block]:
    """Yield the captions as paragraphs, which end at a pause."""
    lines: list[str] = []
    start = end = 0.0
    for caption in captions:
        if lines and (caption.start - end > _PAUSE or caption.start - start > _LONGEST or caption.start < start):
            yield Block("\n".join(lines))
            lines = []
        if caption.lines:
            if not lines:
                start = caption.start
                lines.append(f"[{int(start) // 3600}:{int(start) // 60 % 60:02}:{int(start) % 60:02}]")
            lines += caption.lines
        end = caption.end
    yield Block("\n".join(lines))
