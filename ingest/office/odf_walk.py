"""The body of an OpenDocument file as blocks: paragraphs, lists, tables, text boxes, notes, comments and formulas.

Left out: tracked deletions, hidden text, headers and footers. Charts and other embedded documents, and parts in other
files, are counted.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from lxml import etree

from ingest.clean import join_inline, one_line, picture_text, superscript, tidy
from ingest.errors import BrokenFile
from ingest.markup.formulas import mathml_text
from ingest.office.odf import (
    DC,
    DRAW,
    FORM,
    MATH,
    OFFICE,
    SVG,
    TABLE,
    TEXT,
    XLINK,
    XML_ID,
    ListCounter,
    OdfFile,
    OdfLists,
)
from ingest.sections import Block, join_blocks, row_blocks
from ingest.table import TALLEST, Cell, is_layout, span, table_lines
from ingest.wording import count

_SILENT = frozenset(
    (
        *(f"{TEXT}{name}" for name in ("tracked-changes", "hidden-text", "script", "ruby-text", "note-citation")),
        *(f"{OFFICE}{name}" for name in ("forms", "annotation-end", "binary-data")),
        *(f"{SVG}{name}" for name in ("title", "desc")),
    )
)
_ROWS = frozenset(f"{TABLE}{name}" for name in ("table-header-rows", "table-rows", "table-row-group"))


class OdfWalk:
    """Turns the elements of a body into blocks, and counts what is not read."""

    def __init__(self, file: OdfFile) -> None:
        self.body, self.parts = file.body, file.part
        self.styles = file.styles
        self.lists = OdfLists(self.styles)
        self.controls = {
            each.get(f"{FORM}id") or each.get(XML_ID) or "": each
            for forms in file.body.iter(f"{OFFICE}forms")
            for each in forms.iter(f"{FORM}*")
        }
        self.notes: list[str] = []
        self.formulas: dict[str, str] = {}  # embedded object -> formula; "" for other objects
        self.embedded = self.linked = 0  # counts of objects not read: embedded, and in other files

    def blocks(self, element: Iterable[etree._Element]) -> Iterator[Block]:
        """Yield the blocks within an element. Its notes come with `take_notes`."""
        yield from self._container(element)

    def take_notes(self) -> list[str]:
        """Return the notes cited so far as lines, and forget them; the next note is number 1."""
        noted = [f"[{number}] {note}" for number, note in enumerate(self.notes, 1) if note]
        self.notes = []
        return noted

    def embedded_warning(self) -> list[str]:
        """Return the warning about embedded objects that are not read; none if there are none."""
        if not self.embedded:
            return []
        within = f"{count(self.embedded, 'object')} within the file, such as charts"
        return [f"Not read: {within}. Save it as PDF and add that."]

    def _container(self, element: Iterable[etree._Element]) -> Iterator[Block]:
        for child in element:
            tag = child.tag
            if tag in (f"{TEXT}p", f"{TEXT}h"):
                yield from self._paragraph(child)
            elif tag == f"{TEXT}list":
                yield from self._list(child, self.lists.of(child))
            elif tag == f"{TABLE}table":
                yield from self._table(child)
            elif tag == f"{DRAW}frame":
                yield Block(tidy(join_inline(self._run(child))))
                yield from self._boxed(child)
            elif tag == f"{TEXT}section-source":
                self.linked += 1
            elif isinstance(tag, str) and not (tag in _SILENT or tag.endswith("-source") or _is_hidden(child)):
                yield from self._container(child)

    def _paragraph(self, paragraph: etree._Element, depth: int = 0, number: str = "") -> Iterator[Block]:
        """Yield a paragraph or a heading. depth, number: those of the list item that it begins."""
        style = paragraph.get(f"{TEXT}style-name")
        if self.styles.hidden("paragraph", style):
            return
        text = tidy(join_inline(self._runs(paragraph)))
        level = 1 if self.styles.is_title(style) else 0
        if paragraph.tag == f"{TEXT}h":
            level = span(paragraph.get(f"{TEXT}outline-level"), 6)
            if text:
                text = one_line(f"{number or self.lists.heading(paragraph, level)} {text}")
        if text and depth and not level:
            yield Block(f"{number or '-' * depth} {text}", tight=True)
        elif text:
            yield Block(text, level)
        yield from self._boxed(paragraph)

    def _boxed(self, element: etree._Element) -> Iterator[Block]:
        """Yield the paragraphs of text boxes and shapes anchored to an element."""
        for child in element:
            if child.tag in (f"{TEXT}note", f"{OFFICE}annotation") or not isinstance(child.tag, str):
                continue
            if child.tag == f"{TABLE}table":  # a table on a slide
                yield from self._table(child)
                continue
            if child.tag.startswith(DRAW) and child.tag != f"{DRAW}frame":
                yield from self._container(child)
            else:
                yield from self._boxed(child)

    def _list(self, element: etree._Element, numbers: ListCounter, depth: int = 1) -> Iterator[Block]:
        first = depth == 1
        for item in element:
            if item.tag not in (f"{TEXT}list-item", f"{TEXT}list-header"):
                continue
            begins = item.tag == f"{TEXT}list-item"
            for child in item:
                if child.tag == f"{TEXT}list":
                    yield from self._list(child, self.lists.within(child, numbers), depth + 1)
                    continue
                if begins and child.tag in (f"{TEXT}p", f"{TEXT}h"):
                    blocks = self._paragraph(child, depth, numbers.next(depth, item.get(f"{TEXT}start-value")))
                    begins = False
                else:
                    blocks = self._container([child])
                for block in blocks:
                    yield Block(block.text, block.level, block.tight, first and block.tight)
                    first = first and not block.tight

    def _table(self, table: etree._Element) -> Iterator[Block]:
        rows = [[cell for cell in row if cell.tag == f"{TABLE}table-cell"] for row in table_rows(table)]
        within = [[list(self._container(cell)) for cell in row] for row in rows]
        words = [[join_blocks(blocks) for blocks in row] for row in within]
        nested = any(cell.find(f".//{TABLE}table") is not None for row in rows for cell in row)
        headings = any(len(blocks) > 1 and any(block.level for block in blocks) for row in within for blocks in row)
        headed = table.find(f"{TABLE}table-header-rows") is not None
        if headings or is_layout(words, headed, nested):
            for blocks in (blocks for row in within for blocks in row):
                yield from blocks
            return
        cells = [
            [placed for cell, text in zip(row, texts, strict=True) for placed in _cells(cell, text)]
            for row, texts in zip(rows, words, strict=True)
        ]
        yield from row_blocks(table_lines(cells))

    def _runs(self, element: etree._Element) -> Iterator[str]:
        yield _spaced(element.text)
        for child in element:
            if isinstance(child.tag, str):
                yield from self._run(child)
            yield _spaced(child.tail)

    def _run(self, child: etree._Element) -> Iterator[str]:
        tag = child.tag
        if tag in _SILENT:
            return
        if tag in (f"{TEXT}s", f"{TEXT}tab"):
            yield " "
        elif tag == f"{TEXT}line-break":
            yield "\n"
        elif tag == f"{TEXT}note":
            yield self._cite(child.find(f"{TEXT}note-body"), "")
        elif tag == f"{OFFICE}annotation":
            yield self._cite(child, one_line(child.findtext(f"{DC}creator") or ""))
        elif tag == f"{TEXT}span":
            yield from self._span(child)
        elif tag == f"{DRAW}frame":
            yield picture_text(child.findtext(f"{SVG}desc") or child.findtext(f"{SVG}title"))
            for thing in child.iterfind(f"{DRAW}object"):
                yield self._formula(thing)
            self.embedded += len(child.findall(f"{DRAW}object-ole"))
        elif tag == f"{DRAW}control":
            yield _filled_in(self.controls.get(child.get(f"{DRAW}control") or ""))
        elif not tag.startswith(DRAW) or tag == f"{DRAW}a":  # shapes are boxes
            yield from self._runs(child)

    def _span(self, element: etree._Element) -> Iterator[str]:
        style = element.get(f"{TEXT}style-name")
        if self.styles.hidden("text", style):
            return
        if self.styles.raised(style):
            above = element.getparent()
            text = "".join(self._runs(element))
            yield superscript(text, linked=above is not None and above.tag == f"{TEXT}a") if text.strip() else text
        else:
            yield from self._runs(element)

    def _cite(self, body: etree._Element | None, author: str) -> str:
        number = len(self.notes)
        self.notes.append("")  # reserved before nested notes take the number
        text = "" if body is None else join_blocks(self._container(body))
        self.notes[number] = f"{author}: {text}" if author and text else text
        return f"[{number + 1}]"

    def _formula(self, element: etree._Element) -> str:
        """Return a formula, which is a document of its own. Other embedded objects are only counted."""
        name = (element.get(f"{XLINK}href") or "").removeprefix("./")
        if not name:
            said = _mathematics(element)
        else:
            if name not in self.formulas:
                with suppress(BrokenFile):
                    self.formulas[name] = _mathematics(self.parts(f"{name}/content.xml"))
            said = self.formulas.setdefault(name, "")
        self.embedded += not said
        return said


def _filled_in(control: etree._Element | None) -> str:
    """Return the value of a form's field, or the state of its box. Buttons give nothing."""
    if control is None or control.tag in (f"{FORM}button", f"{FORM}hidden", f"{FORM}password", f"{FORM}image"):
        return ""
    if control.tag in (f"{FORM}checkbox", f"{FORM}radio"):
        ticked = "checked" in (control.get(f"{FORM}current-state"), control.get(f"{FORM}state"))
        ticked = ticked or control.get(f"{FORM}current-selected") == "true"
        return f" {'☒' if ticked else '☐'} {one_line(control.get(f'{FORM}label') or '')} "
    chosen = [each for each in control.iter(f"{FORM}option") if each.get(f"{FORM}current-selected") == "true"]
    said = [each.get(f"{FORM}label") or each.get(f"{FORM}value") or "" for each in chosen]
    said = said or [control.get(f"{FORM}current-value") or control.get(f"{FORM}value") or ""]
    return f" {one_line(', '.join(said))} "


def table_rows(table: etree._Element) -> Iterator[etree._Element]:
    """Yield the rows of a table, those in groups too."""
    for child in table:
        if child.tag == f"{TABLE}table-row":
            yield child
        elif child.tag in _ROWS:
            yield from table_rows(child)


def _cells(element: etree._Element, text: str) -> list[Cell]:
    """Return a cell, repeated as the file says."""
    columns = span(element.get(f"{TABLE}number-columns-spanned"))
    rows = span(element.get(f"{TABLE}number-rows-spanned"), TALLEST)
    return [Cell(text, columns, rows)] * span(element.get(f"{TABLE}number-columns-repeated"))


def _mathematics(document: etree._Element | None) -> str:
    """Return the formula in an embedded document; "" if it holds something else."""
    math = None if document is None else next(document.iter(MATH, "math"), None)
    return "" if math is None else mathml_text(math)


def _is_hidden(section: etree._Element) -> bool:
    return bool(section.get(f"{TEXT}display") == "none" or section.get(f"{TEXT}is-hidden") == "true")


def _spaced(text: str | None) -> str:
    """Return text as it is shown: a line end in the file is a blank."""
    return re.sub(r"[ \t\r\n]+", " ", text or "")
