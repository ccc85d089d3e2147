"""OpenDocument sheets (ODS, and FODS in one XML file): a sheet is a section, as in XLSX.

Cells come as they are shown, formulas as the results saved with them. Comments stand in their cells. Hidden sheets and
rows are read. Warnings name charts and other embedded objects, and count formulas without results.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from lxml import etree

from ingest.clean import comment_text, one_line
from ingest.conversion import Content, ConvertOptions
from ingest.office.common import empty_document
from ingest.office.grid import Row, Value
from ingest.office.odf import DC, DRAW, OFFICE, TABLE, TEXT, OdfFile, read_odf
from ingest.office.odf_walk import OdfWalk, table_rows
from ingest.office.sheets import SheetPages, uncalculated_warning
from ingest.sections import join_blocks, with_distinct_labels
from ingest.table import span
from ingest.wording import count

LAST_ROW, LAST_COLUMN = 1 << 20, 1 << 14  # of the largest sheets
_CELLS = (f"{TABLE}table-cell", f"{TABLE}covered-table-cell")
_NUMBERS = ("float", "percentage", "currency", "date", "time", "boolean")
_VALUES = ("string-value", "value", "date-value", "time-value", "boolean-value")


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an OpenDocument sheet to sections of rows.

    Raises:
        BrokenFile: it is damaged.
        TooLarge: too many bytes or characters.
        EmptyDocument: no text in any sheet.
    """
    return read_odf(path, options.limits, "spreadsheet", _read)


def _read(file: OdfFile) -> Content:
    sheets, walk = SheetPages(file.name, file.limits), OdfWalk(file)
    uncalculated = 0
    for number, table in enumerate(file.body.iterfind(f"{TABLE}table"), 1):
        sheet = _Sheet(table, walk)
        name = one_line(table.get(f"{TABLE}name") or f"Sheet {number}")
        hidden = file.styles.property("table", table.get(f"{TABLE}style-name"), f"{TABLE}display") == "false"
        sheets.add(name, hidden, sheet.rows(), sheet.loose_texts())
        uncalculated += sheet.uncalculated
    warnings = [*dict.fromkeys(file.xml_warnings), *sheets.hidden_warning(), *walk.embedded_warning()]
    if uncalculated:
        warnings.append(uncalculated_warning(count(uncalculated, "formula")))
    if not sheets.pages:
        raise empty_document(file.name, warnings)
    return Content(with_distinct_labels(sheets.pages, [""] * len(sheets.pages)), sheets.toc, [file.title], warnings)


class _Sheet:
    """Reads one sheet: first `rows`, to their end, then `loose_texts`."""

    def __init__(self, table: etree._Element, walk: OdfWalk) -> None:
        self.uncalculated = 0  # formulas without a result
        self._table, self._walk = table, walk
        self._drawn: list[str] = []  # texts of boxes over the cells

    def rows(self) -> Iterator[Row]:
        """Yield the rows that have words."""
        number = 0
        for row in table_rows(self._table):
            repeated = span(row.get(f"{TABLE}number-rows-repeated"), LAST_ROW)
            values = dict(self._values(row))
            for each in range(number + 1, min(number + repeated, LAST_ROW) + 1 if values else 0):
                yield Row(each, values)
            number += repeated

    def loose_texts(self) -> Iterator[str]:
        """Yield the text outside of rows: boxes and shapes."""
        shapes = self._table.iterfind(f"{TABLE}shapes")
        return chain(self._drawn, (join_blocks(self._walk.blocks(each)) for each in shapes))

    def _values(self, row: etree._Element) -> Iterator[tuple[int, Value]]:
        column = 0
        for cell in row.iterchildren(*_CELLS):
            repeated = span(cell.get(f"{TABLE}number-columns-repeated"), LAST_COLUMN)
            if text := self._text(cell):
                is_number = cell.get(f"{OFFICE}value-type") in _NUMBERS
                value = Value(text, is_number, cell.get(f"{TABLE}style-name") or "")
                for each in range(column + 1, min(column + repeated, LAST_COLUMN) + 1):
                    yield each, value
            column += repeated

    def _text(self, cell: etree._Element) -> str:
        shown = join_blocks(self._walk.blocks(cell.iterchildren(f"{TEXT}p", f"{TEXT}list")))
        if not shown:
            shown = next(filter(None, (cell.get(f"{OFFICE}{name}") for name in _VALUES)), "")
        if not shown and (formula := cell.get(f"{TABLE}formula")):
            self.uncalculated += 1
            shown = formula.partition(":")[2] or formula
        comments = [
            comment_text(one_line(each.findtext(f"{DC}creator") or ""), one_line(join_blocks(self._walk.blocks(each))))
            for each in cell.iterfind(f"{OFFICE}annotation")
        ]
        self._drawn += [join_blocks(self._walk.blocks([each])) for each in cell if str(each.tag).startswith(DRAW)]
        return one_line(" ".join([shown, *comments]))
