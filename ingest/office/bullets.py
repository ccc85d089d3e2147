"""Bullets and numbers of a slide's paragraphs. Numbers are counted, as the file does not store them.

A paragraph's own properties name its bullet, or those of its shape, or those of the placeholder in the layout and the
master. Left out: numbers in other alphabets, which are written in digits, and the shapes of bullets.
"""

import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from ingest.list_numbers import list_number
from ingest.office.drawings import A
from ingest.table import span

P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"

_NUMBERED = re.compile(r"(arabic|alphaLc|alphaUc|romanLc|romanUc)?\w*?(Period|ParenR|ParenBoth|Plain)")
_KINDS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman"}
TITLES = ("title", "ctrTitle")
"""Kinds of placeholders for the title of a slide."""


class Bullets:
    """Marks the paragraphs of one text, which must come in their order.

    styles: the list styles of its levels, the nearest first.
    """

    def __init__(self, styles: list[etree._Element]) -> None:
        self._styles = styles
        self._counts: dict[int, tuple[str, int]] = {}  # level -> kind of number, last number

    def mark(self, paragraph: etree._Element) -> str:
        """Return the bullet of a paragraph: "-", "--" on the second level, "3.", or ""."""
        properties = paragraph.find(f"{A}pPr")
        depth = "0" if properties is None else properties.get("lvl") or "0"
        level = int(depth) + 1 if re.fullmatch("[0-8]", depth) else 1
        sign = self._sign(properties, level)
        for deeper in [each for each in self._counts if each > level]:
            del self._counts[deeper]
        if sign is None or sign.tag != f"{A}buAutoNum":
            self._counts.pop(level, None)
            return "" if sign is None or sign.tag == f"{A}buNone" else "-" * level
        kind = f"{sign.get('type')} {sign.get('startAt')}"
        before, number = self._counts.get(level, ("", 0))
        number = number + 1 if before == kind else span(sign.get("startAt"), 32_767)
        self._counts[level] = kind, number
        return _numbered(number, sign.get("type") or "")

    def _sign(self, properties: etree._Element | None, level: int) -> etree._Element | None:
        said = (style.find(f"{A}lvl{level}pPr") for style in self._styles)
        for each in (properties, *said):
            for child in () if each is None else each:
                if child.tag in (f"{A}buNone", f"{A}buChar", f"{A}buAutoNum", f"{A}buBlip"):
                    return child
        return None


def _numbered(number: int, kind: str) -> str:
    match = _NUMBERED.match(kind)
    text = list_number(number, _KINDS.get((match and match[1]) or "", "decimal"))
    return {"ParenR": f"{text})", "ParenBoth": f"({text})"}.get((match and match[2]) or "", f"{text}.")


def list_styles(shape: Any) -> Iterator[etree._Element]:
    """Yield the list styles of a shape of python-pptx, the nearest first."""
    kind = placeholder_kind(shape._element) if hasattr(shape.part, "slide_layout") else ""  # notes have no layout
    above = shape
    while above is not None:
        yield from above._element.iterfind(f"{P}txBody/{A}lstStyle")
        above = getattr(above, "_base_placeholder", None) if kind else None
    if kind:
        master = shape.part.slide_layout.slide_master
        yield from master._element.iterfind(f"{P}txStyles/{P}{'titleStyle' if kind in TITLES else 'bodyStyle'}")


def placeholder_kind(element: etree._Element) -> str:
    """Return the kind of placeholder that a shape fills, such as "title"; "" for a free shape."""
    place = element.find(f"./*/{P}nvPr/{P}ph")
    return "" if place is None else place.get("type") or "obj"
