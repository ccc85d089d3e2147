"""What the sheets of an Excel workbook share: their names, the texts of their cells, the formats of their numbers.

Read by itself, as openpyxl opens no workbook whose styles it does not understand, and tells neither comments nor charts
nor which formulas have no result unless it holds every cell in memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from ingest.clean import joined, one_line, raised
from ingest.limits import Limits
from ingest.office.common import RELATED, says_yes
from ingest.office.number_formats import BUILT_IN
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
        ValueError: there is no workbook in it. TooLarge, or what `Package` raises.
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
        self.of_macs = any(says_yes(each, "date1904") for each in root.iterfind("{*}workbookPr"))
        # Written by a program that does not calculate: results of 0 are none.
        self.to_calculate = any(says_yes(each, "fullCalcOnLoad") for each in root.iterfind("{*}calcPr"))
        self.codes = _codes(package.xml(parts.get("styles", "")))
        self.people = {
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
    """The text of an `si`, `is` or `text`, on one line; how it is pronounced is left out."""
    return one_line(joined(_runs(item)))


def _runs(item: etree._Element) -> Iterator[str]:
    for run in item:
        if run.tag.endswith("}t"):
            yield unescaped(run.text)
        elif run.tag.endswith("}r"):
            above = run.find("{*}rPr/{*}vertAlign")
            text = unescaped(run.findtext("{*}t"))
            yield raised(text, linked=False) if above is not None and above.get("val") == "superscript" else text


def unescaped(text: str | None) -> str:
    """Text in which signs that XML cannot hold were written as "_x000D_"."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text or "")


def _codes(styles: etree._Element | None) -> dict[str, str]:
    """The codes of number formats, by the styles that cells name; "" shows a number plain."""
    own = {each.get("numFmtId"): each.get("formatCode") or "" for each in _all(styles, "numFmt")}
    used = [] if styles is None else [each.get("numFmtId") or "0" for each in styles.iterfind("{*}cellXfs/{*}xf")]
    return {
        str(style): own.get(each) or BUILT_IN.get(int(each) if re.fullmatch(r"\d{1,9}", each) else 0, "")
        for style, each in enumerate(used)
    }


def _all(root: etree._Element | None, tag: str) -> Iterator[etree._Element]:
    return iter(()) if root is None else root.iter(f"{{*}}{tag}")
