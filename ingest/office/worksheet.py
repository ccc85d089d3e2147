"""One sheet of an Excel workbook: its rows, streamed, as there may be a million, and what lies over them.

Numbers come in the formats in which they are shown, formulas as the results that were saved with them; one without a
result is written out. Comments stand with what they are on. What is hidden or filtered out is read as well.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from lxml import etree

from ingest.clean import commented, one_line, pictured
from ingest.office.common import MC
from ingest.office.drawings import PLACES, A, Drawings, paragraph_text
from ingest.office.grid import Row, Value
from ingest.office.number_formats import plain, shown
from ingest.office.workbook import Sheet, Workbook, rich_text, unescaped

_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")


class Worksheet:
    """Reads one sheet: `rows` first, to their end, then `beside`."""

    def __init__(self, book: Workbook, sheet: Sheet) -> None:
        self.uncalculated = 0  # formulas without a result
        self.lost: list[str] = []  # cells whose text is not in the file
        self._book, self._part = book, sheet.part
        self._relations = book.package.relations(sheet.part)
        self._comments: dict[int, dict[int, str]] = {}  # by row and column, until they were read
        for reference, text in self._commented():
            match = _REFERENCE.fullmatch(reference)
            row, column = (int(match[2]), _column(match[1])) if match else (0, 0)
            before = self._comments.setdefault(row, {}).get(column)
            self._comments[row][column] = f"{before} {text}" if before else text

    @property
    def embeds(self) -> bool:
        """Whether there are files within the sheet."""
        return any(relation.kind in ("oleObject", "package") for relation in self._relations.values())

    def rows(self) -> Iterator[Row]:
        """The rows that have words."""
        number = 0
        for row in self._book.package.elements(self._part, "row", until="sheetData"):
            said = row.get("r") or ""
            number = max(int(said), number + 1) if re.fullmatch(r"\d{1,7}", said) else number + 1
            if values := dict(self._values(row, self._comments.pop(number, {}))):
                yield Row(number, values)

    def beside(self, drawings: Drawings) -> Iterator[str]:
        """Paragraphs that stand in no row: text boxes, pictures, diagrams and charts, comments on what is empty."""
        for name, root in self._roots("drawing"):
            yield from _drawn(root, drawings, self._book.package.related(self._book.package.relations(name)))
        for comments in self._comments.values():
            yield from comments.values()

    def _roots(self, kind: str) -> Iterator[tuple[str, etree._Element]]:
        """The parts of a kind to which the sheet leads, by their names."""
        for each in self._relations.values():
            if each.kind == kind and not each.is_external and (root := self._book.package.xml(each.target)) is not None:
                yield each.target, root

    def _values(self, row: etree._Element, comments: dict[int, str]) -> Iterator[tuple[int, Value]]:
        column = 0
        for cell in row:
            column = _column((cell.get("r") or "").rstrip("0123456789")) or column + 1
            text, is_number = self._value(cell) if len(cell) else ("", False)
            if column in comments:
                text = f"{text} {comments.pop(column)}".strip()
            if text:
                yield column, Value(text, is_number, cell.get("s") or "")
        for column, text in comments.items():  # there may be no such cell
            yield column, Value(text)

    def _value(self, cell: etree._Element) -> tuple[str, bool]:
        """What a cell shows, and whether that is a number, a day or a truth value."""
        kind, raw, formula = cell.get("t") or "n", "", None
        for part in cell:
            if part.tag.endswith("}v"):
                raw = part.text or ""
            elif part.tag.endswith("}f"):
                formula = part
            elif part.tag.endswith("}is"):
                return rich_text(part), False
        without = not raw or (raw == "0" and self._book.to_calculate)
        if formula is not None and kind != "str" and without:  # as a string, an empty one is a result
            self.uncalculated += 1
            return (one_line(f"={formula.text}") if formula.text else ""), False
        if not raw:
            return "", False
        match kind:
            case "n":
                code = self._book.codes.get(cell.get("s") or "0")
                return (shown(raw, code, self._book.of_macs) if code else plain(raw)), True
            case "s":
                return self._string(raw, cell.get("r") or "a cell"), False
            case "b":
                return ("TRUE" if raw == "1" else "FALSE"), True
            case "d":
                return raw.replace("T", " ").removesuffix(" 00:00:00"), True
        return one_line(unescaped(raw)), False

    def _string(self, number: str, cell: str) -> str:
        strings = self._book.strings
        if re.fullmatch(r"\s*\d{1,9}\s*", number) and int(number) < len(strings):
            return strings[int(number)]
        self.lost.append(cell)
        return ""

    def _commented(self) -> Iterator[tuple[str, str]]:
        """The cells that comments are on, and the comments."""
        threaded = set()
        for _, root in self._roots("threadedComment"):
            for comment in root.iter("{*}threadedComment"):
                threaded.add(comment.get("ref"))
                author = self._book.people.get(comment.get("personId"), "")
                yield comment.get("ref") or "", commented(author, one_line(comment.findtext("{*}text") or ""))
        for _, root in self._roots("comments"):
            authors = {str(index): one_line(each.text or "") for index, each in enumerate(root.iter("{*}author"))}
            for comment in root.iter("{*}comment"):
                author = authors.get(comment.get("authorId"), "")
                text = " ".join(map(rich_text, comment.iterfind("{*}text"))).removeprefix(f"{author}:").strip()
                if text and comment.get("ref") not in threaded:  # else it says to older programs what the thread does
                    yield comment.get("ref") or "", commented(author, text)


def _drawn(root: etree._Element, drawings: Drawings, part: Callable[[str], bytes | None]) -> Iterator[str]:
    steps = etree.iterwalk(root, events=("start",))
    for _, element in steps:
        if element.tag == f"{MC}Fallback":
            steps.skip_subtree()
        elif element.tag == f"{A}p":
            yield paragraph_text(element)
        elif element.tag in PLACES:
            yield drawings.words(element, part)
        elif str(element.tag).endswith("}cNvPr"):
            yield pictured(element.get("descr"))


@lru_cache(maxsize=20_000)
def _column(letters: str) -> int:
    """The number of a column, 2 of "B"; 0 where there is no such."""
    number = 0
    for letter in letters if re.fullmatch("[A-Z]{1,3}", letters) else "":
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
