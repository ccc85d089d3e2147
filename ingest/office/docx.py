"""DOCX, through python-docx for the package and the styles, with an own walk over the body.

The walk also reads what python-docx's paragraphs pass over: content controls, text boxes, tracked insertions (tracked
deletions are left out), diagrams and charts, footnotes, endnotes and comments. Headers and footers are left out.
Documents that Word only puts in when it opens the file are named in a warning.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import docx as python_docx
from lxml import etree

from ingest.clean import joined, one_line, pictured, raised, tidy
from ingest.document import Reading, count, listed
from ingest.errors import IngestError
from ingest.limits import Limits, check_archive
from ingest.markup.formulas import M, of_word
from ingest.markup.xml import parse_xml
from ingest.office.common import MC, beside, bounded, damaged, missing, misunderstood, reading, related
from ingest.office.drawings import PLACES, Drawings
from ingest.office.numbering import Numbering, W, is_on, value, with_bases
from ingest.office.package import Package
from ingest.office.symbol_fonts import in_unicode, sign
from ingest.office.word_fields import Fields
from ingest.sections import SPLIT_DEPTH, Block, one_line_of, rows_of
from ingest.table import Cell, lays_out, span, table_lines

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


def read(path: Path, limits: Limits) -> Reading:
    """Read a Word document.

    Raises:
        BrokenFile, TooLarge, EmptyDocument.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            package, lost = Package(archive, limits).lean_copy()
            document = python_docx.Document(package)
        walk = _Walk(document)
        blocks = bounded(walk.blocks(), path.name, limits)
        title = document.core_properties.title
    except IngestError:
        raise
    except Exception as error:  # KeyError, BadZipFile, XMLSyntaxError, ValueError: by where the package is damaged
        raise damaged(path.name, "a Word document", error, "Word or LibreOffice") from error
    warnings = missing(lost) + walk.doubts
    if walk.embedded:
        within = f"{count(walk.embedded, 'document')} within the file, put in place only when Word opens it"
        warnings.append(f"Not read: {within}. Open the file in Word, save it again and add that.")
    if walk.objects:
        named = listed(list(dict.fromkeys(filter(None, walk.objects))), 5)
        within = count(len(walk.objects), "object") + (f" of other programs ({named})" if named else "")
        warnings.append(f"Not read: {within}. Save them from Word as files and add them, or add the document as PDF.")
    warnings += beside(walk.linked) + misunderstood(walk.drawings.broken)
    return reading(path.name, blocks, title, warnings)


class _Walk:
    def __init__(self, document: Any) -> None:
        self.doubts: list[str] = []  # about the XML of parts
        self.body = document.element.body
        styles = {style.style_id: style.element for style in document.styles}
        self.levels = {style: _heading_level(styles, style) for style in styles}
        self.numbering = Numbering(_part(document, "numbering", self.doubts), styles)
        self.notes = {kind: _notes(document, kind, self.doubts) for kind in _CITED.values()}
        self.parts = related(document.part.rels)
        self.cited: list[tuple[str, str]] = []
        self.listing = False  # the last paragraph was in a list
        self.embedded = self.linked = 0  # documents that are not read, within the file and beside it
        self.objects: list[str] = []  # of other programs, by these
        self.fields = Fields(self.body, _DELETED)
        self.begun: list[str] = []  # of a paragraph whose end is deleted: it goes on in the next one
        self.drawings = Drawings()

    def blocks(self) -> Iterator[Block]:
        headed = False
        for block in self._container(self.body):
            headed = headed or 0 < block.level <= SPLIT_DEPTH
            yield block
        begun = False
        for number, (kind, identity) in enumerate(self.cited, 1):  # a note may cite another: the list grows meanwhile
            if note := self._note(kind, identity):
                if headed and not begun:
                    yield Block("Notes", 1)
                yield Block(f"[{number}] {note}", tight=True, first=not begun)
                begun = True

    def _note(self, kind: str, identity: str) -> str:
        note = self.notes[kind].get(identity)
        if note is None:
            return ""
        author, text = one_line(note.get(f"{W}author") or ""), one_line_of(self._container(note))
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
        rows = [list(_own(row, f"{W}tc")) for row in _own(table, f"{W}tr")]
        within = [[list(self._container(cell)) for cell in row] for row in rows]
        words = [[one_line_of(blocks) for blocks in row] for row in within]
        nested = any(cell.find(f".//{W}tbl") is not None for row in rows for cell in row)
        headings = any(len(blocks) > 1 and any(block.level for block in blocks) for row in within for blocks in row)
        headed = table.find(f"{W}tr/{W}trPr/{W}tblHeader") is not None
        if headings or lays_out(words, headed, nested):
            for row in within:
                for blocks in row:
                    yield from blocks
            return
        cells = [list(map(_cell, row, texts)) for row, texts in zip(rows, words, strict=True)]
        for row, line in zip(_own(table, f"{W}tr"), cells, strict=True):
            if before := value(row.find(f"{W}trPr/{W}gridBefore")):
                line.insert(0, Cell("", span(before)))
        self.listing = False
        yield from rows_of(table_lines(cells))

    def _paragraph(self, paragraph: etree._Element) -> Iterator[Block]:
        runs = [*self.begun, *self._runs(paragraph)]
        self.begun = []
        properties = paragraph.find(f"{W}pPr")
        if _runs_on(paragraph, properties):
            self.begun = runs
            for box in _boxes(paragraph):
                yield from self._container(box)
            return
        text = tidy(joined(runs))
        style = outline = None
        if properties is not None:
            style = value(properties.find(f"{W}pStyle"))
            outline = value(properties.find(f"{W}outlineLvl"))
        listed = self.numbering.mark(properties, style)  # one without words counts too
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
            if _is_vanished(child):
                for mark in child.iter(f"{W}fldChar"):
                    self.fields.mark(mark)
            elif not (child.tag in _DELETED or child.tag in _SILENT):
                heard.append(child)
        for above, children in groupby(heard, key=_is_raised):  # Word parts a number as it was typed
            if above:
                text = "".join(text for child in children for text in self._runs(child))
                yield raised(text, linked=element.tag == f"{W}hyperlink")
            else:
                yield from self._unraised(children)

    def _unraised(self, children: Iterable[etree._Element]) -> Iterator[str]:
        for child in children:
            tag = child.tag
            if tag == f"{W}fldChar":
                yield self.fields.mark(child)
            elif self.fields.in_code and not len(child):
                continue
            elif tag == f"{W}t":
                yield in_unicode(_font(child.getparent()), child.text or "")
            elif tag in (f"{W}tab", f"{W}ptab"):
                yield " "
            elif tag in (f"{W}br", f"{W}cr"):
                yield "\n"
            elif tag == f"{W}sym":
                yield _symbol(child)
            elif tag == f"{_WP}docPr":
                yield pictured(child.get("descr"))
            elif tag == f"{W}noBreakHyphen":
                yield "-"
            elif tag in _CITED:
                self.cited.append((_CITED[tag], child.get(f"{W}id") or ""))
                yield f"[{len(self.cited)}]"
            elif tag == f"{M}oMath":
                yield of_word(child)
            elif tag in PLACES:
                yield self.drawings.words(child, self.parts)
            elif tag == f"{W}subDoc":
                self.linked += 1
            else:
                if tag == f"{W}object":
                    self.objects += [one_line(each.get("ProgID") or "") for each in child.iter("{*}OLEObject")]
                yield from self._runs(child)


def _cell(element: etree._Element, text: str) -> Cell:
    return Cell(text, span(value(element.find(f"{W}tcPr/{W}gridSpan"))))


def _heading_level(styles: Mapping[str, etree._Element], style: str) -> int:
    """The level of the headings of a style by its name or outline, or that of a style that it is based on; else 0."""
    for each in with_bases(styles, style):
        name = value(each.find(f"{W}name")) or ""
        if match := _HEADING.match(name):
            return int(match[1])
        outline = value(each.find(f"{W}pPr/{W}outlineLvl")) or ""
        if outline.isdecimal():  # 9 is that of plain text
            return int(outline) + 1 if int(outline) < 6 else 0
        if name.casefold() == "title":
            return 1
    return 0


def _runs_on(paragraph: etree._Element, properties: etree._Element | None) -> bool:
    """Whether the end of a paragraph is deleted, so that it and the next one are one."""
    if properties is None or all(properties.find(f"{W}rPr/{W}{gone}") is None for gone in ("del", "moveFrom")):
        return False
    following = paragraph.getnext()
    while following is not None and following.tag in (f"{W}bookmarkStart", f"{W}bookmarkEnd"):
        following = following.getnext()
    return following is not None and following.tag == f"{W}p"


def _is_vanished(element: etree._Element) -> bool:
    """Whether a run is hidden text."""
    return element.tag == f"{W}r" and is_on(element.find(f"{W}rPr/{W}vanish"))


def _is_raised(element: etree._Element) -> bool:
    """Whether a run is superscript, and not the mark of a note, which says so itself."""
    if element.tag != f"{W}r" or value(element.find(f"{W}rPr/{W}vertAlign")) != "superscript":
        return False
    return all(element.find(mark) is None for mark in _CITED)


def _symbol(element: etree._Element) -> str:
    """A character of a font of signs; one that is not known here stays private to its font."""
    code = element.get(f"{W}char") or ""
    return sign(element.get(f"{W}font"), int(code, 16)) if re.fullmatch(r"[0-9A-Fa-f]{4}", code) else ""


def _font(run: etree._Element) -> str | None:
    """The font that a run says it is set in."""
    fonts = run.find(f"{W}rPr/{W}rFonts")
    return None if fonts is None else fonts.get(f"{W}ascii") or fonts.get(f"{W}hAnsi")


def _own(element: etree._Element, tag: str) -> Iterator[etree._Element]:
    """A table's own rows or a row's own cells, also those in content controls; not those of a table within."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag in _WRAPPERS:
            yield from _own(child, tag)


def _boxes(element: etree._Element) -> Iterator[etree._Element]:
    """The text boxes of a paragraph; not those within them, which their own paragraphs find."""
    for child in element:
        if child.tag == f"{W}txbxContent":
            yield child
        elif child.tag not in _DELETED:
            yield from _boxes(child)


def _part(document: Any, name: str, doubts: list[str]) -> etree._Element | None:
    """The root of another part of the package, such as "numbering"; None where there is none."""
    for relation in document.part.rels.values():
        if relation.reltype.endswith(f"/{name}") and not relation.is_external:
            return parse_xml(relation.target_part.blob, name, doubts)
    return None


def _notes(document: Any, kind: str, doubts: list[str]) -> dict[str, etree._Element]:
    root = _part(document, f"{kind}s", doubts)
    return {} if root is None else {note.get(f"{W}id") or "": note for note in root.iter(f"{W}{kind}")}
