"""DOCX, through python-docx for the package and the styles, with an own walk over the body.

The walk also reads what python-docx's paragraphs pass over: content controls, text boxes, tracked insertions (tracked
deletions are left out), footnotes and endnotes. Headers and footers are left out.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx as python_docx
from lxml import etree

from ingest.clean import one_line, tidy
from ingest.epub import parse_xml
from ingest.errors import BrokenFile, EmptyDocument, IngestError
from ingest.limits import Limits, check_archive
from ingest.pdf import Reading
from ingest.sections import Block, paginate
from ingest.table import Cell, span, table_lines

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DELETED = frozenset({f"{W}del", f"{W}moveFrom", _FALLBACK})
_WRAPPERS = frozenset(f"{W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo"))
_HEADING = re.compile(r"^heading (\d)$", re.IGNORECASE)


def read(path: Path, limits: Limits) -> Reading:
    """Read a Word document.

    Raises:
        BrokenFile, TooLarge, EmptyDocument.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
        document = python_docx.Document(str(path))
        blocks = list(_Walk(document).blocks())
        title = document.core_properties.title
    except IngestError:
        raise
    except Exception as error:  # KeyError, BadZipFile, XMLSyntaxError, ValueError: by where the package is damaged
        raise BrokenFile(
            f"{path.name} cannot be opened as a Word document ({one_line(str(error))[:120]}). "
            "The file is damaged: fetch it again, or open and re-save it in Word or LibreOffice."
        ) from error
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it: if it holds scanned pictures, save it as PDF and use OCR.")
    heading = next((block.text for block in blocks[:12] if block.level), None)
    return Reading(pages, toc, [title, heading], [])


class _Walk:
    def __init__(self, document: Any) -> None:
        self.body = document.element.body
        self.levels: dict[str, int] = {}
        self.list_styles: set[str] = set()
        for style in document.styles:
            match = _HEADING.match(style.name or "")
            if match:
                self.levels[style.style_id] = int(match[1])
            elif (style.name or "").casefold() == "title":
                self.levels[style.style_id] = 1
            elif (style.name or "").casefold().startswith("list "):
                self.list_styles.add(style.style_id)
        self.notes = {kind: _notes(document, kind) for kind in ("footnote", "endnote")}
        self.cited: list[tuple[str, str]] = []

    def blocks(self) -> Iterator[Block]:
        yield from self._container(self.body)
        notes = [self.notes[kind][number] for kind, number in self.cited if number in self.notes[kind]]
        for number, note in enumerate(notes, 1):
            yield Block(f"[{number}] {note}", tight=True)

    def _container(self, element: etree._Element) -> Iterator[Block]:
        for child in element:
            if child.tag == f"{W}p":
                yield from self._paragraph(child)
            elif child.tag == f"{W}tbl":
                for line in table_lines([list(self._cells(row)) for row in _own(child, f"{W}tr")]):
                    yield Block(line, tight=True)
            elif child.tag not in _DELETED and isinstance(child.tag, str):  # content controls, custom XML
                yield from self._container(child)

    def _cells(self, row: etree._Element) -> Iterator[Cell]:
        before = _value(row.find(f"{W}trPr/{W}gridBefore"))
        if before:
            yield Cell("", span(before))
        for cell in _own(row, f"{W}tc"):
            yield Cell(self._line(cell), span(_value(cell.find(f"{W}tcPr/{W}gridSpan"))))

    def _line(self, element: etree._Element) -> str:
        return " ".join(one_line(block.text) for block in self._container(element) if block.text)

    def _paragraph(self, paragraph: etree._Element) -> Iterator[Block]:
        text = tidy("".join(self._runs(paragraph)))
        if text:
            properties = paragraph.find(f"{W}pPr")
            style = numbering = outline = None
            if properties is not None:
                style = _value(properties.find(f"{W}pStyle"))
                outline = _value(properties.find(f"{W}outlineLvl"))
                numbering = properties.find(f"{W}numPr")
            level = self.levels.get(style or "", 0)
            if not level and outline and outline.isdecimal() and int(outline) < 6 and len(text) < 200:
                level = int(outline) + 1
            if level:
                yield Block(one_line(text), min(level, 6))
            elif numbering is not None or style in self.list_styles:
                depth = _value(numbering.find(f"{W}ilvl")) if numbering is not None else None
                nested = int(depth) if depth and depth.isdecimal() else 0
                yield Block("-" * min(nested, 8) + "- " + text, tight=True)
            else:
                yield Block(text)
        for box in paragraph.iter(f"{W}txbxContent"):
            if not any(ancestor.tag == _FALLBACK for ancestor in box.iterancestors()):
                yield from self._container(box)

    def _runs(self, element: etree._Element) -> Iterator[str]:
        for child in element:
            tag = child.tag
            if tag in _DELETED or tag == f"{W}txbxContent":
                continue
            if tag == f"{W}t":
                yield child.text or ""
            elif tag in (f"{W}tab", f"{W}ptab"):
                yield " "
            elif tag in (f"{W}br", f"{W}cr"):
                yield "\n"
            elif tag == f"{W}noBreakHyphen":
                yield "-"
            elif tag in (f"{W}footnoteReference", f"{W}endnoteReference"):
                self.cited.append((tag.removeprefix(W).removesuffix("Reference"), child.get(f"{W}id") or ""))
                yield f"[{len(self.cited)}]"
            elif tag not in (f"{W}pPr", f"{W}rPr", f"{W}instrText", f"{W}delText"):
                yield from self._runs(child)


def _own(element: etree._Element, tag: str) -> Iterator[etree._Element]:
    """A table's own rows or a row's own cells, also those in content controls; not those of a table within."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag in _WRAPPERS:
            yield from _own(child, tag)


def _notes(document: Any, kind: str) -> dict[str, str]:
    for relation in document.part.rels.values():
        if relation.reltype.endswith(f"/{kind}s") and not relation.is_external:
            root = parse_xml(relation.target_part.blob, f"{kind}s")
            return {
                note.get(f"{W}id") or "": one_line("".join(text.text or "" for text in note.iter(f"{W}t")))
                for note in root.iter(f"{W}{kind}")
            }
    return {}


def _value(element: etree._Element | None) -> str | None:
    return None if element is None else element.get(f"{W}val")
