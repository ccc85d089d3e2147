"""DOCX: python-docx opens the package and its styles; a walk of our own reads the body.

The walk reads more than python-docx's paragraphs: content controls, text boxes, tracked insertions, diagrams, charts,
footnotes, endnotes and comments. Left out: tracked deletions, headers and footers. A warning names documents that Word
only inserts when it opens the file.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import docx as python_docx
from lxml import etree

from ingest.archive import check_archive
from ingest.clean import join_inline, one_line, picture_text, superscript, tidy
from ingest.conversion import Content, ConvertOptions
from ingest.errors import IngestError
from ingest.markup.formulas import M, omml_text
from ingest.markup.xml import parse_xml
from ingest.office.common import (
    MC,
    damaged_drawings_warning,
    damaged_file,
    linked_parts_warning,
    missing_parts_warning,
    paginated_content,
    part_loader,
    within_limit,
)
from ingest.office.drawings import DRAWING_ELEMENTS, Drawings
from ingest.office.numbering import Numbering, W, is_on, val, with_base_styles
from ingest.office.package import Package
from ingest.office.symbol_fonts import symbol, symbols_to_unicode
from ingest.office.word_fields import Fields
from ingest.sections import SPLIT_DEPTH, Block, join_blocks, row_blocks
from ingest.table import Cell, is_layout, span, table_lines
from ingest.wording import count, listed

_WP = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_CITED = {f"{W}{kind}Reference": kind for kind in ("footnote", "endnote", "comment")}
_DELETED = frozenset({f"{W}del", f"{W}moveFrom", f"{MC}Fallback"})
_WRAPPERS = frozenset(f"{W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo"))
_SILENT = frozenset(
    f"{W}{name}"
    for name in (
        *("pPr", "rPr", "instrText", "delText", "rt", "txbxContent", "proofErr", "lastRenderedPageBreak"),
        *("bookmarkStart", "bookmarkEnd"),
    )
)
_HEADING = re.compile(r"^heading (\d)$", re.IGNORECASE)


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a Word document.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
    """
    limits = options.limits
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            package, lost = Package(archive, limits).readable_copy()
            document = python_docx.Document(package)
        walk = _Walk(document)
        blocks = within_limit(walk.blocks(), path.name, limits)
        title = document.core_properties.title
    except IngestError:
        raise
    except Exception as error:  # KeyError, BadZipFile, XMLSyntaxError, ValueError for a damaged package
        raise damaged_file(path.name, "a Word document", error, "Word or LibreOffice") from error
    warnings = missing_parts_warning(lost) + walk.xml_warnings
    if walk.embedded:
        within = f"{count(walk.embedded, 'document')} within the file, put in place only when Word opens it"
        warnings.append(f"Not read: {within}. Open the file in Word, save it again and add that.")
    if walk.objects:
        named = listed(list(dict.fromkeys(filter(None, walk.objects))), 5)
        within = count(len(walk.objects), "object") + (f" of other programs ({named})" if named else "")
        warnings.append(f"Not read: {within}. Save them from Word as files and add them, or add the document as PDF.")
    warnings += linked_parts_warning(walk.linked) + damaged_drawings_warning(walk.drawings.broken)
    return paginated_content(path.name, blocks, title, warnings)


class _Walk:
    def __init__(self, document: Any) -> None:
        self.xml_warnings: list[str] = []  # about damaged XML
        self.body = document.element.body
        styles = {style.style_id: style.element for style in document.styles}
        self.levels = {style: _heading_level(styles, style) for style in styles}
        self.hiding = {style for style in styles if _hides(styles, style)}
        self.hidden = False  # the style of the paragraph hides its text
        self.numbering = Numbering(_part(document, "numbering", self.xml_warnings), styles)
        self.notes = {kind: _notes(document, kind, self.xml_warnings) for kind in _CITED.values()}
        self.parts = part_loader(document.part.rels)
        self.cited: list[tuple[str, str]] = []
        self.listing = False  # the last paragraph was in a list
        self.embedded = self.linked = 0  # counts of documents not read: embedded, and in other files
        self.objects: list[str] = []  # embedded objects, by the programs that made them
        self.fields = Fields(self.body, _DELETED)
        self.begun: list[str] = []  # runs of a paragraph whose end is deleted: the next one continues it
        self.drawings = Drawings()

    def blocks(self) -> Iterator[Block]:
        headed = False
        for block in self._container(self.body):
            headed = headed or 0 < block.level <= SPLIT_DEPTH
            yield block
        begun = False
        for number, (kind, identity) in enumerate(self.cited, 1):  # grows while notes cite notes
            if note := self._note(kind, identity):
                if headed and not begun:
                    yield Block("Notes", 1)
                yield Block(f"[{number}] {note}", tight=True, first=not begun)
                begun = True

    def _note(self, kind: str, identity: str) -> str:
        note = self.notes[kind].get(identity)
        if note is None:
            return ""
        author, text = one_line(note.get(f"{W}author") or ""), join_blocks(self._container(note))
        return f"{author}: {text}" if author and text else text

    def _container(self, element: Iterable[etree._Element]) -> Iterator[Block]:
        for child in element:
            if child.tag == f"{W}p":
                yield from self._paragraph(child)
            elif child.tag == f"{W}tbl":
                yield from self._table(child)
            elif child.tag == f"{W}altChunk":
                self.embedded += 1
            elif child.tag not in _DELETED and isinstance(child.tag, str):  # content controls, custom XML
                yield from self._container(child)

    def _table(self, table: etree._Element) -> Iterator[Block]:
        self.listing = False
        lines = [row for row in _own(table, f"{W}tr") if row.find(f"{W}trPr/{W}del") is None]
        rows = [[cell for cell in _own(row, f"{W}tc") if cell.find(f"{W}tcPr/{W}cellDel") is None] for row in lines]
        within = [[list(self._container(cell)) for cell in row] for row in rows]
        words = [[join_blocks(blocks) for blocks in row] for row in within]
        nested = any(cell.find(f".//{W}tbl") is not None for row in rows for cell in row)
        headings = any(len(blocks) > 1 and any(block.level for block in blocks) for row in within for blocks in row)
        headed = table.find(f"{W}tr/{W}trPr/{W}tblHeader") is not None
        if headings or is_layout(words, headed, nested):
            for row in within:
                for blocks in row:
                    yield from blocks
            return
        cells = [list(map(_cell, row, texts)) for row, texts in zip(rows, words, strict=True)]
        for row, line in zip(lines, cells, strict=True):
            if before := val(row.find(f"{W}trPr/{W}gridBefore")):
                line.insert(0, Cell("", span(before)))
        self.listing = False
        yield from row_blocks(table_lines(cells))

    def _paragraph(self, paragraph: etree._Element) -> Iterator[Block]:
        properties = paragraph.find(f"{W}pPr")
        style = None if properties is None else val(properties.find(f"{W}pStyle"))
        self.hidden = style in self.hiding
        runs = [*self.begun, *self._runs(paragraph)]
        self.begun = []
        if _runs_on(paragraph, properties):
            self.begun = runs
            for box in _boxes(paragraph):
                yield from self._container(box)
            return
        text = tidy(join_inline(runs))
        outline = None if properties is None else val(properties.find(f"{W}outlineLvl"))
        listed = self.numbering.mark(properties, style)  # an empty paragraph counts, too
        if text:
            nested, mark = listed or (0, "")
            level = self.levels.get(style or "", 0)
            if not level and outline and outline.isdecimal() and int(outline) < 6 and len(text) < 200:
                level = int(outline) + 1
            before, self.listing = self.listing, listed is not None and not level
            if level:
                yield Block(one_line(f"{mark} {text}"), min(level, 6))
            elif listed:
                yield Block(f"{one_line(mark) or '-' * (nested + 1)} {text}", tight=True, first=not before)
            else:
                yield Block(text)
        for box in _boxes(paragraph):
            yield from self._container(box)

    def _runs(self, element: etree._Element) -> Iterator[str]:
        heard = []
        for child in element:
            if self._is_vanished(child):
                for mark in child.iter(f"{W}fldChar"):
                    self.fields.mark(mark)
            elif not (child.tag in _DELETED or child.tag in _SILENT):
                heard.append(child)
        for above, children in groupby(heard, key=_is_raised):  # Word splits a number into runs as it was typed
            if above:
                text = "".join(text for child in children for text in self._runs(child))
                yield superscript(text, linked=element.tag == f"{W}hyperlink")
            else:
                yield from self._unraised(children)

    def _is_vanished(self, element: etree._Element) -> bool:
        """Return whether a run is hidden by itself, or by just one of its two styles: both together show it."""
        if element.tag != f"{W}r":
            return False
        own = element.find(f"{W}rPr/{W}vanish")
        return is_on(own) if own is not None else self.hidden != (val(element.find(f"{W}rPr/{W}rStyle")) in self.hiding)

    def _unraised(self, children: Iterable[etree._Element]) -> Iterator[str]:
        for child in children:
            tag = child.tag
            if tag == f"{W}fldChar":
                yield self.fields.mark(child)
            elif self.fields.in_code and not len(child):
                continue
            elif tag == f"{W}t":
                yield symbols_to_unicode(_font(child.getparent()), child.text or "")
            elif tag in (f"{W}tab", f"{W}ptab"):
                yield " "
            elif tag in (f"{W}br", f"{W}cr"):
                yield "\n"
            elif tag == f"{W}sym":
                yield _symbol(child)
            elif tag == f"{_WP}docPr":
                yield picture_text(child.get("descr"))
            elif tag == f"{W}noBreakHyphen":
                yield "-"
            elif tag in _CITED:
                self.cited.append((_CITED[tag], child.get(f"{W}id") or ""))
                yield f"[{len(self.cited)}]"
            elif tag == f"{M}oMath":
                yield omml_text(child)
            elif tag in DRAWING_ELEMENTS:
                yield self.drawings.text(child, self.parts)
            elif tag == f"{W}subDoc":
                self.linked += 1
            else:
                if tag == f"{W}object":
                    self.objects += [one_line(each.get("ProgID") or "") for each in child.iter("{*}OLEObject")]
                yield from self._runs(child)


def _cell(element: etree._Element, text: str) -> Cell:
    return Cell(text, span(val(element.find(f"{W}tcPr/{W}gridSpan"))))


def _heading_level(styles: Mapping[str, etree._Element], style: str) -> int:
    """Return the heading level of a style by its name or outline, or by a style it is based on; else 0."""
    for each in with_base_styles(styles, style):
        name = val(each.find(f"{W}name")) or ""
        if match := _HEADING.match(name):
            return int(match[1])
        outline = val(each.find(f"{W}pPr/{W}outlineLvl")) or ""
        if outline.isdecimal():  # 9 is body text
            return int(outline) + 1 if int(outline) < 6 else 0
        if name.casefold() == "title":
            return 1
    return 0


def _runs_on(paragraph: etree._Element, properties: etree._Element | None) -> bool:
    """Return whether the mark at the end of a paragraph is deleted, so that it joins the next one."""
    if properties is None or all(properties.find(f"{W}rPr/{W}{gone}") is None for gone in ("del", "moveFrom")):
        return False
    following = paragraph.getnext()
    while following is not None and following.tag in (f"{W}bookmarkStart", f"{W}bookmarkEnd"):
        following = following.getnext()
    return following is not None and following.tag == f"{W}p"


def _hides(styles: Mapping[str, etree._Element], style: str) -> bool:
    """Return whether a style, or one that it is based on, hides its text."""
    said = (each.find(f"{W}rPr/{W}vanish") for each in with_base_styles(styles, style))
    return is_on(next((mark for mark in said if mark is not None), None))


def _is_raised(element: etree._Element) -> bool:
    """Return whether a run is superscript and no footnote mark, which has an element of its own."""
    if element.tag != f"{W}r" or val(element.find(f"{W}rPr/{W}vertAlign")) != "superscript":
        return False
    return all(element.find(mark) is None for mark in _CITED)


def _symbol(element: etree._Element) -> str:
    """Return a character of a symbol font. An unknown one stays private to its font."""
    code = element.get(f"{W}char") or ""
    return symbol(element.get(f"{W}font"), int(code, 16)) if re.fullmatch(r"[0-9A-Fa-f]{4}", code) else ""


def _font(run: etree._Element) -> str | None:
    """Return the font of a run, or None if it names none."""
    fonts = run.find(f"{W}rPr/{W}rFonts")
    return None if fonts is None else fonts.get(f"{W}ascii") or fonts.get(f"{W}hAnsi")


def _own(element: etree._Element, tag: str) -> Iterator[etree._Element]:
    """Yield a table's own rows or a row's own cells, also those in content controls; not those of nested tables."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag in _WRAPPERS:
            yield from _own(child, tag)


def _boxes(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the text boxes of a paragraph; their own paragraphs find the boxes within them."""
    for child in element:
        if child.tag == f"{W}txbxContent":
            yield child
        elif child.tag not in _DELETED:
            yield from _boxes(child)


def _part(document: Any, name: str, xml_warnings: list[str]) -> etree._Element | None:
    """Return the root of a related part, such as "numbering", or None."""
    for relation in document.part.rels.values():
        if relation.reltype.endswith(f"/{name}") and not relation.is_external:
            return parse_xml(relation.target_part.blob, name, xml_warnings)
    return None


def _notes(document: Any, kind: str, xml_warnings: list[str]) -> dict[str, etree._Element]:
    root = _part(document, f"{kind}s", xml_warnings)
    return {} if root is None else {note.get(f"{W}id") or "": note for note in root.iter(f"{W}{kind}")}
