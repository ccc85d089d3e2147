"""OpenDocument presentations (ODP, and FODP in one XML file): a slide is a page, as in PPTX.

The title comes first, then text, lists and tables in reading order, then the speaker's notes. Hidden slides are read;
their labels and a warning mark them. Left out: footers, dates and numbers of slides, and the layout's own text. A
warning names charts and other embedded objects.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lxml import etree

from ingest.clean import one_line, text_warnings
from ingest.conversion import Content, ConvertOptions
from ingest.document import PARAGRAPH_SEPARATOR, Page, PageQuality, TocEntry
from ingest.office.common import empty_document
from ingest.office.odf import DRAW, PRESENTATION, SVG, OdfFile, read_odf
from ingest.office.odf_walk import OdfWalk
from ingest.print.reading_order import Box, in_reading_order
from ingest.sections import LONGEST_LABEL, Block, paragraph_texts
from ingest.wording import ranges

_FURNITURE = ("page-number", "date-time", "footer", "header", "page")  # "page" is the slide above its notes
_LENGTH = re.compile(r"(-?[\d.]+)(cm|mm|in|pt|pc|px)")
_POINTS = {"cm": 28.35, "mm": 2.835, "in": 72.0, "pt": 1.0, "pc": 12.0, "px": 0.75}


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an OpenDocument presentation to slides of text.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many slides, bytes or characters.
        EmptyDocument: no text on any slide.
    """
    return read_odf(path, options.limits, "presentation", _read)


def _read(file: OdfFile) -> Content:
    walk, pages, toc, hidden = OdfWalk(file), list[Page](), list[TocEntry](), list[int]()
    characters = 0
    for number, slide in enumerate(file.body.iterfind(f"{DRAW}page"), 1):
        file.limits.check(file.name, "slides", number, file.limits.pages)
        title, text = _slide(slide, walk)
        characters += len(text)
        file.limits.check(file.name, "characters", characters, file.limits.characters)
        label, style = f"slide {number}", slide.get(f"{DRAW}style-name")
        if file.styles.property("drawing-page", style, f"{PRESENTATION}visibility") == "hidden":
            hidden.append(number)
            label += " (hidden)"
        if title:
            toc.append(TocEntry(1, title, number))
        quality = PageQuality(len(text), "text" if text else "none", text_warnings(text, in_print=False))
        pages.append(Page(number, f"{label}: {title}" if title else label, text, quality))
    warnings = [*dict.fromkeys(file.xml_warnings), *walk.embedded_warning()]
    if hidden:
        named = f"{'slide' if len(hidden) == 1 else 'slides'} {ranges(hidden)}"
        warnings.append(f"Hidden in the presentation, but read: {named}.")
    if not any(page.text for page in pages):
        raise empty_document(file.name, warnings)
    return Content(pages, toc, [file.title, *(entry.title for entry in toc[:1] if entry.page == 1)], warnings)


def _slide(slide: etree._Element, walk: OdfWalk) -> tuple[str, str]:
    """Return the title and the text of a slide."""
    shapes = [shape for shape in _shapes(slide) if shape.get(f"{PRESENTATION}class") not in _FURNITURE]
    titles = [shape for shape in shapes if shape.get(f"{PRESENTATION}class") == "title"]
    titles = titles if len(titles) == 1 else []  # several titles are just large texts
    headings = [block for shape in titles for block in walk.blocks([shape])]
    title = one_line(" ".join(block.text for block in headings))[:LONGEST_LABEL]
    blocks = [*headings, *_placed((shape for shape in shapes if shape not in titles), walk)]
    notes = [
        block
        for part in slide.iterfind(f"{PRESENTATION}notes")
        for shape in _shapes(part)
        if shape.get(f"{PRESENTATION}class") not in _FURNITURE
        for block in walk.blocks([shape])
        if block.text
    ]
    if notes:
        blocks += [Block("Speaker notes:"), *notes]
    blocks += map(Block, walk.take_notes())
    return title, PARAGRAPH_SEPARATOR.join(paragraph_texts(blocks))


def _shapes(parent: etree._Element) -> Iterator[etree._Element]:
    for child in parent:
        if not str(child.tag).startswith(DRAW) or child.get(f"{PRESENTATION}placeholder") == "true":
            continue
        if child.tag == f"{DRAW}g":
            yield from _shapes(child)
        else:
            yield child


def _placed(shapes: Iterable[etree._Element], walk: OdfWalk) -> Iterator[Block]:
    said = [(shape, blocks) for shape in shapes if (blocks := list(walk.blocks([shape])))]
    for blocks in in_reading_order((_box(shape), blocks) for shape, blocks in said):
        yield from blocks


def _box(shape: etree._Element) -> Box:
    left, top, width, height = (_points(shape.get(f"{SVG}{name}")) for name in ("x", "y", "width", "height"))
    return Box(left, top, left + width, top + height)


def _points(length: str | None) -> float:
    found = _LENGTH.fullmatch(length or "")
    return float(found[1]) * _POINTS[found[2]] if found else 0.0
