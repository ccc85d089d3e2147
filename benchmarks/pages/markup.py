"""Building blocks of sections: Markdown tables, row names, figures."""

from __future__ import annotations

from matplotlib import pyplot
from matplotlib.figure import Figure

from benchmarks.freshness import Row
from benchmarks.report import RESULTS

DOCS = RESULTS.parent.parent / "docs"


def length(tokens: int) -> str:
    """Return 2048 as 2K, 1048576 as 1M, 1920 as 1,920."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if tokens >= unit and tokens % unit == 0:
            return f"{tokens // unit}{letter}"
    return f"{tokens:,}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table from header and rows."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def marked(name: str, rows: list[Row]) -> str:
    """Return the name, with a dagger if a row has older weights or settings."""
    return name + " †" if any(row.get("earlier") for row in rows) else name


def right_answers(rows: list[Row]) -> str:
    """Return which answers a table counts: in earlier results only identical ones."""
    scored = {row.get("scored") for row in rows}
    if scored == {None}:
        return "exact answers"
    return "right answers, some counted only when exact" if None in scored else "right answers"


def label(row: Row) -> str:
    """Return method, budget, passages read again and number of parts, with a dagger if the row is older."""
    name = row["method"] if row["budget"] is None else f"{row['method']} {row['budget']}"
    again = ", reading again" if row.get("read_again") else ", page named" if row.get("page") else ""
    parts = f", in {row['parts']} parts" if row.get("parts") else ""
    return marked(name + again + parts, [row])


def percent(cells: list[Row]) -> str:
    """Return the accuracy of several rows together."""
    asked = sum(cell["asked"] for cell in cells)
    return f"{100 * sum(cell['correct'] for cell in cells) / asked:.0f}" if asked else ""


def save(figure: Figure, name: str) -> str:
    """Write a figure and return Markdown that shows it."""
    path = DOCS / "figures" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"![{name}](figures/{name}.svg)"
