"""PPTX, through python-pptx for the package and the places of shapes, with an own walk over them. A slide is a page.

Of each slide its title is read first, then text, lists, tables, diagrams, charts, formulas and the descriptions of
pictures, in the order in which people look at them; below stand the speaker's notes and comments. Hidden slides are
read as well: their labels and a warning say so. Left out: footers, dates and numbers of slides, what a layout puts on
all of its slides, and names of sections. Files and recordings within the slides are named in a warning.
"""

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pptx as python_pptx
from lxml import etree

from ingest.clean import commented, doubts, one_line, pictured
from ingest.document import PARAGRAPH_SEPARATOR, Page, PageQuality, Reading, TocEntry, count, ranges
from ingest.errors import TooLarge
from ingest.limits import Limits, check_archive
from ingest.markup.xml import parse_xml
from ingest.office.bullets import TITLES, Bullets, P, placeholder_kind, styles_of
from ingest.office.common import MC, RELATED, damaged, missing, misunderstood, related, says_yes, without_text
from ingest.office.drawings import PLACES, A, Drawings, paragraph_text
from ingest.office.package import Package
from ingest.print.reading_order import Box, in_reading_order
from ingest.sections import LONGEST_LABEL, Block, paragraphs, rows_of
from ingest.table import TALLEST, Cell, lays_out, span, table_lines

FEW = 50  # characters of text, with which a slide that is mostly a picture may say more than they do
PICTURE_SHARE = 0.5  # of the slide

_FURNITURE = ("sldNum", "dt", "ftr", "hdr", "sldImg")  # the last: the slide above the notes to it
_EMBEDDED = (f"{P}oleObj", *(f"{A}{kind}" for kind in ("videoFile", "audioFile", "wavAudioFile", "quickTimeFile")))


def read(path: Path, limits: Limits) -> Reading:
    """Read a presentation.

    Raises:
        BrokenFile, TooLarge, EmptyDocument.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            package, lost = Package(archive, limits).lean_copy()
            presentation = python_pptx.Presentation(package)
        _without_lost_slides(presentation)
        limits.check(path.name, "slides", len(presentation.slides), limits.pages)
        walk, characters = _Walk(presentation), 0
        for slide in presentation.slides:
            walk.pages.append(walk.page(slide))
            characters += len(walk.pages[-1].text)
            limits.check(path.name, "characters", characters, limits.characters)
        title = presentation.core_properties.title
    except TooLarge:
        raise
    except Exception as error:  # BrokenFile, KeyError, BadZipFile, XMLSyntaxError, ...: by where the package is damaged
        raise damaged(path.name, "a PowerPoint presentation", error, "PowerPoint or LibreOffice") from error
    warnings = missing(lost) + walk.warnings()
    if not any(page.text for page in walk.pages):
        lost = [f"{page.label} {doubt}." for page in walk.pages for doubt in page.quality.warnings]
        raise without_text(path.name, [*warnings, *lost[:1]])
    return Reading(walk.pages, walk.toc, [title, *(entry.title for entry in walk.toc[:1] if entry.page == 1)], warnings)


class _Walk:
    def __init__(self, presentation: Any) -> None:
        self.area = (presentation.slide_width or 0) * (presentation.slide_height or 0)
        self.authors = _authors(presentation.part.rels.values())
        self.pages: list[Page] = []
        self.toc: list[TocEntry] = []
        self.hidden: list[int] = []  # slides
        self.embedding: list[int] = []  # slides with files or recordings on them
        self.drawings = Drawings()

    def warnings(self) -> list[str]:
        """What a person should know of the slides that were read."""
        said = misunderstood(self.drawings.broken)
        if self.hidden:
            said.append(f"Hidden in the presentation, but read: {_slides(self.hidden)}.")
        if self.embedding:
            said.append(
                f"Not read: files or recordings on {_slides(self.embedding)}. Save them from there and add them."
            )
        return said

    def page(self, slide: Any) -> Page:
        """What the next slide says. One that cannot be read is an empty page."""
        number = len(self.pages) + 1
        try:
            return self._page(number, slide)
        except MemoryError:
            raise
        except Exception as error:  # one bad slide never stops the others
            why = f"could not be read: {one_line(str(error))[:120]}"
            return Page(number, f"slide {number}", "", PageQuality(0, "none", (why,)))

    def _page(self, number: int, slide: Any) -> Page:
        for part in (slide, slide.notes_slide) if slide.has_notes_slide else (slide,):
            _settle(part._element)
        shapes = list(slide.shapes)
        titles = [shape for shape in shapes if placeholder_kind(shape._element) in TITLES]
        titles = titles if len(titles) == 1 else []  # else they are just texts that somebody wanted large
        headings = [block for shape in titles for block in self._shape(shape)]
        title = one_line(" ".join(block.text for block in headings))[:LONGEST_LABEL]
        blocks = [*headings, *self._shapes(shape for shape in shapes if shape not in titles)]
        if slide.has_notes_slide and (notes := list(self._shapes(slide.notes_slide.shapes))):
            blocks += [Block("Speaker notes:"), *notes]
        blocks += map(Block, self._comments(slide.part.rels.values()))
        text = PARAGRAPH_SEPARATOR.join(paragraphs(blocks))
        label = f"slide {number}"
        if slide._element.get("show") in ("0", "false"):
            self.hidden.append(number)
            label += " (hidden)"
        if next(slide._element.iter(*_EMBEDDED), None) is not None:
            self.embedding.append(number)
        if title:
            self.toc.append(TocEntry(1, title, number))
        return Page(number, f"{label}: {title}" if title else label, text, self._quality(shapes, text))

    def _quality(self, shapes: Iterable[Any], text: str) -> PageQuality:
        drawn = [shape for shape in shapes if next(shape._element.iter(f"{A}blip"), None) is not None]
        boxes = map(_box, drawn)
        covered = sum((box.right - box.left) * (box.bottom - box.top) for box in boxes)
        fills = len(text) < FEW and covered > PICTURE_SHARE * self.area
        doubt = doubts(text, in_print=False)
        if text and fills:
            doubt += (f"a picture fills the slide, with only {count(len(text), 'character')} of text beside it",)
        return PageQuality(len(text), "text" if text else "none", doubt, fills if text else bool(drawn))

    def _shapes(self, shapes: Iterable[Any]) -> Iterator[Block]:
        """What shapes say that have the same coordinates: those of a slide, or of a group on it."""
        said = [(shape, blocks) for shape in shapes if (blocks := list(self._shape(shape)))]
        for blocks in in_reading_order((_box(shape), blocks) for shape, blocks in said):
            yield from blocks

    def _shape(self, shape: Any) -> Iterator[Block]:
        element = shape._element
        if placeholder_kind(element) in _FURNITURE:
            return
        named = element.find(f"./*/{P}cNvPr")
        if named is not None and (description := pictured(named.get("descr"))):
            yield Block(description)
        if element.tag == f"{P}grpSp":
            yield from self._shapes(shape.shapes)
        for table in element.iterfind(f"{A}graphic/{A}graphicData/{A}tbl"):
            yield from _table(table)
        for place in element.iterfind(f"{A}graphic/{A}graphicData/*"):
            if place.tag in PLACES:
                yield Block(self.drawings.words(place, related(shape.part.rels)))
        for body in element.iterfind(f"{P}txBody"):
            yield from _text(body, Bullets(list(styles_of(shape))))

    def _comments(self, relations: Iterable[Any]) -> Iterator[str]:
        for root in _parts(relations, "comments"):
            for comment in root.iter("{*}cm", "{*}reply"):
                written = comment.findtext(f"{P}text") or ""
                for body in comment.iterfind("{*}txBody"):  # of those that can be replied to
                    written = " ".join(map(paragraph_text, body.iterfind(f"{A}p")))
                if text := one_line(written):
                    yield commented(self.authors.get(comment.get("authorId")), text)


def _without_lost_slides(presentation: Any) -> None:
    """Leave out the slides that the presentation lists but lacks."""
    relations = presentation.part.rels
    for slide in list(presentation.part._element.iter(f"{P}sldId")):
        identity = slide.get(f"{RELATED}id") or ""
        if identity not in relations or relations[identity].is_external:
            slide.getparent().remove(slide)


def _slides(numbers: list[int]) -> str:
    return f"slide{'s' * (len(numbers) > 1)} {ranges(numbers)}"


def _settle(root: etree._Element) -> None:
    """Put what PowerPoint shows in the place of alternatives: formulas and new kinds of charts have pictures beside."""
    for alternatives in list(root.iter(f"{MC}AlternateContent")):
        chosen = alternatives.find(f"{MC}Choice")
        if chosen is None:
            chosen = alternatives.find(f"{MC}Fallback")
        for child in () if chosen is None else list(chosen):
            alternatives.addprevious(child)
        alternatives.getparent().remove(alternatives)


def _box(shape: Any) -> Box:
    """Where a shape is; in the corner where the file does not say so, or not in whole numbers."""
    try:
        left, top = shape.left or 0, shape.top or 0
        return Box(left, top, left + (shape.width or 0), top + (shape.height or 0))
    except (KeyError, ValueError):
        return Box(0, 0, 0, 0)


def _text(body: etree._Element, bullets: Bullets) -> Iterator[Block]:
    listing = False
    for paragraph in body.iterfind(f"{A}p"):
        if text := paragraph_text(paragraph):
            mark = bullets.mark(paragraph)
            yield Block(f"{mark} {text}".strip(), tight=bool(mark), first=not listing)
            listing = bool(mark)


def _table(table: etree._Element) -> Iterator[Block]:
    rows = [
        [cell for cell in row.iterfind(f"{A}tc") if not (says_yes(cell, "hMerge") or says_yes(cell, "vMerge"))]
        for row in table.iterfind(f"{A}tr")
    ]
    words = [[_cell_text(cell) for cell in row] for row in rows]
    properties = table.find(f"{A}tblPr")
    if lays_out(words, headed=properties is not None and says_yes(properties, "firstRow")):
        yield from (Block(text) for row in words for text in row)
        return
    cells = [
        [
            Cell(text, span(cell.get("gridSpan")), span(cell.get("rowSpan"), TALLEST))
            for cell, text in zip(row, texts, strict=True)
        ]
        for row, texts in zip(rows, words, strict=True)
    ]
    yield from rows_of(table_lines(cells))


def _cell_text(cell: etree._Element) -> str:
    bodies = list(cell.iterfind(f"{A}txBody"))
    return " ".join(
        one_line(block.text) for body in bodies for block in _text(body, Bullets(list(body.iterfind(f"{A}lstStyle"))))
    )


def _authors(relations: Iterable[Any]) -> dict[str | None, str]:
    """Who writes comments, by their ids."""
    relations = list(relations)
    roots = [*_parts(relations, "commentAuthors"), *_parts(relations, "authors")]
    people = (person for root in roots for person in root.iter("{*}cmAuthor", "{*}author"))
    return {person.get("id"): one_line(person.get("name") or "") for person in people}


def _parts(relations: Iterable[Any], kind: str) -> Iterator[etree._Element]:
    """The roots of related parts of a kind, such as "comments"."""
    for relation in relations:
        if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
            yield parse_xml(relation.target_part.blob, relation.target_part.partname)
