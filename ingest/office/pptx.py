"""PPTX: python-pptx opens the package and places shapes; a walk of our own reads them. A slide is a page.

The title comes first, then text, lists, tables, diagrams, charts, formulas and picture descriptions in reading order,
then the speaker's notes and comments. Hidden slides are read; their labels and a warning mark them. Left out: footers,
dates and numbers of slides, the layout's own text, and names of sections. A warning names files and recordings.
"""

import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pptx as python_pptx
from lxml import etree

from ingest.archive import check_archive
from ingest.clean import comment_text, one_line, picture_text, text_warnings
from ingest.conversion import Content, ConvertOptions
from ingest.document import PARAGRAPH_SEPARATOR, Page, PageQuality, TocEntry
from ingest.errors import TooLarge
from ingest.markup.xml import parse_xml
from ingest.office.bullets import TITLES, Bullets, P, list_styles, placeholder_kind
from ingest.office.common import (
    MC,
    RELATED,
    damaged_drawings_warning,
    damaged_file,
    empty_document,
    is_true,
    missing_parts_warning,
    part_loader,
)
from ingest.office.drawings import DRAWING_ELEMENTS, A, Drawings, paragraph_text
from ingest.office.package import Package
from ingest.print.reading_order import Box, in_reading_order
from ingest.sections import LONGEST_LABEL, Block, paragraph_texts, row_blocks
from ingest.table import TALLEST, Cell, is_layout, span, table_lines
from ingest.wording import count, ranges

FEW = 50  # characters; a slide with fewer that is mostly a picture may hold more text
PICTURE_SHARE = 0.5  # of the slide

_FURNITURE = ("sldNum", "dt", "ftr", "hdr", "sldImg")  # "sldImg" is the slide above its notes
_EMBEDDED = (f"{P}oleObj", *(f"{A}{kind}" for kind in ("videoFile", "audioFile", "wavAudioFile", "quickTimeFile")))


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a presentation to slides of text.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many slides, bytes or characters.
        EmptyDocument: no text on any slide.
    """
    limits = options.limits
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            package, lost = Package(archive, limits).readable_copy()
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
    except Exception as error:  # BrokenFile, KeyError, BadZipFile, XMLSyntaxError, ... for a damaged package
        raise damaged_file(path.name, "a PowerPoint presentation", error, "PowerPoint or LibreOffice") from error
    warnings = missing_parts_warning(lost) + walk.warnings()
    if not any(page.text for page in walk.pages):
        lost = [f"{page.label} {doubt}." for page in walk.pages for doubt in page.quality.warnings]
        raise empty_document(path.name, [*warnings, *lost[:1]])
    return Content(walk.pages, walk.toc, [title, *(entry.title for entry in walk.toc[:1] if entry.page == 1)], warnings)


class _Walk:
    def __init__(self, presentation: Any) -> None:
        self.area = (presentation.slide_width or 0) * (presentation.slide_height or 0)
        self.authors = _authors(presentation.part.rels.values())
        self.pages: list[Page] = []
        self.toc: list[TocEntry] = []
        self.hidden: list[int] = []  # numbers of slides
        self.embedding: list[int] = []  # slides with files or recordings on them
        self.drawings = Drawings()

    def warnings(self) -> list[str]:
        """Return the warnings about the slides read so far."""
        said = damaged_drawings_warning(self.drawings.broken)
        if self.hidden:
            said.append(f"Hidden in the presentation, but read: {_slides(self.hidden)}.")
        if self.embedding:
            said.append(
                f"Not read: files or recordings on {_slides(self.embedding)}. Save them from there and add them."
            )
        return said

    def page(self, slide: Any) -> Page:
        """Return the next slide as a page. A slide that cannot be read is an empty page."""
        number = len(self.pages) + 1
        try:
            return self._page(number, slide)
        except MemoryError:
            raise
        except Exception as error:  # one bad slide must not lose the others
            why = f"could not be read: {one_line(str(error))[:120]}"
            return Page(number, f"slide {number}", "", PageQuality(0, "none", (why,)))

    def _page(self, number: int, slide: Any) -> Page:
        notes_slide = _notes_slide(slide)
        for part in filter(None, (slide, notes_slide)):
            _settle(part._element)
        shapes = list(slide.shapes)
        titles = [shape for shape in shapes if placeholder_kind(shape._element) in TITLES]
        titles = titles if len(titles) == 1 else []  # several titles are just large texts
        headings = [block for shape in titles for block in self._shape(shape)]
        title = one_line(" ".join(block.text for block in headings))[:LONGEST_LABEL]
        blocks = [*headings, *self._shapes(shape for shape in shapes if shape not in titles)]
        if notes_slide is not None and (notes := list(self._shapes(notes_slide.shapes))):
            blocks += [Block("Speaker notes:"), *notes]
        blocks += map(Block, self._comments(slide.part.rels.values()))
        text = PARAGRAPH_SEPARATOR.join(paragraph_texts(blocks))
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
        doubt = text_warnings(text, in_print=False)
        if text and fills:
            doubt += (f"a picture fills the slide, with only {count(len(text), 'character')} of text beside it",)
        return PageQuality(len(text), "text" if text else "none", doubt, fills if text else bool(drawn))

    def _shapes(self, shapes: Iterable[Any]) -> Iterator[Block]:
        """Yield the blocks of shapes with the same coordinates: those of a slide, or of a group on it."""
        said = [(shape, blocks) for shape in shapes if (blocks := list(self._shape(shape)))]
        for blocks in in_reading_order((_box(shape), blocks) for shape, blocks in said):
            yield from blocks

    def _shape(self, shape: Any) -> Iterator[Block]:
        element = shape._element
        if placeholder_kind(element) in _FURNITURE:
            return
        named = element.find(f"./*/{P}cNvPr")
        if named is not None and (description := picture_text(named.get("descr"))):
            yield Block(description)
        if element.tag == f"{P}grpSp":
            yield from self._shapes(shape.shapes)
        for table in element.iterfind(f"{A}graphic/{A}graphicData/{A}tbl"):
            yield from _table(table)
        for place in element.iterfind(f"{A}graphic/{A}graphicData/*"):
            if place.tag in DRAWING_ELEMENTS:
                yield Block(self.drawings.text(place, part_loader(shape.part.rels)))
        for body in element.iterfind(f"{P}txBody"):
            yield from _text(body, Bullets(list(list_styles(shape))))

    def _comments(self, relations: Iterable[Any]) -> Iterator[str]:
        for root in _parts(relations, "comments"):
            for comment in root.iter("{*}cm", "{*}reply"):
                written = comment.findtext(f"{P}text") or ""
                for body in comment.iterfind("{*}txBody"):  # comments with replies
                    written = " ".join(map(paragraph_text, body.iterfind(f"{A}p")))
                if text := one_line(written):
                    yield comment_text(self.authors.get(comment.get("authorId")), text)


def _without_lost_slides(presentation: Any) -> None:
    """Remove slides that the presentation lists but lacks."""
    relations = presentation.part.rels
    for slide in list(presentation.part._element.iter(f"{P}sldId")):
        identity = slide.get(f"{RELATED}id") or ""
        if identity not in relations or relations[identity].is_external:
            slide.getparent().remove(slide)


def _notes_slide(slide: Any) -> Any:
    """Return the page of a slide's notes; None without one, or if the file lacks it, of which a warning says so."""
    with suppress(KeyError, AttributeError, ValueError):
        return slide.notes_slide if slide.has_notes_slide and slide.notes_slide.shapes is not None else None
    return None


def _slides(numbers: list[int]) -> str:
    return f"slide{'s' * (len(numbers) > 1)} {ranges(numbers)}"


def _settle(root: etree._Element) -> None:
    """Replace alternatives by the one that PowerPoint shows. The other is a picture of a formula or a new chart."""
    for alternatives in list(root.iter(f"{MC}AlternateContent")):
        chosen = alternatives.find(f"{MC}Choice")
        if chosen is None:
            chosen = alternatives.find(f"{MC}Fallback")
        for child in () if chosen is None else list(chosen):
            alternatives.addprevious(child)
        alternatives.getparent().remove(alternatives)


def _box(shape: Any) -> Box:
    """Return the box of a shape; an empty one in the corner if the file gives none, or no whole numbers."""
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
        [cell for cell in row.iterfind(f"{A}tc") if not (is_true(cell, "hMerge") or is_true(cell, "vMerge"))]
        for row in table.iterfind(f"{A}tr")
    ]
    words = [[_cell_text(cell) for cell in row] for row in rows]
    properties = table.find(f"{A}tblPr")
    if is_layout(words, headed=properties is not None and is_true(properties, "firstRow")):
        yield from (Block(text) for row in words for text in row)
        return
    cells = [
        [
            Cell(text, span(cell.get("gridSpan")), span(cell.get("rowSpan"), TALLEST))
            for cell, text in zip(row, texts, strict=True)
        ]
        for row, texts in zip(rows, words, strict=True)
    ]
    yield from row_blocks(table_lines(cells))


def _cell_text(cell: etree._Element) -> str:
    bodies = list(cell.iterfind(f"{A}txBody"))
    return " ".join(
        one_line(block.text) for body in bodies for block in _text(body, Bullets(list(body.iterfind(f"{A}lstStyle"))))
    )


def _authors(relations: Iterable[Any]) -> dict[str | None, str]:
    """Return the authors of comments by their ids."""
    relations = list(relations)
    roots = [*_parts(relations, "commentAuthors"), *_parts(relations, "authors")]
    people = (person for root in roots for person in root.iter("{*}cmAuthor", "{*}author"))
    return {person.get("id"): one_line(person.get("name") or "") for person in people}


def _parts(relations: Iterable[Any], kind: str) -> Iterator[etree._Element]:
    """Yield the roots of related parts of a kind, such as "comments"."""
    for relation in relations:
        if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
            yield parse_xml(relation.target_part.blob, relation.target_part.partname)
