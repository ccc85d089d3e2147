"""Lists and tables that a PDF marks in its structure tree, as a word processor writes it for screen readers."""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from ingest.print.lines import Line, LineBlock
from ingest.print.tables import row_line
from ingest.table import is_layout


@dataclass(frozen=True)
class Mark:
    """The element that a block of print belongs to: an item of a list, or a cell of a table."""

    item: int = 0  # number of the innermost item on the page, from 1
    table: int = 0  # number of the table on the page, from 1
    row: int = 0
    column: int = 0
    heading: bool = False  # of a row or a column


def is_tagged(document: Any) -> bool:
    """Return whether a PDF has a structure tree."""
    return bool(document.is_pdf and document.xref_get_key(document.pdf_catalog(), "StructTreeRoot")[0] != "null")


def flatten(page: dict[str, Any]) -> bool:
    """Put the marked blocks of a page in MuPDF's "dict" form in one list; return whether any is in a list or a table.

    Each gets a `Mark`, under the key "mark".
    """
    found: list[dict[str, Any]] = []
    items = tables = 0
    left = [(block, Mark()) for block in reversed(page["blocks"])]
    while left:
        block, mark = left.pop()
        if "blocks" not in block:
            found.append({**block, "mark": mark})
            continue
        match block.get("std"):
            case "LI":
                items += 1
                mark = replace(mark, item=items)
            case "Table":
                tables += 1
                mark = Mark(table=tables)
            case "TR" if mark.table:
                mark = replace(mark, row=block["index"] + 1 + (mark.row << 10), column=0)
            case "THead" | "TBody" | "TFoot" if mark.table:
                mark = replace(mark, row=block["index"] + 1)
            case "TD" | "TH" if mark.row:
                mark = replace(mark, column=block["index"] + 1, heading=block["std"] == "TH")
        left += [(inner, mark) for inner in reversed(block["blocks"])]
    page["blocks"] = found
    return any(block["mark"] != Mark() for block in found)


def with_marks(blocks: list[tuple[Mark, LineBlock]]) -> list[LineBlock]:
    """Return marked blocks as plain ones: rows of tables in one line each, items of lists in one block each."""
    tables: dict[int, list[tuple[Mark, Line]]] = defaultdict(list)
    for mark, lines in blocks:
        if mark.table:
            tables[mark.table] += [(mark, line) for line in lines]
    rows = {number: _rows(lines) for number, lines in tables.items()}
    plain: list[LineBlock] = []
    item = 0
    for mark, lines in blocks:
        if rows.get(mark.table):
            plain.append(rows.pop(mark.table))
        elif mark.table not in tables or mark.table in rows:  # not a row that is there already
            if mark.item and mark.item == item:
                plain[-1] = [*plain[-1], *lines]
            else:
                plain.append([replace(lines[0], item=bool(mark.item)), *lines[1:]])
        item = mark.item
    return plain


def _rows(lines: list[tuple[Mark, Line]]) -> LineBlock:
    """Return the rows of a table; none if it only lays out the page."""
    rows: dict[int, dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for mark, line in lines:
        rows[mark.row][mark.column].append(line)
    columns = sorted({column for row in rows.values() for column in row})
    texts = [[" ".join(line.text for line in row.get(column, ())) for column in columns] for row in rows.values()]
    if 0 in rows or is_layout(texts, headed=any(mark.heading for mark, _ in lines)):
        return []
    return [row_line([row.get(column, []) for column in columns]) for row in rows.values()]
