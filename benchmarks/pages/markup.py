"""Building blocks of sections: Markdown tables, shares with intervals, row names, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from matplotlib import pyplot
from matplotlib.figure import Figure

from app.formatting import wilson
from benchmarks.freshness import Row
from benchmarks.report import RESULTS

DOCS = RESULTS.parent.parent / "docs"
FEW, MANY = 40, 1000  # questions: smaller cells are in italics; from many on a share has a decimal


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


def conditions(rows: list[Row]) -> str:
    """Return the model and the hardware of rows as the first sentence below a heading."""
    models, machines = (sorted({str(row[key]) for row in rows}) for key in ("model", "machine"))
    return f"Model: {', '.join(models)}. Hardware: {', '.join(machines)}."


def marked(name: str, rows: list[Row]) -> str:
    """Return the name, with a dagger if a row has older weights or settings."""
    return name + " †" if any(row.get("earlier") for row in rows) else name


def right_answers(rows: list[Row]) -> str:
    """Return when answers count as right: in earlier results only if they match word for word."""
    scored = {row.get("scored") for row in rows}
    matches, contains = "if they match word for word", "if they contain the value that was asked for"
    if len(scored) > 1:
        return f"{contains}, in some rows only {matches}"
    return matches if scored == {None} else contains


def label(row: Row) -> str:
    """Return method, budget, looks and ways of asking, with a dagger if the row is older."""
    name = row["method"] if row["budget"] is None else f"{row['method']} {row['budget']}"
    looks = row.get("settings", {}).get("looks", 1)
    many = f", {looks} looks" if looks > 1 else ""
    again = ", reading again" if row.get("read_again") else ", page named" if row.get("page") else ""
    parts = f", in {row['parts']} parts" if row.get("parts") else ""
    return marked(name + many + again + parts, [row])


def share(correct: int, asked: int) -> str:
    """Return a share in % with its 95 % interval and its count, in italics if the count is small."""
    if not asked:
        return "–"
    digits = 1 if asked >= MANY else 0
    mean, low, high = (f"{100 * part:.{digits}f}" for part in (correct / asked, *wilson(correct / asked, asked)))
    text = f"{mean} [{low}–{high}] of {asked:,}"
    return f"*{text}*" if asked < FEW else text


def percent(cells: Iterable[Row]) -> str:
    """Return the accuracy of several rows together."""
    rows = list(cells)
    return share(*(sum(row[key] for row in rows) for key in ("correct", "asked")))


def accuracy(rows: list[Row], named: Callable[[Row], str] = label) -> str:
    """Return a table of accuracy: names down, lengths across, all depths together."""
    lengths = sorted({row["tokens"] for row in rows})
    lines = [
        [name, *(percent(row for row in rows if named(row) == name and row["tokens"] == tokens) for tokens in lengths)]
        for name in dict.fromkeys(map(named, rows))
    ]
    return markdown(["", *map(length, lengths)], lines)


def save(figure: Figure, name: str) -> str:
    """Write a figure and return Markdown that shows it."""
    path = DOCS / "figures" / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return f"![{name}](figures/{name}.svg)"
