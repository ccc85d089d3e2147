"""What the drawings of Word documents say: diagrams (SmartArt) and charts, each on one line."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from lxml import etree

from ingest.clean import one_line
from ingest.document import listed

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"

MOST_VALUES = 100
"""Of each series of a chart."""

_FIRST_DAY = datetime(1899, 12, 30)  # of the days that sheets count
_PLAIN = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')  # in the code of a format, what is shown as it is
_SAY_NOTHING = ("pres", "parTrans", "sibTrans")  # points of a diagram that arrange the others


def of_diagram(data: etree._Element) -> str:
    """The words of a diagram, from its data; "" where it has none."""
    points = (point for point in data.iter(f"{DIAGRAM}pt") if point.get("type") not in _SAY_NOTHING)
    return _in_line("diagram", [_words(point) for point in points])


def of_chart(chart: etree._Element) -> str:
    """The title of a chart and its series with their values, as they were when it was saved; "" where it has none."""
    titles = [_words(title) or one_line(title.findtext(f".//{CHART}v") or "") for title in chart.iter(f"{CHART}title")]
    return _in_line("chart", [*titles, *map(_series, chart.iter(f"{CHART}ser"))])


def _in_line(kind: str, parts: list[str]) -> str:
    said = "; ".join(part for part in parts if part)
    return f" [{kind}: {said}] " if said else ""


def _words(element: etree._Element) -> str:
    paragraphs = ("".join(text.text or "" for text in each.iter(f"{A}t")) for each in element.iter(f"{A}p"))
    return one_line(" ".join(paragraphs))


def _series(series: etree._Element) -> str:
    """A series: "Income: 2024 3.5, 2025 4"."""
    name = one_line(series.findtext(f"{CHART}tx//{CHART}v") or "")
    of = dict(_points(series, "cat", "xVal"))
    values = [f"{of.get(point, '')} {value}".strip() for point, value in _points(series, "val", "yVal")]
    return ": ".join(filter(None, [name, listed(values, MOST_VALUES)]))


def _points(series: etree._Element, *names: str) -> Iterator[tuple[str, str]]:
    """Number and value of each point in the parts of a series that have these names."""
    for part in (part for name in names for part in series.iterfind(f"{CHART}{name}")):
        level = part.find(f".//{CHART}lvl")  # of several, the innermost
        dated = re.search("[dy]", _PLAIN.sub("", part.findtext(f".//{CHART}formatCode") or ""), re.IGNORECASE)
        numbers = part.find(f".//{CHART}numCache") is not None or part.find(f".//{CHART}numLit") is not None
        for point in (part if level is None else level).iter(f"{CHART}pt"):
            value = one_line(point.findtext(f"{CHART}v") or "")
            yield point.get("idx") or "", _shown(value, bool(dated)) if numbers else value


def _shown(value: str, dated: bool) -> str:
    """A number without the last digits of its binary form, 4.3 and not 4.2999999999999998; a day as a date."""
    try:
        if dated:
            return str((_FIRST_DAY + timedelta(days=float(value))).date())
        return value if re.fullmatch(r"-?\d+", value) else f"{float(value):.15g}"
    except (ValueError, OverflowError):
        return value
