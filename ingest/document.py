"""A document: its pages, its text, its table of contents, and the page of every character."""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ingest.formats import FORMATS
from ingest.wording import count, listed, ranges

PAGE_SEPARATOR = "\n\n"
PARAGRAPH_SEPARATOR = "\n\n"

JSON_VERSION = 1

_PRINTED = re.compile(r"page (.*) \(page \d+ of the file\)")

OCR_FOUND_NOTHING = "OCR found no text in its picture"
"""Warning about a page on which OCR ran and found nothing."""


@dataclass(frozen=True)
class PageQuality:
    """The source of a page's text, and the doubts about it.

    pictured: whether a large picture, or anything drawn on an empty page, may hold more text; None if unknown.
    """

    characters: int
    source: str  # "text" | "ocr" | "none"
    warnings: tuple[str, ...] = ()
    pictured: bool | None = None

    @property
    def blank(self) -> bool:
        """True if there is nothing on the page."""
        return self.source == "none" and self.pictured is False and not self.warnings

    @property
    def lacks_text(self) -> bool:
        """True if there may be text on the page that was not extracted."""
        return bool(self.pictured) or (self.source == "none" and not self.blank)

    @property
    def ocr_may_help(self) -> bool:
        """True if OCR may find more text: it was not tried, or could not be done."""
        return self.lacks_text and OCR_FOUND_NOTHING not in self.warnings


@dataclass(frozen=True)
class Page:
    """One page of a PDF, one slide, or one chapter or section of a reflowable book. Its text has no blank ends."""

    number: int  # 1-based
    label: str  # "page 12", "slide 3: Costs", "Chapter 3: The Storm"
    text: str
    quality: PageQuality
    imprint: bool = False  # about the making or the licence of the book: shown, and not read


@dataclass(frozen=True)
class TocEntry:
    """One line of the table of contents. `level` starts at 1, `page` is a `Page.number`."""

    level: int
    title: str
    page: int


@dataclass(frozen=True)
class Place:
    """The place of a character, in words for a person."""

    page: int
    label: str  # "page 12" | "slide 3: Costs" | "Chapter 3: The Storm, paragraph 14"
    paragraph: int | None = None  # within a section, 0 in the headings at its top; None for printed pages and slides


@dataclass(frozen=True)
class Document:
    """One ingested file. It is immutable, and known by `sha256`, the hash of the file's bytes."""

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
    def text_digest(self) -> str:
        """The SHA-256 of `text` in UTF-8, in hexadecimal."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()

    @cached_property
    def page_starts(self) -> list[int]:
        """The offset in `text` of each page's first character."""
        starts, offset = [], 0
        for page in self.pages:
            starts.append(offset)
            offset += len(page.text) + len(PAGE_SEPARATOR)
        return starts

    @cached_property
    def printed(self) -> tuple[str, ...]:
        """The printed number of each page; empty if all pages print their own number."""
        found = [_PRINTED.fullmatch(page.label) if self.format == "pdf" else None for page in self.pages]
        if not any(found):
            return ()
        return tuple(each[1] if each else str(page.number) for each, page in zip(found, self.pages, strict=True))

    @cached_property
    def imprints(self) -> tuple[Page, ...]:
        """The pages that are not read; none if there would be nothing left to read."""
        found = tuple(page for page in self.pages if page.imprint)
        return found if any(page.text and not page.imprint for page in self.pages) else ()

    @cached_property
    def left_out(self) -> tuple[tuple[int, int], ...]:
        """The ranges of `text` (end exclusive) that are not read, with the separators around them."""
        ranges: list[tuple[int, int]] = []
        for page in self.imprints:
            start = self.page_starts[page.number - 1]
            end = min(start + len(page.text) + len(PAGE_SEPARATOR), len(self.text))
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
        return tuple(ranges)

    def locate(self, offset: int) -> Place:
        """Return the place of the character at `offset` of `text`. A separator belongs to the page before it.

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
        """Return the number of paragraphs of a page, as `locate` counts them."""
        text = self.pages[page - 1].text
        return text.count(PARAGRAPH_SEPARATOR) + 1 - _headings(self.pages[page - 1])

    def span(self, page: int, first: int = 0, last: int | None = None) -> tuple[int, int]:
        """Return the range of `text` (end exclusive) that an existing page, or some of its paragraphs, takes.

        Args:
            page: its number.
            first: the first paragraph, as `locate` counts them; 0 includes the headings before it.
            last: the last paragraph; None is that of the page. Paragraphs beyond the page are left out.
        """
        found, start = self.pages[page - 1], self.page_starts[page - 1]
        edges = [0, *(each.end() for each in re.finditer(PARAGRAPH_SEPARATOR, found.text)), len(found.text)]
        headings, most = _headings(found), len(edges) - 1
        begin = headings + first - 1 if first else 0
        end = most if last is None else headings + last
        return start + edges[min(begin, most)], start + edges[min(end, most)]

    def coverage(self) -> str:
        """Return one line for a person: how many pages have text, which lack it or are doubtful, and the way out."""
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
        if self.imprints:
            line += f" Not read: {listed([page.label for page in self.imprints], 4)}."
        if lost:
            reason = f" ({why[0]})" if (why := lost[0].quality.warnings) else ""
            them = "it" if len(lost) == 1 else "them"
            line += f" No text on {those(lost)}{reason}: the model will not know what is on {them}."
        known = ("OCR", "could not be read")  # OCR was tried, or would not help
        advice = FORMATS[self.format].scan_advice
        if advice and any(
            page.quality.lacks_text and not any(each.startswith(known) for each in page.quality.warnings)
            for page in self.pages
        ):
            line += f" {advice}"
        return line

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain JSON values; `from_json` is the inverse."""
        data = {"version": JSON_VERSION, **asdict(self)}
        for page in data["pages"]:
            if not page["imprint"]:  # as it was before there were imprints
                del page["imprint"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Document":
        """Rebuild a document from the dictionary of `to_json`, also after a trip through JSON text.

        Raises:
            ValueError: another version wrote it.
            KeyError, TypeError: it is no such dictionary.
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
                imprint=page.get("imprint", False),
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
    """Return the label of a page of a PDF: "page 12", or "page xii (page 14 of the file)".

    Args:
        number: its place in the file.
        printed: the number printed on it.
        alone: no other page prints the same number.
    """
    return f"page {number}" if printed == str(number) and alone else f"page {printed} (page {number} of the file)"


def noun_of_pages(format: str) -> str:
    """Return the noun for a page of a format: "page", "slide" or "section", also for one that is read no more."""
    return FORMATS[format].page_noun if format in FORMATS else "section"


def _paragraph_number(page: Page, offset: int) -> int:
    """Return the 1-based paragraph that holds `offset`; 0 within the headings that the label repeats."""
    # Separators that end at or before `offset` are counted.
    passed = page.text.count(PARAGRAPH_SEPARATOR, 0, offset)
    return max(0, passed + 1 - _headings(page))


def _headings(page: Page) -> int:
    """Count the paragraphs at the top of a page that its label repeats. They are not counted as paragraphs."""
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
