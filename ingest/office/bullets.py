"""What stands before the paragraphs of a slide: bullets by their level, and numbers, which are counted, not stored.

Whether a paragraph has any is said by itself, by its shape, or by what the shape takes the place of in the layout and
the master. Left out: numbers in other alphabets, which are written in digits, and what signs bullets are.
"""

import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from ingest.office.drawings import A
from ingest.office.numbering import written
from ingest.table import span

P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"

_NUMBERED = re.compile(r"(arabic|alphaLc|alphaUc|romanLc|romanUc)?\w*?(Period|ParenR|ParenBoth|Plain)")
_KINDS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman"}
TITLES = ("title", "ctrTitle")
"""Kinds of places that hold the title of a slide."""


class Bullets:
    """Marks the paragraphs of one text, which must be asked about in their order.

    styles: what says how its levels look, the nearest first.
    """

    def __init__(self, styles: list[etree._Element]) -> None:
        self._styles = styles
        self._counts: dict[int, tuple[str, int]] = {}  # of the levels that are being counted: in which way, how far

    def mark(self, paragraph: etree._Element) -> str:
        """What stands before a paragraph: "-", "--" on the second level, "3."; "" where nothing does."""
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
    text = written(number, _KINDS.get((match and match[1]) or "", "decimal"))
    return {"ParenR": f"{text})", "ParenBoth": f"({text})"}.get((match and match[2]) or "", f"{text}.")


def styles_of(shape: Any) -> Iterator[etree._Element]:
    """What says how the paragraphs of a shape look, the nearest first. shape: as python-pptx has it."""
    kind = placeholder_kind(shape._element) if hasattr(shape.part, "slide_layout") else ""  # notes have no layout
    above = shape
    while above is not None:
        yield from above._element.iterfind(f"{P}txBody/{A}lstStyle")
        above = getattr(above, "_base_placeholder", None) if kind else None
    if kind:
        master = shape.part.slide_layout.slide_master
        yield from master._element.iterfind(f"{P}txStyles/{P}{'titleStyle' if kind in TITLES else 'bodyStyle'}")


def placeholder_kind(element: etree._Element) -> str:
    """What a shape is the place of in its layout, as "title"; "" where it has been put there freely."""
    place = element.find(f"./*/{P}nvPr/{P}ph")
    return "" if place is None else place.get("type") or "obj"
