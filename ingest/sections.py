"""Pages of a reflowable document: its chapters and sections, from a stream of paragraphs and headings.

Every format without printed pages ends here. A heading opens a section. A section with nothing but headings joins the
next one. A long section is split at paragraph ends.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ingest.clean import one_line, text_warnings, tidy, tidy_code
from ingest.document import PARAGRAPH_SEPARATOR, Page, PageQuality, TocEntry
from ingest.imprints import mark_gutenberg

SPLIT_DEPTH = 3  # headings down to this level open a section
LONGEST = 120_000  # characters of a section under a heading
UNTITLED = 6_000  # characters of a section in a text without headings
LONGEST_LABEL = 120

_NUMERAL = re.compile(r"^(?:[IVXLC]+|\d{1,3})\.?$")


@dataclass(frozen=True)
class Block:
    """One paragraph, list item, table row or heading of a document without pages."""

    text: str
    level: int = 0  # 1 to 6 for a heading, 0 for everything else
    tight: bool = False  # a line end, not a blank line, separates it from a tight neighbour, as in lists
    first: bool = False  # begins a list or table, so a blank line comes before it
    toc: tuple[tuple[int, str], ...] = ()  # level and title of the table of contents' entries that point here
    toc_nearby: tuple[tuple[int, str], ...] = ()  # entries that point somewhere near; they open no section
    code: bool = False  # its lines keep their indentation
    opens_section: bool = False  # begins a section without being a heading
    imprint: bool = False  # belongs to an imprint; the first and the next block behind it begin sections


@dataclass
class _Section:
    headings: list[tuple[int, str]] = field(default_factory=list)  # for the table of contents
    listed: list[tuple[int, str]] = field(default_factory=list)  # for the table of contents, without a section
    titled: bool = False  # the table of contents gives its title, so its own headings do not
    blocks: list[Block] = field(default_factory=list)

    @property
    def imprint(self) -> bool:
        return any(block.imprint for block in self.blocks)

    @property
    def bare(self) -> bool:
        return not any(block.level == 0 and block.text for block in self.blocks)


def paginate(blocks: Iterable[Block], *, given_toc: bool = False) -> tuple[list[Page], list[TocEntry]]:
    """Return the pages and the table of contents of a document.

    Args:
        blocks: in reading order.
        given_toc: take the table of contents from the blocks' `toc`; otherwise it is made of headings.
    """
    sections = _merge_bare(_split(mark_gutenberg(list(blocks)), given_toc))
    pages: list[Page] = []
    toc: list[TocEntry] = []
    label = ""
    above: list[tuple[int, str]] = []  # the last heading and its parents
    parents: list[str] = []  # the parent heading of each page
    headed = any(section.headings for section in sections)
    for section in sections:
        pieces = _pieces(section.blocks, LONGEST if headed else UNTITLED)
        if not pieces:
            continue
        toc.extend(TocEntry(level, title, len(pages) + 1) for level, title in section.headings + section.listed)
        for level, title in section.headings:
            above = [*(outer for outer in above if outer[0] < level), (level, title)]
        if headed:
            label = _label([title for _, title in section.headings]) or ("imprint" if section.imprint else "opening")
        for part, text in enumerate(pieces, 1):
            number = len(pages) + 1
            within = label if len(pieces) == 1 else f"{label} (part {part})"
            name = within if headed else f"part {number}"
            parents.append(above[-2][1] if len(above) > 1 else "")
            doubt = text_warnings(text, in_print=False)
            quality = PageQuality(len(text), "text" if text else "none", doubt)
            pages.append(Page(number, name, text, quality, section.imprint))
    return with_distinct_labels(pages, parents), toc


def first_heading(blocks: list[Block]) -> str | None:
    """Return the first heading among the first twelve blocks, or None."""
    return next((one_line(block.text) for block in blocks[:12] if block.level), None)


def join_blocks(blocks: Iterable[Block]) -> str:
    """Return the text of blocks on one line."""
    return " ".join(one_line(block.text) for block in blocks if block.text)


def row_blocks(lines: Iterable[str]) -> list[Block]:
    """Return the lines of one table as blocks, without empty lines."""
    return [Block(line, tight=True, first=not index) for index, line in enumerate(filter(None, lines))]


def paragraph_texts(blocks: Iterable[Block]) -> list[str]:
    """Return the text of blocks as paragraphs; tight neighbours are lines of one paragraph."""
    found: list[list[str]] = []  # each a list of lines
    tight = False
    for block in blocks:
        text = tidy_code(block.text) if block.code else tidy(block.text)
        if not text:
            continue
        if tight and block.tight and not block.first:
            found[-1].append(text)
        else:
            found.append([text])
        tight = block.tight
    return ["\n".join(lines) for lines in found]


def with_distinct_labels(pages: list[Page], parents: list[str]) -> list[Page]:
    """Make labels unique, so that a citation leads to one place: add the parent heading, else a number."""
    families: dict[str, set[str]] = {}
    for page, parent in zip(pages, parents, strict=True):
        families.setdefault(page.label, set()).add(parent)
    under = [
        replace(page, label=_label([parent, page.label])) if len(families[page.label]) > 1 else page
        for page, parent in zip(pages, parents, strict=True)
    ]
    totals, seen = Counter(page.label for page in under), Counter[str]()
    named = []
    for page in under:
        if totals[page.label] > 1:
            seen[page.label] += 1
            page = replace(page, label=f"{page.label} ({seen[page.label]})")
        named.append(page)
    return named


def _split(blocks: Iterable[Block], given_toc: bool) -> list[_Section]:
    sections = [_Section()]
    for block in blocks:
        heading = 0 < block.level <= SPLIT_DEPTH and bool(block.text)
        if block.toc or block.opens_section or (heading and not given_toc):
            sections.append(_Section())
        section = sections[-1]
        if block.toc:
            section.headings.extend(block.toc)
        elif heading and not section.headings and not section.titled and section.bare:
            section.headings.append((block.level, one_line(block.text)[:LONGEST_LABEL]))
            section.titled = given_toc
        section.listed.extend(block.toc_nearby)
        section.blocks.append(block)
    return [section for section in sections if any(block.text for block in section.blocks) or section.headings]


def _merge_bare(sections: list[_Section]) -> list[_Section]:
    """Join sections of nothing but headings to the next section; at the end of the document, to the one before."""
    merged: list[_Section] = []
    waiting = _Section()
    for section in sections:
        if waiting.blocks and waiting.imprint != section.imprint:
            merged.append(waiting)
            waiting = _Section()
        waiting.headings += section.headings
        waiting.listed += section.listed
        waiting.blocks += section.blocks
        if not section.bare:
            merged.append(waiting)
            waiting = _Section()
    if merged:
        merged[-1].blocks += waiting.blocks
        merged[-1].headings += waiting.headings
        merged[-1].listed += waiting.listed
    elif any(block.text for block in waiting.blocks):
        merged.append(waiting)
    return merged


def _pieces(blocks: list[Block], most: int) -> list[str]:
    """Return a section's text in pieces of about `most` characters, split at paragraph ends."""
    pieces: list[list[str]] = [[]]
    size = 0
    for paragraph in (part for whole in paragraph_texts(blocks) for part in _shorter(whole, most)):
        if size and size + len(paragraph) > most:
            pieces.append([])
            size = 0
        pieces[-1].append(paragraph)
        size += len(paragraph) + len(PARAGRAPH_SEPARATOR)
    return [PARAGRAPH_SEPARATOR.join(piece) for piece in pieces if piece]


def _shorter(paragraph: str, most: int) -> list[str]:
    """Cut a paragraph longer than `most` at line ends, else after sentences, else between words, else anywhere."""
    parts, start = [], 0
    while len(paragraph) - start > most:
        window = paragraph[start : start + most]
        cut = most
        for border in (r"\n", r"(?<=[.!?…][\"'”’ ])|(?<=[。！？])", r"\s"):
            ends = [match.end() for match in re.finditer(border, window)]
            if ends and ends[-1] > most // 2:
                cut = ends[-1]
                break
        parts.append(_bare(paragraph, start, start + cut))
        start += cut
    return [part for part in (*parts, _bare(paragraph, start, len(paragraph))) if part]


def _bare(paragraph: str, start: int, stop: int) -> str:
    """Return a slice of a paragraph without blanks around it; a slice that begins a line keeps its indentation."""
    part = paragraph[start:stop].rstrip()
    return part.lstrip("\n") if start == 0 or paragraph[start - 1] == "\n" else part.lstrip()


def _label(titles: list[str]) -> str:
    """Return a section's label from the titles above it: "Part One: Chapter 3". A bare numeral is "Chapter III"."""
    names: list[str] = []
    for title in titles[-2:]:
        name = f"Chapter {title.rstrip('.')}" if _NUMERAL.match(title) else title.strip(" :")
        if name and name.casefold() not in (kept.casefold() for kept in names):
            names.append(name)
    return ": ".join(names)[:LONGEST_LABEL]
