"""Charts, diagrams, formulas, notes and comments of presentations."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from ingest import Document, ingest
from tests.ingest import makers
from tests.ingest.makers import check_invariants
from tests.ingest.office_makers import BLANK, SLIDE_NAMES, SLIDE_PART, fill_with, frame_xml, shape_xml, slides, text_box


def read(path: Path, *fill: Callable[[Any], None], layout: int = BLANK) -> Document:
    document = ingest(slides(path, *fill, layout=layout))
    check_invariants(document)
    return document


def test_charts_are_read_in_the_formats_of_their_numbers(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        data = CategoryChartData(number_format="0%")
        data.categories = ["Oil", "Gas"]
        data.add_series("Share", (0.25, 0.75))
        slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, Inches(5), Inches(4), data)

    assert read(tmp_path / "a.pptx", fill).text == "[chart: Share: Oil 25%, Gas 75%]"


def test_diagrams_and_new_kinds_of_charts_are_read(tmp_path: Path) -> None:
    """New charts stand among alternatives, which python-pptx skips."""
    new = frame_xml('<cx:chart r:id="rNew"/>')
    either = f'<mc:AlternateContent {SLIDE_NAMES}><mc:Choice Requires="cx1">{new}</mc:Choice><mc:Fallback>'
    either += (
        shape_xml("<a:p><a:r><a:t>Your program is too old.</a:t></a:r></a:p>") + "</mc:Fallback></mc:AlternateContent>"
    )
    old = f"<mc:AlternateContent {SLIDE_NAMES}><mc:Fallback>" + shape_xml("<a:p><a:r><a:t>Old.</a:t></a:r></a:p>")
    old += "</mc:Fallback></mc:AlternateContent>"
    path = slides(tmp_path / "a.pptx", fill_with(either, frame_xml('<dgm:relIds r:dm="rDiagram"/>'), old))
    points = "".join(
        f'<cx:{kind}Dim type="x"><cx:lvl formatCode="0%"><cx:pt idx="0">{first}</cx:pt><cx:pt idx="1">{second}</cx:pt>'
        f"</cx:lvl></cx:{kind}Dim>"
        for kind, first, second in (("str", "Oil", "Gas"), ("num", "0.25", "0.5"))
    )
    part = (
        f'<cx:chartSpace {SLIDE_NAMES}><cx:chartData><cx:data id="0">{points}</cx:data></cx:chartData><cx:chart>'
        "<cx:title>"
        "<a:p><a:r><a:t>Burnt</a:t></a:r></a:p></cx:title><cx:series><cx:tx><cx:txData><cx:v>Share</cx:v></cx:txData></cx:tx>"
        '<cx:dataId val="0"/></cx:series><cx:series><cx:tx><cx:txData><cx:v>Nothing</cx:v></cx:txData></cx:tx>'
        '<cx:dataId val="7"/></cx:series></cx:chart></cx:chartSpace>'
    )
    point = "<dgm:pt><dgm:t><a:p><a:r><a:t>{}</a:t></a:r></a:p></dgm:t></dgm:pt>"
    diagram = f"<dgm:dataModel {SLIDE_NAMES}>{point.format('Plan')}{point.format('Build')}</dgm:dataModel>"
    makers.with_part(path, SLIDE_PART, "http://x/chartEx", "ppt/charts/new.xml", part, "rNew")
    makers.with_part(path, SLIDE_PART, "diagramData", "ppt/diagrams/data.xml", diagram, "rDiagram")
    document = ingest(path)
    assert document.text == "[chart: Burnt; Share: Oil 25%, Gas 50%; Nothing]\n\n[diagram: Plan; Build]\n\nOld."
    assert document.warnings == ()
    makers.with_member(path, "ppt/diagrams/data.xml", b" ")
    assert ingest(path).warnings == ("Not read: 1 drawing that cannot be understood.",)


def test_formulas_are_read(tmp_path: Path) -> None:
    math = (
        "<a:p><a:r><a:t>So </a:t></a:r><a14:m><m:oMathPara><m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup>"
    )
    math += "<m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></m:oMathPara></a14:m></a:p>"
    either = f'<mc:AlternateContent {SLIDE_NAMES}><mc:Choice Requires="a14">{shape_xml(math)}</mc:Choice><mc:Fallback>'
    either += shape_xml("<a:p><a:r><a:t>a picture of it</a:t></a:r></a:p>") + "</mc:Fallback></mc:AlternateContent>"
    assert read(tmp_path / "a.pptx", fill_with(either)).text == "So x^2"


def test_notes_and_comments_stand_below(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        text_box(slide.shapes, "Oil is gone.", 1, 1)
        slide.notes_slide.notes_text_frame.text = "Pause here.\nThen go on."

    path = slides(tmp_path / "a.pptx", fill)
    old = "".join(
        f'<p:cm authorId="{author}"><p:text>{text}</p:text></p:cm>'
        for author, text in ((3, "Says\nwho?"), (9, "Yes."), (3, " "))
    )
    body = "<p188:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p188:txBody>"
    answer = f'<p188:replyLst><p188:reply authorId="B">{body.format("I do.")}</p188:reply></p188:replyLst>'
    new = f'<p188:cm authorId="A">{answer}{body.format("Whale oil?")}</p188:cm>'
    people = f'<p:cmAuthorLst {SLIDE_NAMES}><p:cmAuthor id="3" name="Anne"/></p:cmAuthorLst>'
    others = "".join(f'<p188:author id="{name[0]}" name="{name[1:]}"/>' for name in ("ABen", "BCleo"))
    for owner, kind, name, data in (
        (SLIDE_PART, "comments", "ppt/comments/comment1.xml", f"<p:cmLst {SLIDE_NAMES}>{old}</p:cmLst>"),
        (
            SLIDE_PART,
            "http://x/2018/comments",
            "ppt/comments/modern.xml",
            f"<p188:cmLst {SLIDE_NAMES}>{new}</p188:cmLst>",
        ),
        ("ppt/presentation.xml", "commentAuthors", "ppt/commentAuthors.xml", people),
        (
            "ppt/presentation.xml",
            "http://x/authors",
            "ppt/authors.xml",
            f"<p188:list {SLIDE_NAMES}>{others}</p188:list>",
        ),
    ):
        makers.with_part(path, owner, kind, name, data, f"r{len(name)}")
    assert ingest(path).text.split("\n\n") == [
        *("Oil is gone.", "Speaker notes:", "Pause here.", "Then go on."),
        *(
            "[comment by Anne: Says who?]",
            "[comment: Yes.]",
            "[comment by Ben: Whale oil?]",
            "[comment by Cleo: I do.]",
        ),
    ]


def test_notes_are_read_where_they_have_no_master(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        slide.notes_slide.notes_text_frame.text = "Pause here."

    path = slides(tmp_path / "a.pptx", fill)
    relations = "ppt/notesSlides/_rels/notesSlide1.xml.rels"
    with zipfile.ZipFile(path) as archive:
        known = archive.read(relations)
    without = re.sub(rb"<Relationship [^>]*notesMaster[^>]*/>", b"", known)
    assert without != known
    assert ingest(makers.with_member(path, relations, without)).text == "Speaker notes:\n\nPause here."
