"""Paragraphs and chapter headings of plain text.

Plain text may be hard-wrapped, as in Project Gutenberg's books. Lines that were filled are joined to paragraphs; short
ones (verse, lists, tables) stay as they are, and so do the lines of logs, tables and programs. Chapters are found by
their headings.
"""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import quantiles
from unicodedata import category

from ingest.clean import seam, tidy, vocabulary
from ingest.sections import Block

_CHAPTER = re.compile(
    r"^(?:(?:chapter|book|part|volume|canto|act|scene|stave|letter|adventure|section|appendix|chapitre|kapitel|teil|buch"
    r"|cap[ií]tulo|capitolo|parte|livre|rozdzia[lł]|глава|часть|книга)\s+(?:the\s+)?[\w-]+\b"
    r"|(?:prologue|epilogue|preface|foreword|introduction|afterword|conclusion|contents|prolog|epilog|vorwort|préface)\b"
    r"|第[〇零一二三四五六七八九十百千\d]{1,7}[章回節节卷部]).{0,90}$",
    re.IGNORECASE,
)
_NUMERAL = re.compile(r"^[IVXLC]{1,8}(?:[.:)]?$|[.:]\s+[A-Z\d“\"].{0,80}$)")
_SENTENCE_END = (".", "!", "?", ";", ",", "”", '"', "’", ":")
_QUOTE = re.compile(r"(?:> ?)*")
_PART = re.compile(r"^(?:part|book|volume|teil|buch|partie|livre|часть|книга)\b", re.IGNORECASE)
_BORDER = re.compile(r"\t|[|]|[,;:](?=\S)")  # between the cells of a line; in prose a blank follows these signs


def plain_blocks(text: str, by_lines: bool) -> list[Block]:
    """Return the paragraphs and headings of plain text.

    Args:
        text: with line feeds for line ends.
        by_lines: keep every line and look for no headings.
    """
    paragraphs = _paragraphs(text, by_lines)
    return [Block(each.text, code=True) for each in paragraphs] if by_lines else _with_chapters(paragraphs)


@dataclass(frozen=True)
class _Paragraph:
    """Lines between blank ones."""

    text: str  # its lines keep their indentation relative to one another
    gap: int  # blank lines before it

    @property
    def block(self) -> Block:
        """The paragraph as a block, which keeps its lines if it has several."""
        return Block(self.text, code="\n" in self.text)


def _paragraphs(text: str, keep_lines: bool) -> list[_Paragraph]:
    """Split a text at its blank lines, and join lines that were wrapped."""
    lines = [re.sub(r"^[ \t]+", lambda indent: indent[0].expandtabs(4), line.rstrip()) for line in text.split("\n")]
    filled = [line for line in lines if line]
    if not filled:
        return []
    blanks = len(lines) - len(filled)
    if blanks * 20 < len(filled) and sum(map(len, filled)) > 120 * len(filled):
        return [_Paragraph(line, 0) for line in filled]  # every line is a paragraph
    width = quantiles(map(len, filled), n=20)[17] if len(filled) > 1 else 0  # 90 of 100 lines are no longer
    wrapped = not keep_lines and 40 <= width <= 120 and _runs_on(lines, width, few=1)
    words = vocabulary(filled) if wrapped else set()
    paragraphs, current, gap = [], list[str](), 2
    for line in [*lines, ""]:
        if line:
            current.append(line)
            continue
        if current:
            whole = "\n".join(current if keep_lines else _pushed_left(current))
            if wrapped:
                whole = "\n".join(_quoted(quote, list(each), width, words) for quote, each in groupby(current, _quote))
            paragraphs.append(_Paragraph(whole, gap))
            current, gap = [], 0
        gap += 1
    return paragraphs


def _quote(line: str) -> str:
    """Return the quotation marks before a line of a mail: ">>" if it was quoted twice."""
    return "".join(signs[0].split()) if (signs := _QUOTE.match(line)) else ""


def _quoted(quote: str, lines: list[str], width: float, words: set[str]) -> str:
    """Join lines with the same quotation marks where their sentences run on, and mark every line again."""
    bare = [_QUOTE.sub("", line) for line in lines] if quote else lines
    if quote and not any(bare):
        return quote
    parts = [list(part) for filled, part in groupby(bare, bool) if filled]
    joined = []
    for part in parts:
        runs_on = not _is_listing(part) and _runs_on(part, width - len(quote) - bool(quote))
        whole = _joined(part, width - len(quote) - bool(quote), words) if runs_on else "\n".join(_pushed_left(part))
        joined.append("\n".join(f"{quote} {line}" for line in whole.split("\n")) if quote else whole)
    return f"\n{quote}\n".join(joined)


def _is_full(line: str, following: str, width: float) -> bool:
    """Return whether a line ended because the first word of the next one found no room."""
    return len(line) + 1 + len(following.split(maxsplit=1)[0]) > width - 8


def _runs_on(lines: list[str], width: float, few: int = 0) -> bool:
    """Return whether sentences run on over the ends of full lines.

    Nine ends in ten do in wrapped English, six in German, none in a log or in verse. Fewer than eight full lines tell
    little; then `few` ends are enough.
    """
    ends = [
        (line, after.lstrip()) for line, after in pairwise(lines) if line and after and _is_full(line, after, width)
    ]
    on = sum(
        (category(line[-1])[0] in "LM" or line[-1] in ",;-–—’”\"'，、")
        and (category(after[0]) in ("Ll", "Lo", "Lm") or (line.isupper() and after.isupper()))
        for line, after in ends
    )
    return on >= (few if len(ends) < 8 else 0.25 * len(ends))


def _is_listing(lines: list[str]) -> bool:
    """Return whether lines begin alike or have the same cells, like the lines of logs and tables."""
    most = max(3.0, 0.8 * len(lines))
    starts = Counter(line.split(maxsplit=1)[0] for line in lines)
    cells = Counter("".join(_BORDER.findall(line)) for line in lines)
    return (
        max(starts.values()) >= most
        or sum(bool(re.match(r"\s*[\[(<]?\d", line)) for line in lines) >= most
        or any(number >= most and (len(borders) > 1 or borders in ("\t", "|")) for borders, number in cells.items())
    )


def _joined(lines: list[str], width: float, words: set[str]) -> str:
    """Join the lines of a paragraph that were filled; a short line keeps its end."""
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    verse = indent >= 3 and len(lines) > 1
    left = _pushed_left(lines)
    pieces = [left[0]]
    for before, line, pushed in zip(lines, lines[1:], left[1:], strict=False):
        bare = line.strip()
        if _is_full(before, line, width) and not verse and not re.match(r"[-*•]\s|\d{1,3}[.)]\s", bare):
            lost, glue = seam(pieces[-1], bare, words)
            pieces[-1] = pieces[-1][: len(pieces[-1]) - lost]
            pieces.append(glue + bare)
        else:
            pieces.append("\n" + pushed)
    text = re.sub(r"(?<=\S) {2,}", " ", "".join(pieces))  # double spaces after sentences, and those that justify a line
    return text if "\n" in text else text.strip()  # the indentation of a first line is only style


def _pushed_left(lines: list[str]) -> list[str]:
    """Remove the indentation that all lines share."""
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return [line[indent:] for line in lines]


def _with_chapters(paragraphs: list[_Paragraph]) -> list[Block]:
    """Return paragraphs as blocks, with headings if the text has at least two."""
    titles = [tidy(paragraph.text) for paragraph in paragraphs]
    named = [_is_heading(title) for title in titles]
    apart = [
        paragraph.gap >= 2
        and len(title) <= 70
        and "\n" not in title
        and title[:1].isalnum()
        and not title.endswith(_SENTENCE_END)
        for paragraph, title in zip(paragraphs, titles, strict=True)
    ]
    apart = apart if sum(apart) >= 2 else [False] * len(titles)
    if sum(named) + sum(apart) < 2:
        return [paragraph.block for paragraph in paragraphs]
    upper = any(_PART.match(title) for title, is_named in zip(titles, named, strict=True) if is_named) or any(
        is_apart and not is_named for is_apart, is_named in zip(apart, named, strict=True)
    )
    found = [is_named or is_apart for is_named, is_apart in zip(named, apart, strict=True)]
    one_lines = [" ".join(title.split()) for title in titles]
    last = {title.casefold(): index for index, title in enumerate(one_lines) if not _NUMERAL.match(title)}
    blocks = []
    for index, paragraph in enumerate(paragraphs):
        title = one_lines[index]
        # A title that comes again later is a line of a table of contents here.
        if found[index] and last.get(title.casefold(), index) == index:
            blocks.append(Block(title, 2 if upper and named[index] and not _PART.match(title) else 1))
        else:
            blocks.append(paragraph.block)
    return blocks


def _is_heading(text: str) -> bool:
    """Return whether a paragraph reads like the heading of a chapter."""
    first, _, second = text.partition("\n")
    if len(second) >= 80 or "\n" in second:
        return False
    if _NUMERAL.match(first):
        return len(first) < 10 or not first.endswith(_SENTENCE_END)
    if not _CHAPTER.match(first):
        return False
    # "Part of it was true." begins like a heading; "Chapter 1. I am born." is one.
    numbered = re.match(r"\w+\s+(?:[\dIVXLC]+|[A-Z]+)\b[.:]?", first)
    return first.isupper() or (not first.endswith(_SENTENCE_END) and len(first) < 70) or bool(numbered)
