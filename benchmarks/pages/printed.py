"""The section on PDFs, beside other programs that read them."""

from __future__ import annotations

from statistics import mean

from benchmarks.freshness import Row
from benchmarks.pages.markup import conditions, markdown

NAMES = {"stockpot": "Stockpot", "pymupdf4llm": "pymupdf4llm 2.0", "markitdown": "markitdown 0.1.9"}


def printed(rows: list[Row]) -> list[str]:
    """Return order, errors and lines of PDFs, by page and program."""
    programs = list(dict.fromkeys(row["program"] for row in rows))
    lines = []
    for made in (True, False):
        some = [row for row in rows if row["made"] == made]
        for name in dict.fromkeys(row["file"] for row in some):
            cells = {row["program"]: row for row in some if row["file"] == name}
            lines.append([name, *(_cell([cells[program]]) for program in programs)])
        means = (_cell([row for row in some if row["program"] == program]) for program in programs)
        lines.append([f"**mean of {'pages made here' if made else 'files of others'}**", *means])
    note = (
        f"{conditions(rows)} "
        "Each cell: order, Kendall's tau over known lines (1 as read, -1 backwards); errors, the edit distance in % of "
        "the whole text, for files of others the share of known beginnings that are not found; and for tables, lists "
        "and verse the share of rows, items and lines that stand on a line of their own. The pages made here have what "
        "people reported as read wrongly, and resemble those that Stockpot was corrected by. Files of others are "
        "judged by their first page. Stockpot is behind with notes at the foot of a page: it reads them where they are "
        "drawn, between the columns. The other programs ran with their defaults and without OCR. Signs of Markdown "
        "were removed. `python -m benchmarks.printed` measures it."
    )
    header = ["page", *(NAMES[program] for program in programs)]
    return ["## PDFs, beside other programs", note, markdown(header, lines)]


def _cell(rows: list[Row]) -> str:
    own_lines = [row["apart"] for row in rows if row["apart"] is not None]
    text = f"{mean(row['order'] for row in rows):.2f}, {mean(row['errors'] for row in rows):.1f} %"
    return f"{text}, {100 * mean(own_lines):.0f} % apart" if own_lines else text
