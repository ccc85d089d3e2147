"""A document: its pages, its text, its table of contents, and the exact way from a character to its page."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ingest.formats import FORMATS
from ingest.wording import count, ranges

PAGE_SEPARATOR = "\n\n"
PARAGRAPH_SEPARATOR = "\n\n"

JSON_VERSION = 1

_PRINTED = re.compile(r"page (.*) \(page \d+ of the file\)")

OCR_FOUND_NOTHING = "OCR found no text in its picture"
"""The warning about a page on which that is so."""


@dataclass(frozen=True)
class PageQuality:
    """How a page's text was won: how many characters, from where, and what is doubtful about it.

    pictured: whether there may be more, in a picture that takes most of the page, or in what is drawn on an empty one;
    None where that is not known.
    """

    characters: int
    source: str  # "text" | "ocr" | "none"
    warnings: tuple[str, ...] = ()
    pictured: bool | None = None

    @property
    def blank(self) -> bool:
        """Whether there is nothing on the page."""
        return self.source == "none" and self.pictured is False and not self.warnings

    @property
    def lacks_text(self) -> bool:
        """Whether there may be text on the page that is not in its text."""
        return bool(self.pictured) or (self.source == "none" and not self.blank)

    @property
    def ocr_may_help(self) -> bool:
        """Whether OCR may find text that is lacking: it has not been tried, or could not be done."""
        return self.lacks_text and OCR_FOUND_NOTHING not in self.warnings


@dataclass(frozen=True)
class Page:
    """One page of a PDF, one slide, or one chapter or section of a reflowable book. Its text has no blank ends."""

    number: int  # 1-based
    label: str  # "page 12", "slide 3: Costs", "Chapter 3: The Storm"
    text: str
    quality: PageQuality


@dataclass(frozen=True)
class TocEntry:
    """One line of the table of contents. `level` starts at 1, `page` is a `Page.number`."""

    level: int
    title: str
    page: int


@dataclass(frozen=True)
class Place:
    """Where a character is, in words for a person."""

    page: int
    label: str  # "page 12" | "slide 3: Costs" | "Chapter 3: The Storm, paragraph 14"
    paragraph: int | None = None  # of a section, 0 in the headings at its top; None where pages are printed


@dataclass(frozen=True)
class Document:
    """One ingested file. Immutable; `sha256` is that of the file's bytes, so equal files are known as equal."""

    title: str
    format: str  # a key of `ingest.formats.FORMATS`
    sha256: str
    pages: tuple[Page, ...]
    toc: tuple[TocEntry, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """All pages, joined by PAGE_SEPARATOR."""
        return PAGE_SEPARATOR.join(page.text for page in self.pages)

    @cached_property
    def page_starts(self) -> list[int]:
        """For every page, the offset in `text` of its first character."""
        starts, offset = [], 0
        for page in self.pages:
            starts.append(offset)
            offset += len(page.text) + len(PAGE_SEPARATOR)
        return starts

    @cached_property
    def printed(self) -> tuple[str, ...]:
        """What each page is called by what is printed on it; empty where that is its number throughout."""
        found = [_PRINTED.fullmatch(page.label) if self.format == "pdf" else None for page in self.pages]
        if not any(found):
            return ()
        return tuple(each[1] if each else str(page.number) for each, page in zip(found, self.pages, strict=True))

    def locate(self, offset: int) -> Place:
        """The place of the character at `offset` of `text`; a separator belongs to the page before it.

        Raises:
            ValueError: `offset` is not within 0 to len(text).
        """
        if not 0 <= offset <= len(self.text):
            raise ValueError(f"offset {offset} is outside the document's {len(self.text)} characters")
        index = bisect_right(self.page_starts, offset) - 1
        page = self.pages[index]
        if FORMATS[self.format].has_fixed_pages:
            return Place(page.number, page.label)
        paragraph = _paragraph_number(page, offset - self.page_starts[index])
        return Place(page.number, f"{page.label}, paragraph {paragraph}" if paragraph else page.label, paragraph)

    def paragraphs(self, page: int) -> int:
        """How many paragraphs a page has, as `locate` counts them."""
        text = self.pages[page - 1].text
        return text.count(PARAGRAPH_SEPARATOR) + 1 - _headings(self.pages[page - 1])

    def span(self, page: int, first: int = 0, last: int | None = None) -> tuple[int, int]:
        """The characters of `text` (end exclusive) on a page with that number, which exists.

        Args:
            first, last: of the page only the paragraphs with these numbers, as `locate` counts them; those that it does
                not have are left out. 0 is what stands before the first, None the last.
        """
        found, start = self.pages[page - 1], self.page_starts[page - 1]
        edges = [0, *(each.end() for each in re.finditer(PARAGRAPH_SEPARATOR, found.text)), len(found.text)]
        headings, most = _headings(found), len(edges) - 1
        begin = headings + first - 1 if first else 0
        end = most if last is None else headings + last
        return start + edges[min(begin, most)], start + edges[min(end, most)]

    def coverage(self) -> str:
        """One line: how many pages have text, which have none or a doubtful one, and what to do about it."""
        total, noun = len(self.pages), noun_of_pages(self.format)

        def those(pages: Sequence[Page]) -> str:
            counted = " of the file" if self.printed else ""
            return f"{noun}{'s' * (len(pages) > 1)} {ranges(page.number for page in pages)}{counted}"

        empty = [page for page in self.pages if page.quality.source == "none"]
        recognised = [page for page in self.pages if page.quality.source == "ocr"]
        doubtful = [page for page in self.pages if page.quality.warnings and page.quality.source != "none"]
        blank = [page for page in empty if page.quality.blank]
        lost = [page for page in empty if not page.quality.blank]
        parts = [f"{total - len(empty)} of {count(total, noun)} {'has' if total == 1 else 'have'} text"]
        if recognised:
            parts.append(f"{those(recognised)} by OCR")
        if blank:
            parts.append(f"{those(blank)} blank")
        if doubtful:
            parts.append(f"doubtful text on {those(doubtful)} ({doubtful[0].quality.warnings[0]})")
        line = "; ".join(parts) + "."
        if lost:
            reason = f" ({why[0]})" if (why := lost[0].quality.warnings) else ""
            them = "it" if len(lost) == 1 else "them"
            line += f" No text on {those(lost)}{reason}: the model will not know what is on {them}."
        known = ("OCR", "could not be read")  # it was tried, or would not help
        advice = FORMATS[self.format].scan_advice
        if advice and any(
            page.quality.lacks_text and not any(each.startswith(known) for each in page.quality.warnings)
            for page in self.pages
        ):
            line += f" {advice}"
        return line

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain JSON values; `from_json` is its inverse."""
        return {"version": JSON_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Document":
        """Rebuild a document from `to_json`'s dictionary, also after a trip through JSON text.

        Raises:
            ValueError: written by another version.
            KeyError, TypeError: not such a dictionary.
        """
        if data.get("version") != JSON_VERSION:
            raise ValueError(
                f"a stored document has version {data.get('version')!r}, this program reads {JSON_VERSION}: "
                "read the file again"
            )
        pages = tuple(
            Page(
                number=page["number"],
                label=page["label"],
                text=page["text"],
                quality=PageQuality(**{**page["quality"], "warnings": tuple(page["quality"]["warnings"])}),
            )
            for page in data["pages"]
        )
        return cls(
            title=data["title"],
            format=data["format"],
            sha256=data["sha256"],
            pages=pages,
            toc=tuple(TocEntry(**entry) for entry in data["toc"]),
            warnings=tuple(data["warnings"]),
        )


def page_label(number: int, printed: str, alone: bool = True) -> str:
    """What a page of a PDF is called: by its number, and before that by what is printed on it, if that is another.

    alone: whether no other page is called so.
    """
    return f"page {number}" if printed == str(number) and alone else f"page {printed} (page {number} of the file)"


def noun_of_pages(format: str) -> str:
    """What a page is in documents of a format: "page", "slide" or "section"."""
    return FORMATS[format].page_noun


def _paragraph_number(page: Page, offset: int) -> int:
    """1-based paragraph of `page` that holds `offset`; 0 within the headings at its top, which the label repeats."""
    # A separator that begins before `offset` and ends at or before it has been passed.
    passed = page.text.count(PARAGRAPH_SEPARATOR, 0, offset)
    return max(0, passed + 1 - _headings(page))


def _headings(page: Page) -> int:
    """Paragraphs at the top of a page that its label repeats, and that are not counted as paragraphs."""
    label = _letters(page.label)
    headings = 0
    for paragraph in page.text.split(PARAGRAPH_SEPARATOR, 6)[:6]:
        words = _letters(paragraph)
        if not words or words not in label:
            break
        headings += 1
    nothing_else = headings > page.text.count(PARAGRAPH_SEPARATOR)
    return 0 if nothing_else else headings


def _letters(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().casefold()
