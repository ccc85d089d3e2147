"""Tables of a page: their rows as lines of cells, and tables that only lay a page out."""

from collections.abc import Callable, Iterator
from itertools import groupby, takewhile

from lxml import etree

from ingest.clean import one_line
from ingest.markup.html_elements import is_hidden, is_skipped, tag_of
from ingest.table import TALLEST, Cell, is_layout, span, table_lines

_PARTS = frozenset({"thead", "tbody", "tfoot", "tr"})
_CELLS = frozenset({"td", "th", "caption", "col", "colgroup"})

TextOf = Callable[[etree._Element], str]


def table_rows(table: etree._Element, text_of: TextOf) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of a table, its caption first, each with the ids of the elements in it.

    A line is "" if its row has no words. text_of: returns the text of an element on one line.
    """
    for caption in table.iter("caption"):
        if text := text_of(caption):
            yield text, []
    for text in filter(None, map(one_line, _outside_cells(table, text_of))):
        yield text, []
    # Cells outside a row, as in a head without one, form a row as long as they stand side by side.
    rows = [list(cells) for _, cells in groupby(table.iter("td", "th"), key=lambda cell: cell.getparent())]
    shown = [
        [] if _is_row_hidden(row[0], table) else [_cell(cell, text_of) for cell in row if not is_hidden(cell)]
        for row in rows
    ]
    for row, line in zip(rows, table_lines(shown), strict=True):
        elements = (row[0].getparent(), *(element for cell in row for element in cell.iter()))
        yield line, [str(each.get("id")) for each in elements if isinstance(each.tag, str) and each.get("id")]


def is_layout_table(table: etree._Element) -> bool:
    """Return whether a table arranges a page, as on old web pages: nested tables, or essays in its cells."""
    if table.find(".//table") is not None or table.find(".//h1") is not None:
        return True
    rows = [[" ".join("".join(cell.itertext()).split()) for cell in row.iter("td", "th")] for row in table.iter("tr")]
    return is_layout(rows, headed=table.find(".//th") is not None)


def _outside_cells(element: etree._Element, text_of: TextOf) -> Iterator[str]:
    """Yield the text of a table outside its cells, which browsers show before the table."""
    yield element.text or ""
    for child in element:
        tag = tag_of(child)
        if tag and not (tag in _CELLS or is_skipped(child, tag)):
            yield from _outside_cells(child, text_of) if tag in _PARTS else [text_of(child)]
        yield child.tail or ""


def _is_row_hidden(cell: etree._Element, table: etree._Element) -> bool:
    """Return whether the row of a cell, or an element between it and the table, is hidden."""
    between = takewhile(lambda ancestor: ancestor is not table, cell.iterancestors())
    return any(is_hidden(ancestor) for ancestor in between)


def _cell(element: etree._Element, text_of: TextOf) -> Cell:
    """Return a table cell with its extent."""
    return Cell(text_of(element), span(element.get("colspan")), span(element.get("rowspan"), TALLEST))
