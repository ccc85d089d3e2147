"""DrawingML, which Word, PowerPoint and Excel share: paragraphs of text, diagrams (SmartArt) and charts.

A diagram or a chart is one line. Charts have the values that were saved with the file, in their number formats.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from lxml import etree

from ingest.clean import join_inline, one_line, superscript, tidy
from ingest.errors import BrokenFile
from ingest.markup.formulas import M, omml_text
from ingest.markup.xml import parse_xml
from ingest.office.common import RELATED
from ingest.office.number_formats import format_number, plain_number
from ingest.wording import listed

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
NEW_CHART = "{http://schemas.microsoft.com/office/drawing/2014/chartex}"  # waterfalls, treemaps, funnels

MOST_VALUES = 100
"""Values of a chart's series that are read, at most."""

_SAY_NOTHING = ("pres", "parTrans", "sibTrans")  # points of a diagram without text


class Drawings:
    """Reads the drawings of a file, each a part of its own, and counts the damaged ones."""

    def __init__(self) -> None:
        self.broken = 0

    def text(self, place: etree._Element, part: Callable[[str], bytes | None]) -> str:
        """Return the diagram or chart behind an element of DRAWING_ELEMENTS on one line; "" if it is missing.

        Args:
            place: the element.
            part: returns the bytes of a part by the id of its relation.
        """
        attribute, of = DRAWING_ELEMENTS[place.tag]
        data = part(place.get(attribute) or "")
        if data is None:
            return ""
        try:
            return of(parse_xml(data, "a drawing"))
        except BrokenFile:
            self.broken += 1
            return ""


def paragraph_text(paragraph: etree._Element) -> str:
    """Return the text of an `a:p`."""
    return tidy(join_inline(_runs(paragraph)))


def _runs(paragraph: etree._Element) -> Iterator[str]:
    for (above, linked), runs in groupby(paragraph, key=_raised):
        if above:
            yield superscript("".join(run.findtext(f"{A}t") or "" for run in runs), linked)
        else:
            yield from map(_run, runs)


def _raised(run: etree._Element) -> tuple[bool, bool]:
    """Return whether a run is superscript, and whether it is a link."""
    properties = run.find(f"{A}rPr")
    if properties is None:
        return False, False
    baseline = properties.get("baseline") or "0"
    return baseline.rstrip("%").isdecimal() and int(baseline.rstrip("%")) > 0, (
        properties.find(f"{A}hlinkClick") is not None
    )


def _run(run: etree._Element) -> str:
    if run.tag == f"{A}br":
        return "\n"
    if run.tag in (f"{A}r", f"{A}fld"):
        return run.findtext(f"{A}t") or ""
    return " ".join(map(omml_text, run.iter(f"{M}oMath")))


def diagram_text(data: etree._Element) -> str:
    """Return the text of a diagram from its data; "" if it has none."""
    points = (point for point in data.iter(f"{DIAGRAM}pt") if point.get("type") not in _SAY_NOTHING)
    return _in_line("diagram", map(_words, points))


def chart_text(chart: etree._Element) -> str:
    """Return the title of a chart and its series with their values; "" if it has none."""
    titles = [_words(title) or one_line(title.findtext(f".//{CHART}v") or "") for title in chart.iter(f"{CHART}title")]
    return _in_line("chart", [*titles, *map(_series, chart.iter(f"{CHART}ser"))])


def chartex_text(chart: etree._Element) -> str:
    """Return the same for the chart types of Office 2016, whose data are separate from their series."""
    data = {each.get("id"): each for each in chart.iter(f"{NEW_CHART}data")}
    said = [_words(title) for title in chart.iter(f"{NEW_CHART}title")]
    for series in chart.iter(f"{NEW_CHART}series"):
        named = one_line(series.findtext(f"{NEW_CHART}tx//{NEW_CHART}v") or "")
        which = series.find(f"{NEW_CHART}dataId")
        of = None if which is None else data.get(which.get("val"))
        said.append(named if of is None else _values(named, of, [f"{NEW_CHART}strDim"], [f"{NEW_CHART}numDim"]))
    return _in_line("chart", said)


DRAWING_ELEMENTS: dict[str, tuple[str, Callable[[etree._Element], str]]] = {
    f"{DIAGRAM}relIds": (f"{RELATED}dm", diagram_text),
    f"{CHART}chart": (f"{RELATED}id", chart_text),
    f"{NEW_CHART}chart": (f"{RELATED}id", chartex_text),
}
"""Elements that stand for a drawing -> the attribute that names its part, and the function that reads the part."""


def _in_line(kind: str, parts: Iterable[str]) -> str:
    said = "; ".join(filter(None, parts))
    return f" [{kind}: {said}] " if said else ""


def _words(element: etree._Element) -> str:
    return one_line(" ".join(map(paragraph_text, element.iter(f"{A}p"))))


def _series(series: etree._Element) -> str:
    """Return a series with its values: "Income: 2024 3.5, 2025 4"."""
    name = one_line(series.findtext(f"{CHART}tx//{CHART}v") or "")
    return _values(name, series, [f"{CHART}cat", f"{CHART}xVal"], [f"{CHART}val", f"{CHART}yVal"])


def _values(name: str, series: etree._Element, names: list[str], numbers: list[str]) -> str:
    """Return a series with its values. names, numbers: the child elements with the labels and values of points."""
    of = dict(_points(series, names))
    values = [f"{of.get(point, '')} {value}".strip() for point, value in _points(series, numbers)]
    return ": ".join(filter(None, [name, listed(values, MOST_VALUES)]))


def _points(series: etree._Element, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the index and the value of each point in the children of a series that have some names."""
    for part in (part for name in names for part in series.iterfind(name)):
        level = part.find(".//{*}lvl")  # the innermost of several
        code = part.findtext(f".//{CHART}formatCode") or ("" if level is None else level.get("formatCode")) or ""
        is_number = any(part.find(f".//{CHART}{kind}") is not None for kind in ("numCache", "numLit"))
        for point in (part if level is None else level).iter(f"{CHART}pt", f"{NEW_CHART}pt"):
            value = one_line(point.findtext(f"{CHART}v") or point.text or "")
            if is_number or part.tag == f"{NEW_CHART}numDim":
                value = format_number(value, code) if code else plain_number(value)
            yield point.get("idx") or "", value
