"""The numbers of lists; those that Word writes before paragraphs and headings are counted, not stored.

Left out: numbers in other alphabets and in words, which are written in digits, and pictures.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lxml import etree

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
DEEPEST = 8  # the last level of a list; the first is 0
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc")),
    *((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


@dataclass(frozen=True)
class _Level:
    start: int
    kind: str
    text: str  # "%1.%2)": the numbers of the first and the second level
    restart: int | None  # after which level, counted from 1, it begins anew; 0: never; None: after any above
    digits: bool  # all its numbers are written in digits
    style: str | None  # paragraphs of this style stand here


@dataclass(frozen=True)
class _List:
    levels: dict[int, _Level]
    counted_as: str  # lists with the same count on
    anew: frozenset[int]  # levels that begin anew with the list's first paragraph


class Numbering:
    """Counts the paragraphs of one document, which must be asked about in their order.

    Args:
        root: the package's numbering, None where it has none.
        styles: style id -> its element.
    """

    def __init__(self, root: etree._Element | None, styles: Mapping[str, etree._Element]) -> None:
        self._styles = styles
        self._lists: dict[str, _List] = {}
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[str] = set()
        if root is None:
            return
        patterns = {each.get(f"{W}abstractNumId"): each for each in root.iterfind(f"{W}abstractNum")}
        linked = {link: each for each in patterns.values() if (link := value(each.find(f"{W}styleLink")))}
        for number in root.iterfind(f"{W}num"):
            pattern = patterns.get(value(number.find(f"{W}abstractNumId")))
            if pattern is not None:
                pattern = linked.get(value(pattern.find(f"{W}numStyleLink")) or "", pattern)
                self._lists[number.get(f"{W}numId") or ""] = _list(number, pattern)

    def mark(self, properties: etree._Element | None, style: str | None) -> tuple[int, str] | None:
        """Level and number of the next paragraph: (1, "2.1"); with "" for a bullet. None if it is in no list.

        Args:
            properties: the paragraph's `w:pPr`.
            style: id of its style.
        """
        identity, level = self._place(properties, style)
        if identity is None or identity == "0":  # 0 takes a paragraph out of the list of its style
            return None
        known = self._lists.get(identity)
        if known is None or level not in known.levels:
            return level, ""
        self._count(identity, known, level)
        this = known.levels[level]
        if this.kind == "bullet":
            return level, ""
        text = re.sub(r"%([1-9])", lambda found: self._number(known, int(found[1]) - 1, this.digits), this.text)
        return (level, text.strip()) if text.strip() else None

    def _place(self, properties: etree._Element | None, style: str | None) -> tuple[str | None, int]:
        """The list and level of a paragraph, by itself or by the style that it has, or that this one is based on."""
        own = None if properties is None else properties.find(f"{W}numPr")
        identity, level = _named(own)
        seen: set[str | None] = set()
        for each in with_bases(self._styles, style):
            if identity is not None:
                break
            seen.add(each.get(f"{W}styleId"))
            identity, by_style = _named(each.find(f"{W}pPr/{W}numPr"))
            if identity is not None and identity in self._lists and level is None:
                levels = self._lists[identity].levels
                level = next((each for each, this in levels.items() if this.style in seen), by_style)
        return identity, min(level or 0, DEEPEST)

    def _count(self, identity: str, known: _List, level: int) -> None:
        counts = self._counts.setdefault(known.counted_as, {})
        if identity not in self._begun:
            self._begun.add(identity)
            for each in known.anew:
                counts.pop(each, None)
        counts[level] = counts[level] + 1 if level in counts else known.levels[level].start
        for deeper, this in known.levels.items():
            if deeper > level and (this.restart is None or level < this.restart):
                counts.pop(deeper, None)

    def _number(self, known: _List, level: int, digits: bool) -> str:
        if level not in known.levels:
            return ""
        this = known.levels[level]
        number = self._counts[known.counted_as].get(level, this.start)
        return written(number, "decimal" if digits else this.kind)


def with_bases(styles: Mapping[str, etree._Element], style: str | None) -> Iterator[etree._Element]:
    """A style, the one that it is based on, and so on."""
    seen: set[str] = set()
    while style and style not in seen and style in styles:
        seen.add(style)
        yield styles[style]
        style = value(styles[style].find(f"{W}basedOn"))


def value(element: etree._Element | None) -> str | None:
    """What an element of Word's markup says."""
    return None if element is None else element.get(f"{W}val")


def is_on(element: etree._Element | None) -> bool:
    """Whether a property of Word's that is on or off is on: it is there, and does not say otherwise."""
    return element is not None and value(element) not in ("0", "false", "off")


def _whole(element: etree._Element | None) -> int | None:
    text = value(element) or ""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def _named(properties: etree._Element | None) -> tuple[str | None, int | None]:
    if properties is None:
        return None, None
    return value(properties.find(f"{W}numId")), _whole(properties.find(f"{W}ilvl"))


def _list(number: etree._Element, pattern: etree._Element) -> _List:
    levels = dict(_level(each) for each in pattern.iterfind(f"{W}lvl"))
    anew = set()
    for override in number.iterfind(f"{W}lvlOverride"):
        if (own := override.find(f"{W}lvl")) is not None:
            levels.update([_level(own)])
        level, start = override.get(f"{W}ilvl") or "", _whole(override.find(f"{W}startOverride"))
        if start is not None and level.isdecimal() and int(level) in levels:
            levels[int(level)] = replace(levels[int(level)], start=start)
            anew.add(int(level))
    return _List(levels, pattern.get(f"{W}abstractNumId") or "", frozenset(anew))


def _level(element: etree._Element) -> tuple[int, _Level]:
    index = element.get(f"{W}ilvl") or ""
    start = _whole(element.find(f"{W}start"))
    return int(index) if index.isdecimal() else 0, _Level(
        start=0 if start is None else start,
        kind=value(element.find(f"{W}numFmt")) or "decimal",
        text=value(element.find(f"{W}lvlText")) or "",
        restart=_whole(element.find(f"{W}lvlRestart")),
        digits=is_on(element.find(f"{W}isLgl")),
        style=value(element.find(f"{W}pStyle")),
    )


def written(number: int, kind: str) -> str:
    """A number of a list as Word calls the kinds: "lowerLetter" is "c", "upperRoman" is "III"; in digits if unknown."""
    match kind:
        case "none":
            return ""
        case "decimalZero":
            return f"{number:02}"
        case "lowerLetter" | "upperLetter" if 0 < number <= 26 * 9:  # z is followed by aa, bb
            text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        case "lowerRoman" | "upperRoman" if 0 < number < 4000:
            text = ""
            for size, letters in _ROMAN:
                text += letters * (number // size)
                number %= size
        case _:
            return str(number)
    return text.upper() if kind.startswith("upper") else text
