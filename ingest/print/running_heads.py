"""Removal of page numbers and running heads, told by their place, their repetition, and their counting of pages.

A removed line is lost without a warning, so a doubtful line stays. Kept although it repeats: print clearly larger than
the text, and numbers that do not rise with the pages ("Invoice 1017"). Words that occur nowhere else, such as the name
of a contract at the head of its pages, are kept once, at the first place that interrupts no sentence.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ingest.clean import ends_sentence
from ingest.print.layout import PrintedPage
from ingest.print.lines import CELL, Line

MARGIN = 0.2  # share of the page's height, at the top and at the bottom, that is searched for running heads
BAND = 4.0  # points; two running heads within a band stand at the same place
LONGEST_HEAD = 120  # characters
LARGER = 1.2  # times the text's font size: a larger line is a heading

_ROMAN = re.compile(r"^(?=[ivxlc])(c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3}))$")
_WHOLE_NUMBER = re.compile(r"(?<!\d)(?<!\d[.,:])\d{1,5}(?!\d|[.,:]\d)")  # neither half of "1.2" nor of "10:45"
_WORD = re.compile(r"\w+")
_NUMBERS = re.compile(r"\b(?:\d+|[ivxlcIVXLC]+)\b")
_AROUND = r"[\s.,:;·•|~<>–—\-\[\]()]*"
_PAGE_WORD = (
    r"(?:pages?|pp?|pg|p[áa]g(?:ina)?|seite|s|sid[ae]|side|sivu|str(?:ona|ana)?|oldal|sayfa|стр(?:аница)?|с"
    r"|第|页|頁|ページ|쪽|페이지)"
)
_PAGE_NUMBER = re.compile(
    rf"{_AROUND}(?:{_PAGE_WORD}{_AROUND})?#(?:\s*(?:/|of|von|de|di|sur|av|af|из)\s*\d{{1,5}})?"
    rf"{_AROUND}(?:{_PAGE_WORD}{_AROUND})?"
)
_PAGE_OF_CHAPTER = re.compile(rf"{_AROUND}\d{{1,3}}[-–]#{_AROUND}")  # "3-12"
# A noun and its number, "Chapter 3", "Exercise 1-4", "第3章", counts chapters, even if each has one page.
_COUNTED = re.compile(
    rf"{_AROUND}(?:(?!{_PAGE_WORD}\b)[^\W\d_]{{2,}}[.:]?\s(?:(?:no|nr|n[º°])[.:]?\s?|[№#]\s?)?(?:\d{{1,3}}[-–])?#|第\s?#\s?(?!页|頁|ページ)[^\W\d_]+){_AROUND}"
)


def drop_running_heads(pages: list[PrintedPage]) -> list[PrintedPage]:
    """Remove page numbers, and lines that repeat at one place of several pages except for the page number.

    Only lines at the very edge of the text are removed. A line with other text between it and the edge stays.
    """
    if len(pages) < 2:
        return pages
    edges = [_edges(page) for page in pages]  # per page: top lines downwards, bottom lines upwards
    enough = 2 if len(pages) <= 3 else 3
    largest = LARGER * _text_size(pages)
    offsets = _page_number_offsets(edges, enough)
    repeats: Counter[tuple[object, ...]] = Counter()
    for index, page in enumerate(edges):
        repeats.update({key for side, lines in page.items() for line in lines for key in _keys(index, side, line)})

    def explained(index: int, side: str, line: Line) -> bool:
        cells = line.text.split(CELL)  # a cell with the page's number makes the row a running head
        return line.size <= largest and (
            any(_is_page_number(cell, index, offsets) for cell in (cells[0], cells[-1]))
            or any(repeats[key] >= enough for key in _keys(index, side, line))
        )

    # A band with repeated words on nearly every page is the book's head line. A chapter title that occurs there only
    # once goes, too, if the page's number stands beside it or the same words stand in the text.
    outermost: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for index, page in enumerate(edges):
        for side, lines in page.items():
            if lines and not _is_page_number(lines[0].text, index, offsets):
                outermost[side, round(lines[0].y0 / BAND)].append(explained(index, side, lines[0]))
    head_bands = {band for band, marks in outermost.items() if len(marks) >= 5 and sum(marks) >= 0.7 * len(marks)}
    whole = _words(line.text for page in pages for block in page.blocks for line in block) if head_bands else ""

    def is_title_in_band(index: int, side: str, line: Line) -> bool:
        if (side, round(line.y0 / BAND)) not in head_bands or len(line.text) >= 60 or line.size > largest:
            return False
        numbered = any((kind, value - index) in offsets for kind, value, _ in _numerals(line.text))
        return numbered or whole.count(_words([line.text])) >= 2

    gone: dict[int, Line | None] = {}  # id of a line -> its replacement
    found: dict[str, list[tuple[int, str, Line]]] = defaultdict(list)  # words without page numbers -> the removed lines
    for index, page in enumerate(edges):
        for side, lines in page.items():
            for depth, line in enumerate(lines):
                if not (explained(index, side, line) or (depth == 0 and is_title_in_band(index, side, line))):
                    break
                gone[id(line)] = None
                if not _is_page_number(line.text, index, offsets):
                    found[_words([_NUMBERS.sub(" ", line.text)])].append((index, side, line))
    kept = [_without(page, gone) for page in pages]
    said = _words(line.text for page in kept for block in page.blocks for line in block)
    for words, places in found.items():
        if re.search(r"[^\W\d_]{2}", words) and words not in said:
            between = (each for each in places if _ends_sentence(kept, each[0] - (each[1] == "top")))
            index, _, line = next(between, places[0])
            cells = (cell for cell in line.text.split(CELL) if not _is_page_number(cell, index, offsets))
            gone[id(line)] = replace(line, text=CELL.join(cells))
            said += words
    return [_without(page, gone) for page in pages]


def _ends_sentence(pages: list[PrintedPage], index: int) -> bool:
    """Return whether a line behind a page would interrupt no sentence."""
    return index < 0 or not pages[index].blocks or ends_sentence(pages[index].blocks[-1][-1].text)


def _without(page: PrintedPage, gone: Mapping[int, Line | None]) -> PrintedPage:
    """Remove or replace lines of a page; a page that would be empty stays as it is."""
    changed = ([gone.get(id(line), line) for line in block] for block in page.blocks)
    blocks = [kept for block in changed if (kept := [line for line in block if line is not None])]
    return PrintedPage(blocks, page.height) if blocks else page


def _text_size(pages: list[PrintedPage]) -> float:
    """Return the median font size of all characters, in points."""
    characters: Counter[float] = Counter()
    for page in pages:
        for block in page.blocks:
            for line in block:
                characters[line.size] += len(line.text)
    left = characters.total() / 2
    for size in sorted(characters):
        left -= characters[size]
        if left <= 0:
            return size
    return 0.0


def _edges(page: PrintedPage) -> dict[str, list[Line]]:
    """Return the lines at the "top", downwards, and at the "bottom", upwards, that may be running heads.

    Some space separates them from the text; without any, only the outermost line is taken.
    """
    lines = sorted((line for block in page.blocks for line in block if line.horizontal), key=lambda line: line.y0)
    found = {}
    for side, inwards in (("top", lines), ("bottom", lines[::-1])):
        margin = [
            line
            for line in inwards
            if (line.y1 < MARGIN * page.height if side == "top" else line.y0 > (1 - MARGIN) * page.height)
        ]
        apart = 0
        for index, (line, following) in enumerate(zip(inwards[:5], [*inwards[1:5], None], strict=False), 1):
            if following is None:
                break
            space = following.y0 - line.y1 if side == "top" else line.y0 - following.y1
            if space > 0.5 * (line.y1 - line.y0):
                apart = index
                break
        found[side] = [line for line in margin[: apart or 1] if len(line.text) <= LONGEST_HEAD]
    return found


def _bands(line: Line) -> tuple[int, ...]:
    """Return the band that a line stands in, and the neighbour that it nearly stands in."""
    place = line.y0 / BAND
    return tuple({round(place), round(place - 0.3), round(place + 0.3)})


def _keys(index: int, side: str, line: Line) -> set[tuple[object, ...]]:
    """Return the keys that a repetition of a line shares: place, words, and its number's distance from the page's."""
    text = " ".join(line.text.casefold().split())
    found: list[tuple[object, ...]] = [(text,)] if any(map(str.isalnum, text)) else []
    for kind, value, rest in _numerals(text):
        if _PAGE_OF_CHAPTER.fullmatch(rest) or (any(map(str.isalpha, rest)) and not _COUNTED.fullmatch(rest)):
            found.append((rest, kind, value - index))
    return {(side, band, *key) for key in found for band in _bands(line)}


def _numerals(text: str) -> list[tuple[str, int, str]]:
    """Return the numbers at both ends of a line, Arabic or Roman: kind, value, and the line with "#" for it."""
    text = text.casefold()
    words = list(re.finditer(r"[^\s/]+", text))
    found = []
    for word in dict.fromkeys((*words[:2], *words[-2:])):
        bare = word[0].strip(".,:;·|–—-[]()")
        if _ROMAN.match(bare):
            found.append(
                ("roman", _roman(bare), text[: word.start()] + word[0].replace(bare, "#") + text[word.end() :])
            )
        elif len(re.findall(r"\d+", bare)) <= 2:  # three numbers are a date
            for number in _WHOLE_NUMBER.finditer(text, word.start(), word.end()):
                found.append(("arabic", int(number[0]), text[: number.start()] + "#" + text[number.end() :]))
    return found


def _roman(word: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in word]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))


def _page_number_offsets(edges: list[dict[str, list[Line]]], enough: int) -> set[tuple[str, int]]:
    """Return (kind of numeral, printed minus counted page) pairs that hold for too many pages to be chance."""
    votes: Counter[tuple[str, int]] = Counter()
    for index, page in enumerate(edges):
        votes.update(
            {
                (kind, value - index)
                for lines in page.values()
                for line in lines[:1]
                for kind, value, _ in _numerals(line.text)
            }
        )
    least = {"arabic": max(enough, len(edges) // 5), "roman": max(2, min(4, len(edges) // 5))}
    return {offset for offset, number in votes.items() if number >= least[offset[0]]}


def _is_page_number(text: str, index: int, offsets: set[tuple[str, int]]) -> bool:
    """Return whether a line is its page's number and nothing else."""
    return any(
        (kind, value - index) in offsets and _PAGE_NUMBER.fullmatch(rest) for kind, value, rest in _numerals(text)
    )


def _words(texts: Iterable[str]) -> str:
    return f" {' '.join(word for text in texts for word in _WORD.findall(text.casefold()))} "
