"""OpenDocument texts, as LibreOffice writes them (ODT, or in one XML file FODT), with an own walk over the body.

Text boxes, footnotes, endnotes, comments and formulas are read; tracked deletions, hidden text, headers and footers are
left out. Charts and other documents within the file, and parts of it that are kept in files beside it, are named in a
warning.
"""

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from lxml import etree

from ingest.archive import Members
from ingest.clean import joined, one_line, pictured, raised, tidy
from ingest.document import Reading, count
from ingest.errors import BrokenFile, IngestError
from ingest.limits import Limits, check_archive, read_member
from ingest.markup.formulas import of_mathml
from ingest.markup.xml import parse_xml
from ingest.office.common import beside, bounded, damaged, reading
from ingest.office.numbering import written
from ingest.sections import SPLIT_DEPTH, Block, one_line_of, rows_of
from ingest.table import TALLEST, Cell, lays_out, span, table_lines

_ODF = "urn:oasis:names:tc:opendocument:xmlns:"
DRAW, OFFICE, STYLE = f"{{{_ODF}drawing:1.0}}", f"{{{_ODF}office:1.0}}", f"{{{_ODF}style:1.0}}"
SVG, TABLE, TEXT = f"{{{_ODF}svg-compatible:1.0}}", f"{{{_ODF}table:1.0}}", f"{{{_ODF}text:1.0}}"
FORM = f"{{{_ODF}form:1.0}}"
DC, XLINK = "{http://purl.org/dc/elements/1.1/}", "{http://www.w3.org/1999/xlink}"
MATH = "{http://www.w3.org/1998/Math/MathML}math"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"

_KINDS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_SILENT = frozenset(
    (
        *(f"{TEXT}{name}" for name in ("tracked-changes", "hidden-text", "script", "ruby-text", "note-citation")),
        *(f"{OFFICE}{name}" for name in ("forms", "annotation-end", "binary-data")),
        *(f"{SVG}{name}" for name in ("title", "desc")),
    )
)
_ROWS = frozenset(f"{TABLE}{name}" for name in ("table-header-rows", "table-rows", "table-row-group"))

Parts = Callable[[str], etree._Element | None]


def read(path: Path, limits: Limits) -> Reading:
    """Read an OpenDocument text.

    Raises:
        BrokenFile, TooLarge, EmptyDocument.
    """
    doubts: list[str] = []
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, path.name, limits)
                return _read(path, limits, lambda name: _member(archive, name, limits, doubts), doubts)
        limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
        flat = parse_xml(path.read_bytes(), path.name, doubts)
        parts = ("content.xml", "styles.xml", "meta.xml")
        return _read(path, limits, lambda name: flat if name in parts else None, doubts)
    except IngestError:
        raise
    except Exception as error:  # KeyError, BadZipFile, zlib.error, ...: by where the archive is damaged
        raise damaged(path.name, "an OpenDocument text", error, "LibreOffice") from error


def _member(archive: zipfile.ZipFile, name: str, limits: Limits, doubts: list[str]) -> etree._Element | None:
    members = Members(archive)
    found = members.find(name)
    return None if found is None else parse_xml(read_member(archive, members.names[found], limits), name, doubts)


def _read(path: Path, limits: Limits, parts: Parts, doubts: list[str]) -> Reading:
    walk = _Walk(parts)
    blocks, warnings = bounded(walk.blocks(), path.name, limits), []
    if walk.embedded:
        within = f"{count(walk.embedded, 'object')} within the file, such as charts"
        warnings.append(f"Not read: {within}. Save it as PDF and add that.")
    meta = parts("meta.xml")
    title = None if meta is None else meta.findtext(f".//{OFFICE}meta/{DC}title")
    return reading(path.name, blocks, title, [*dict.fromkeys(doubts), *warnings, *beside(walk.linked)])


class _Walk:
    def __init__(self, parts: Parts) -> None:
        content, styles = parts("content.xml"), parts("styles.xml")
        body = None if content is None else content.find(f"{OFFICE}body/{OFFICE}text")
        if content is None or body is None:
            raise BrokenFile("content.xml holds no text")
        self.body, self.parts = body, parts
        self.styles = _Styles([root for root in (styles, content) if root is not None])
        self.lists = _Lists(self.styles)
        self.controls = {
            each.get(f"{FORM}id") or each.get(XML_ID) or "": each
            for forms in body.iter(f"{OFFICE}forms")
            for each in forms.iter(f"{FORM}*")
        }
        self.notes: list[str] = []
        self.formulas: dict[str, str] = {}  # of the objects within the file, by name; "" for others
        self.embedded = self.linked = 0  # what is not read, within the file and beside it

    def blocks(self) -> Iterator[Block]:
        headed = False
        for block in self._container(self.body):
            headed = headed or 0 < block.level <= SPLIT_DEPTH
            yield block
        noted = [f"[{number}] {note}" for number, note in enumerate(self.notes, 1) if note]
        if headed and noted:
            yield Block("Notes", 1)
        yield from rows_of(noted)

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
                yield Block(tidy(joined(self._run(child))))
                yield from self._boxed(child)
            elif tag == f"{TEXT}section-source":
                self.linked += 1
            elif isinstance(tag, str) and not (tag in _SILENT or tag.endswith("-source") or _is_hidden(child)):
                yield from self._container(child)

    def _paragraph(self, paragraph: etree._Element, depth: int = 0, number: str = "") -> Iterator[Block]:
        """A paragraph or a heading. depth, number: of the item of a list that it begins, all on one line then."""
        style = paragraph.get(f"{TEXT}style-name")
        if self.styles.hidden("paragraph", style):
            return
        text = tidy(joined(self._runs(paragraph)))
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
        """The paragraphs of text boxes and shapes that hang on an element."""
        for child in element:
            if child.tag in (f"{TEXT}note", f"{OFFICE}annotation") or not isinstance(child.tag, str):
                continue
            if child.tag.startswith(DRAW) and child.tag != f"{DRAW}frame":
                yield from self._container(child)
            else:
                yield from self._boxed(child)

    def _list(self, element: etree._Element, numbers: "_Numbers", depth: int = 1) -> Iterator[Block]:
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
        rows = [[cell for cell in row if cell.tag == f"{TABLE}table-cell"] for row in _rows(table)]
        within = [[list(self._container(cell)) for cell in row] for row in rows]
        words = [[one_line_of(blocks) for blocks in row] for row in within]
        nested = any(cell.find(f".//{TABLE}table") is not None for row in rows for cell in row)
        headings = any(len(blocks) > 1 and any(block.level for block in blocks) for row in within for blocks in row)
        headed = table.find(f"{TABLE}table-header-rows") is not None
        if headings or lays_out(words, headed, nested):
            for blocks in (blocks for row in within for blocks in row):
                yield from blocks
            return
        cells = [
            [placed for cell, text in zip(row, texts, strict=True) for placed in _cells(cell, text)]
            for row, texts in zip(rows, words, strict=True)
        ]
        yield from rows_of(table_lines(cells))

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
            yield pictured(child.findtext(f"{SVG}desc") or child.findtext(f"{SVG}title"))
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
            yield raised(text, linked=above is not None and above.tag == f"{TEXT}a") if text.strip() else text
        else:
            yield from self._runs(element)

    def _cite(self, body: etree._Element | None, author: str) -> str:
        number = len(self.notes)
        self.notes.append("")  # its place, which notes within it do not take
        text = "" if body is None else one_line_of(self._container(body))
        self.notes[number] = f"{author}: {text}" if author and text else text
        return f"[{number + 1}]"

    def _formula(self, element: etree._Element) -> str:
        """A formula, which is a document of its own; of others only their number is known."""
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


class _Styles:
    """What the walk must know of the styles of a document: its own, and those of single paragraphs and words."""

    def __init__(self, roots: list[etree._Element]) -> None:
        """roots: what holds styles, the later ones taking precedence."""
        self._named = {
            (style.get(f"{STYLE}family") or "", style.get(f"{STYLE}name") or ""): style
            for root in roots
            for style in root.iter(f"{STYLE}style")
        }
        self.lists = {
            style.get(f"{STYLE}name") or "": style for root in roots for style in root.iter(f"{TEXT}list-style")
        }
        self.outline = next((style for root in roots for style in root.iter(f"{TEXT}outline-style")), None)

    def _says(self, family: str, name: str | None, attribute: str) -> str:
        """What a style, or the nearest above it that says so, has as a property of its text."""
        for _ in range(20):  # styles upon styles; a circle of them ends too
            style = self._named.get((family, name or ""))
            if style is None:
                break
            for properties in style.iterfind(f"{STYLE}text-properties"):
                if said := properties.get(attribute):
                    return str(said)
            name = style.get(f"{STYLE}parent-style-name")
        return ""

    def hidden(self, family: str, name: str | None) -> bool:
        """Whether text of a style is not shown."""
        return self._says(family, name, f"{TEXT}display") == "none"

    def raised(self, name: str | None) -> bool:
        """Whether words of a style are superscript."""
        position = self._says("text", name, f"{STYLE}text-position")
        return position.startswith("super") or bool(re.match(r"[1-9]\d*%", position))

    def is_title(self, name: str | None) -> bool:
        """Whether a paragraph is the title of the document."""
        style = self._named.get(("paragraph", name or ""))
        based = None if style is None else style.get(f"{STYLE}parent-style-name")
        return "Title" in (name, based)


class _Numbers:
    """Counts the items of one list."""

    def __init__(self, style: etree._Element | None) -> None:
        self.style = style
        self._levels = {} if style is None else {span(each.get(f"{TEXT}level")): each for each in style}
        self._counts: dict[int, int] = {}

    def next(self, level: int, start: str | None = None) -> str:
        """The number of the next item of a level; "" where items have none.

        start: the number that it begins anew with.
        """
        style = self._levels.get(level)
        begins = span(start or (None if style is None else style.get(f"{TEXT}start-value")), TALLEST)
        self._counts[level] = begins if start or level not in self._counts else self._counts[level] + 1
        for deeper in [each for each in self._counts if each > level]:
            del self._counts[deeper]
        if style is None or not style.get(f"{STYLE}num-format"):
            return ""
        shown = range(max(1, level + 1 - span(style.get(f"{TEXT}display-levels"))), level + 1)
        number = ".".join(filter(None, (self._number(each) for each in shown)))
        return f"{style.get(f'{STYLE}num-prefix') or ''}{number}{style.get(f'{STYLE}num-suffix') or ''}".strip()

    def _number(self, level: int) -> str:
        style = self._levels.get(level)
        form = "" if style is None else style.get(f"{STYLE}num-format") or ""
        return written(self._counts.get(level, 1), _KINDS.get(form, "decimal")) if form else ""


class _Lists:
    """The lists of a document: some go on where another ended."""

    def __init__(self, styles: _Styles) -> None:
        self._styles = styles
        self._of_style: dict[str, _Numbers] = {}
        self._of_id: dict[str, _Numbers] = {}
        self._outline = _Numbers(styles.outline)

    def of(self, element: etree._Element) -> _Numbers:
        """What counts the items of a list."""
        style = element.get(f"{TEXT}style-name") or ""
        numbers = self._of_id.get(element.get(f"{TEXT}continue-list") or "")
        if numbers is None and element.get(f"{TEXT}continue-numbering") == "true":
            numbers = self._of_style.get(style)
        numbers = numbers or _Numbers(self._styles.lists.get(style))
        self._of_style[style] = numbers
        if identity := element.get(XML_ID):
            self._of_id[identity] = numbers
        return numbers

    def within(self, element: etree._Element, outer: _Numbers) -> _Numbers:
        """What counts the items of a list in an item of another: that one's, unless it has a style of its own."""
        style = self._styles.lists.get(element.get(f"{TEXT}style-name") or "")
        return outer if style is None or style is outer.style else _Numbers(style)

    def heading(self, element: etree._Element, level: int) -> str:
        """The number of a heading; "" where headings have none."""
        if element.get(f"{TEXT}is-list-header") == "true":
            return ""
        return self._outline.next(level)


def _filled_in(control: etree._Element | None) -> str:
    """What was filled into a field of a form, chosen in it or ticked; its buttons say nothing."""
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


def _rows(table: etree._Element) -> Iterator[etree._Element]:
    for child in table:
        if child.tag == f"{TABLE}table-row":
            yield child
        elif child.tag in _ROWS:
            yield from _rows(child)


def _cells(element: etree._Element, text: str) -> list[Cell]:
    """A cell, as often as it stands there."""
    columns = span(element.get(f"{TABLE}number-columns-spanned"))
    rows = span(element.get(f"{TABLE}number-rows-spanned"), TALLEST)
    return [Cell(text, columns, rows)] * span(element.get(f"{TABLE}number-columns-repeated"))


def _mathematics(document: etree._Element | None) -> str:
    """The formula in a document within the document; "" where it is something else."""
    math = None if document is None else next(document.iter(MATH, "math"), None)
    return "" if math is None else of_mathml(math)


def _is_hidden(section: etree._Element) -> bool:
    return bool(section.get(f"{TEXT}display") == "none" or section.get(f"{TEXT}is-hidden") == "true")


def _spaced(text: str | None) -> str:
    """Text as it is shown: a line end in the file is a blank."""
    return re.sub(r"[ \t\r\n]+", " ", text or "")
