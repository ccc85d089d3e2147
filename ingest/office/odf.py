"""OpenDocument files: their parts, namespaces, styles and list numbers."""

import re
import zipfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from lxml import etree

from ingest.archive import Members, check_archive, read_member
from ingest.conversion import Content
from ingest.errors import BrokenFile, IngestError
from ingest.limits import Limits
from ingest.list_numbers import list_number
from ingest.markup.xml import parse_xml
from ingest.office.common import damaged_file
from ingest.table import TALLEST, span

_ODF = "urn:oasis:names:tc:opendocument:xmlns:"
DRAW, OFFICE, STYLE = f"{{{_ODF}drawing:1.0}}", f"{{{_ODF}office:1.0}}", f"{{{_ODF}style:1.0}}"
SVG, TABLE, TEXT = f"{{{_ODF}svg-compatible:1.0}}", f"{{{_ODF}table:1.0}}", f"{{{_ODF}text:1.0}}"
FORM, PRESENTATION = f"{{{_ODF}form:1.0}}", f"{{{_ODF}presentation:1.0}}"
DC, XLINK = "{http://purl.org/dc/elements/1.1/}", "{http://www.w3.org/1999/xlink}"
MATH = "{http://www.w3.org/1998/Math/MathML}math"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"

_KINDS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}


_FLAT_PARTS = ("content.xml", "styles.xml", "meta.xml")  # all in one file


class OdfFile:
    """An open OpenDocument file, in an archive or in one XML file."""

    def __init__(self, name: str, limits: Limits, kind: str, source: zipfile.ZipFile | bytes) -> None:
        """Read the parts that all files have.

        Args:
            name: the file's.
            limits: how much may be read.
            kind: "text", "spreadsheet" or "presentation".
            source: the archive, or the bytes of a file without one.

        Raises:
            BrokenFile: it holds no such body.
        """
        self.name, self.limits = name, limits
        self.xml_warnings: list[str] = []
        self._source = source
        self._flat = parse_xml(source, name, self.xml_warnings) if isinstance(source, bytes) else None
        content, styles = self.part("content.xml"), self.part("styles.xml")
        body = None if content is None else content.find(f"{OFFICE}body/{OFFICE}{kind}")
        if content is None or body is None:
            raise BrokenFile(f"content.xml holds no {kind}")
        self.body = body
        self.styles = OdfStyles([root for root in (styles, content) if root is not None])

    def part(self, name: str) -> etree._Element | None:
        """Return the root of a part, None if the file has no such part."""
        if isinstance(self._source, bytes):
            return self._flat if name in _FLAT_PARTS else None
        members = Members(self._source)
        found = members.find(name)
        if found is None:
            return None
        return parse_xml(read_member(self._source, members.names[found], self.limits), name, self.xml_warnings)

    @cached_property
    def title(self) -> str | None:
        """The file's own title."""
        meta = self.part("meta.xml")
        return None if meta is None else meta.findtext(f".//{OFFICE}meta/{DC}title")


def read_odf(path: Path, limits: Limits, kind: str, read: Callable[[OdfFile], Content]) -> Content:
    """Open an OpenDocument file and return its content. kind: as `OdfFile` takes it.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, path.name, limits)
                return read(OdfFile(path.name, limits, kind, archive))
        limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
        return read(OdfFile(path.name, limits, kind, path.read_bytes()))
    except IngestError as error:
        if isinstance(error, BrokenFile) and path.name not in str(error):
            raise damaged_file(path.name, f"an OpenDocument {kind}", error, "LibreOffice") from error
        raise
    except Exception as error:  # KeyError, BadZipFile, zlib.error, ... for a damaged archive
        raise damaged_file(path.name, f"an OpenDocument {kind}", error, "LibreOffice") from error


class OdfStyles:
    """The styles of a document."""

    def __init__(self, roots: list[etree._Element]) -> None:
        """Index the styles below some roots; the later roots take precedence."""
        self._named = {
            (style.get(f"{STYLE}family") or "", style.get(f"{STYLE}name") or ""): style
            for root in roots
            for style in root.iter(f"{STYLE}style")
        }
        self.lists = {
            style.get(f"{STYLE}name") or "": style for root in roots for style in root.iter(f"{TEXT}list-style")
        }
        self.outline = next((style for root in roots for style in root.iter(f"{TEXT}outline-style")), None)

    def property(self, family: str, name: str | None, attribute: str) -> str:
        """Return a property of a style, or of the nearest parent that has it; "" if none has."""
        for _ in range(20):  # a limit, as styles may form a circle
            style = self._named.get((family, name or ""))
            if style is None:
                break
            for properties in style:
                if said := properties.get(attribute):
                    return str(said)
            name = style.get(f"{STYLE}parent-style-name")
        return ""

    def hidden(self, family: str, name: str | None) -> bool:
        """Return whether text of a style is invisible."""
        return self.property(family, name, f"{TEXT}display") == "none"

    def raised(self, name: str | None) -> bool:
        """Return whether words of a style are superscript."""
        position = self.property("text", name, f"{STYLE}text-position")
        return position.startswith("super") or bool(re.match(r"[1-9]\d*%", position))

    def is_title(self, name: str | None) -> bool:
        """Return whether a paragraph of a style is the title of the document."""
        style = self._named.get(("paragraph", name or ""))
        based = None if style is None else style.get(f"{STYLE}parent-style-name")
        return "Title" in (name, based)


class ListCounter:
    """Counts the items of one list."""

    def __init__(self, style: etree._Element | None) -> None:
        self.style = style
        self._levels = {} if style is None else {span(each.get(f"{TEXT}level")): each for each in style}
        self._counts: dict[int, int] = {}

    def next(self, level: int, start: str | None = None) -> str:
        """Return the number of the next item of a level; "" without numbers.

        Args:
            level: 1-based.
            start: a number that restarts the count.
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
        return list_number(self._counts.get(level, 1), _KINDS.get(form, "decimal")) if form else ""


class OdfLists:
    """The lists of a document. Some continue another."""

    def __init__(self, styles: OdfStyles) -> None:
        self._styles = styles
        self._of_style: dict[str, ListCounter] = {}
        self._of_id: dict[str, ListCounter] = {}
        self._outline = ListCounter(styles.outline)

    def of(self, element: etree._Element) -> ListCounter:
        """Return the counter of a list."""
        style = element.get(f"{TEXT}style-name") or ""
        numbers = self._of_id.get(element.get(f"{TEXT}continue-list") or "")
        if numbers is None and element.get(f"{TEXT}continue-numbering") == "true":
            numbers = self._of_style.get(style)
        numbers = numbers or ListCounter(self._styles.lists.get(style))
        self._of_style[style] = numbers
        if identity := element.get(XML_ID):
            self._of_id[identity] = numbers
        return numbers

    def within(self, element: etree._Element, outer: ListCounter) -> ListCounter:
        """Return the counter of a nested list: that of the outer list, unless it has a style of its own."""
        style = self._styles.lists.get(element.get(f"{TEXT}style-name") or "")
        return outer if style is None or style is outer.style else ListCounter(style)

    def heading(self, element: etree._Element, level: int) -> str:
        """Return the number of a heading; "" without numbers."""
        if element.get(f"{TEXT}is-list-header") == "true":
            return ""
        return self._outline.next(level)
