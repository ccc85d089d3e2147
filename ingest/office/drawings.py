"""DrawingML, which Word, PowerPoint and Excel share: paragraphs of text, diagrams (SmartArt) and charts.

A diagram or a chart is one line. Charts are read as they were when the file was saved, their numbers in their formats.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from lxml import etree

from ingest.clean import joined, one_line, raised, tidy
from ingest.document import listed
from ingest.errors import BrokenFile
from ingest.markup.formulas import M, of_word
from ingest.markup.xml import parse_xml
from ingest.office.common import RELATED
from ingest.office.number_formats import plain, shown

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
NEW_CHART = "{http://schemas.microsoft.com/office/drawing/2014/chartex}"  # waterfalls, treemaps, funnels

MOST_VALUES = 100
"""Of each series of a chart."""

_SAY_NOTHING = ("pres", "parTrans", "sibTrans")  # points of a diagram that arrange the others


class Drawings:
    """Reads the drawings of a file, each of which is a part of its own, and counts those that are damaged."""

    def __init__(self) -> None:
        self.broken = 0

    def words(self, place: etree._Element, part: Callable[[str], bytes | None]) -> str:
        """What the diagram or chart says that stands in a place (one of PLACES); "" where it is not there.

        part: gives the part that a relation leads to, by its id.
        """
        attribute, of = PLACES[place.tag]
        data = part(place.get(attribute) or "")
        if data is None:
            return ""
        try:
            return of(parse_xml(data, "a drawing"))
        except BrokenFile:
            self.broken += 1
            return ""


def paragraph_text(paragraph: etree._Element) -> str:
    """The words of an `a:p`."""
    return tidy(joined(_runs(paragraph)))


def _runs(paragraph: etree._Element) -> Iterator[str]:
    for (above, linked), runs in groupby(paragraph, key=_raised):
        if above:
            yield raised("".join(run.findtext(f"{A}t") or "" for run in runs), linked)
        else:
            yield from map(_run, runs)


def _raised(run: etree._Element) -> tuple[bool, bool]:
    """Whether it is superscript, and whether it is a link."""
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
    return " ".join(map(of_word, run.iter(f"{M}oMath")))


def of_diagram(data: etree._Element) -> str:
    """The words of a diagram, from its data; "" where it has none."""
    points = (point for point in data.iter(f"{DIAGRAM}pt") if point.get("type") not in _SAY_NOTHING)
    return _in_line("diagram", map(_words, points))


def of_chart(chart: etree._Element) -> str:
    """The title of a chart and its series with their values; "" where it has none."""
    titles = [_words(title) or one_line(title.findtext(f".//{CHART}v") or "") for title in chart.iter(f"{CHART}title")]
    return _in_line("chart", [*titles, *map(_series, chart.iter(f"{CHART}ser"))])


def of_new_chart(chart: etree._Element) -> str:
    """The same of a kind of chart that Office 2016 brought, in which the data stand apart from the series."""
    data = {each.get("id"): each for each in chart.iter(f"{NEW_CHART}data")}
    said = [_words(title) for title in chart.iter(f"{NEW_CHART}title")]
    for series in chart.iter(f"{NEW_CHART}series"):
        named = one_line(series.findtext(f"{NEW_CHART}tx//{NEW_CHART}v") or "")
        which = series.find(f"{NEW_CHART}dataId")
        of = None if which is None else data.get(which.get("val"))
        said.append(named if of is None else _values(named, of, [f"{NEW_CHART}strDim"], [f"{NEW_CHART}numDim"]))
    return _in_line("chart", said)


PLACES: dict[str, tuple[str, Callable[[etree._Element], str]]] = {
    f"{DIAGRAM}relIds": (f"{RELATED}dm", of_diagram),
    f"{CHART}chart": (f"{RELATED}id", of_chart),
    f"{NEW_CHART}chart": (f"{RELATED}id", of_new_chart),
}
"""Elements in whose place a drawing stands: which attribute names its part, and what reads that."""


def _in_line(kind: str, parts: Iterable[str]) -> str:
    said = "; ".join(filter(None, parts))
    return f" [{kind}: {said}] " if said else ""


def _words(element: etree._Element) -> str:
    return one_line(" ".join(map(paragraph_text, element.iter(f"{A}p"))))


def _series(series: etree._Element) -> str:
    """A series: "Income: 2024 3.5, 2025 4"."""
    name = one_line(series.findtext(f"{CHART}tx//{CHART}v") or "")
    return _values(name, series, [f"{CHART}cat", f"{CHART}xVal"], [f"{CHART}val", f"{CHART}yVal"])


def _values(name: str, series: etree._Element, names: list[str], numbers: list[str]) -> str:
    """names, numbers: in which children the points have what they are called, and what they are."""
    of = dict(_points(series, names))
    values = [f"{of.get(point, '')} {value}".strip() for point, value in _points(series, numbers)]
    return ": ".join(filter(None, [name, listed(values, MOST_VALUES)]))


def _points(series: etree._Element, names: list[str]) -> Iterator[tuple[str, str]]:
    """Number and value of each point in the parts of a series that have these names."""
    for part in (part for name in names for part in series.iterfind(name)):
        level = part.find(".//{*}lvl")  # of several, the innermost
        code = part.findtext(f".//{CHART}formatCode") or ("" if level is None else level.get("formatCode")) or ""
        is_number = any(part.find(f".//{CHART}{kind}") is not None for kind in ("numCache", "numLit"))
        for point in (part if level is None else level).iter(f"{CHART}pt", f"{NEW_CHART}pt"):
            value = one_line(point.findtext(f"{CHART}v") or point.text or "")
            if is_number or part.tag == f"{NEW_CHART}numDim":
                value = shown(value, code) if code else plain(value)
            yield point.get("idx") or "", value
