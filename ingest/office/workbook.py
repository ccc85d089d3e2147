"""An Excel workbook: the names of its sheets, shared strings and number formats.

openpyxl is not used: it refuses workbooks with unknown styles, and gives comments, charts and formulas without results
only if it holds every cell in memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from ingest.clean import join_inline, one_line, superscript
from ingest.limits import Limits
from ingest.office.common import RELATED, is_true
from ingest.office.number_formats import BUILT_IN_CODES
from ingest.office.package import Package
from ingest.sections import LONGEST_LABEL

_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")


@dataclass(frozen=True)
class Sheet:
    """A sheet of a workbook."""

    name: str
    part: str
    hidden: bool


class Workbook:
    """A workbook whose sheets are read one by one.

    Raises:
        ValueError: there is no workbook in the package.
        TooLarge: too many characters; or any error of `Package`.
    """

    def __init__(self, package: Package, name: str, limits: Limits) -> None:
        root = package.xml(package.main)
        if root is None:
            raise ValueError("no workbook in it")
        self.package = package
        relations = {
            identity: each for identity, each in package.relations(package.main).items() if not each.is_external
        }
        parts = {each.kind: each.target for each in relations.values()}
        self.sheets = [
            Sheet(
                one_line(each.get("name") or "")[:LONGEST_LABEL] or f"sheet {number}",
                "" if relation is None else relation.target,
                each.get("state") in ("hidden", "veryHidden"),
            )
            for number, each in enumerate(root.iterfind("{*}sheets/{*}sheet"), 1)
            for relation in [relations.get(each.get(f"{RELATED}id") or "")]
        ]
        self.lost = [sheet.name for sheet in self.sheets if not package.has(sheet.part)]
        self.date_1904 = any(is_true(each, "date1904") for each in root.iterfind("{*}workbookPr"))
        # The program that wrote the file does not calculate: a result of 0 is none.
        self.is_uncalculated = any(is_true(each, "fullCalcOnLoad") for each in root.iterfind("{*}calcPr"))
        self.number_codes = _codes(package.xml(parts.get("styles", "")))
        self.persons = {
            person.get("id"): one_line(person.get("displayName") or "")
            for person in _all(package.xml(parts.get("person", "")), "person")
        }
        self.strings: list[str] = []
        characters = 0
        for item in package.elements(parts.get("sharedStrings", ""), "si"):
            self.strings.append(rich_text(item))
            characters += len(self.strings[-1])
            limits.check(name, "characters", characters, limits.characters)


def rich_text(item: etree._Element) -> str:
    """Return the text of an `si`, `is` or `text` on one line, without its pronunciation."""
    return one_line(join_inline(_runs(item)))


def _runs(item: etree._Element) -> Iterator[str]:
    for run in item:
        if run.tag.endswith("}t"):
            yield decode_escapes(run.text)
        elif run.tag.endswith("}r"):
            above = run.find("{*}rPr/{*}vertAlign")
            text = decode_escapes(run.findtext("{*}t"))
            yield superscript(text, linked=False) if above is not None and above.get("val") == "superscript" else text


def decode_escapes(text: str | None) -> str:
    """Replace "_x000D_" by the character that XML cannot hold."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text or "")


def _codes(styles: etree._Element | None) -> dict[str, str]:
    """Return the number format of each cell style; "" for a plain number."""
    own = {each.get("numFmtId"): each.get("formatCode") or "" for each in _all(styles, "numFmt")}
    used = [] if styles is None else [each.get("numFmtId") or "0" for each in styles.iterfind("{*}cellXfs/{*}xf")]
    return {
        str(style): own.get(each) or BUILT_IN_CODES.get(int(each) if re.fullmatch(r"\d{1,9}", each) else 0, "")
        for style, each in enumerate(used)
    }


def _all(root: etree._Element | None, tag: str) -> Iterator[etree._Element]:
    return iter(()) if root is None else root.iter(f"{{*}}{tag}")
