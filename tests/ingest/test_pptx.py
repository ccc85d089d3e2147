"""Presentations: a slide is a page, and what is on it is read in the order in which people look at it."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pptx
import pymupdf
import pytest
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml
from pptx.util import Inches

from ingest import BrokenFile, Document, EmptyDocument, Limits, TooLarge, ingest
from ingest.print.reading_order import Box, in_reading_order
from tests.ingest import makers
from tests.ingest.test_golden import check_invariants

TITLE, CONTENT, COMPARISON, ONLY_TITLE, BLANK = 0, 1, 4, 5, 6  # layouts
SLIDE = "ppt/slides/slide1.xml"
NAMES = " ".join(
    (
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"',
        'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"',
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"',
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"',
        'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"',
        'xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main"',
        'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"',
        'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"',
        'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex"',
        'xmlns:p188="http://schemas.microsoft.com/office/powerpoint/2018/8/main"',
    )
)
PNG = pymupdf.Pixmap(pymupdf.csGRAY, (0, 0, 4, 4)).tobytes("png")
TYPES = "application/vnd.openxmlformats-officedocument.presentationml"


def slides(path: Path, *fill: Callable[[Any], None], layout: int = BLANK, title: str = "") -> Path:
    """A presentation of a slide for each function, which fills it."""
    presentation = pptx.Presentation()
    presentation.core_properties.title = title
    for each in fill:
        each(presentation.slides.add_slide(presentation.slide_layouts[layout]))
    presentation.save(str(path))
    return path


def read(path: Path, *fill: Callable[[Any], None], layout: int = BLANK) -> Document:
    document = ingest(slides(path, *fill, layout=layout))
    check_invariants(document)
    return document


def box(shapes: Any, text: str, left: float, top: float, width: float = 2, height: float = 0.5) -> Any:
    """A text box; places are in inches, on a slide of 10 to 7.5."""
    added = shapes.add_textbox(Inches(left), Inches(top), Inches(width), Inches(height))
    added.text_frame.text = text
    return added


def picture(slide: Any, left: float, top: float, width: float = 1, height: float = 1) -> Any:
    return slide.shapes.add_picture(io.BytesIO(PNG), Inches(left), Inches(top), Inches(width), Inches(height))


def shape(body: str) -> str:
    """A text box whose paragraphs are the markup given."""
    return (
        f'<p:sp {NAMES}><p:nvSpPr><p:cNvPr id="9" name="T"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr><a:xfrm>'
        f'<a:off x="0" y="0"/><a:ext cx="99" cy="99"/></a:xfrm></p:spPr><p:txBody><a:bodyPr/>{body}</p:txBody></p:sp>'
    )


def frame(data: str) -> str:
    return (
        f'<p:graphicFrame {NAMES}><p:nvGraphicFramePr><p:cNvPr id="9" name="F"/><p:cNvGraphicFramePr/><p:nvPr/>'
        '</p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="99" cy="99"/></p:xfrm><a:graphic>'
        f"<a:graphicData>{data}</a:graphicData></a:graphic></p:graphicFrame>"
    )


def markup(*shapes: str) -> Callable[[Any], None]:
    """Fills a slide with shapes."""

    def fill(slide: Any) -> None:
        for each in shapes:
            slide.shapes._spTree.append(parse_xml(each))

    return fill


def test_a_slide_is_a_page(tmp_path: Path) -> None:
    def first(slide: Any) -> None:
        slide.shapes.title.text, slide.placeholders[1].text = "The Lamps\nof 2024", "Anne Lee\nHarbour Office"

    def second(slide: Any) -> None:
        slide.placeholders[1].text = "Nobody named it"

    def third(slide: Any) -> None:
        slide.shapes.title.text, slide.placeholders[1].text = "Costs", ""

    document = ingest(slides(tmp_path / "a.pptx", first, second, third, layout=TITLE))
    assert (document.title, document.format, document.warnings) == ("The Lamps of 2024", "pptx", ())
    assert [(page.label, page.text) for page in document.pages] == [
        ("slide 1: The Lamps of 2024", "The Lamps\n\nof 2024\n\nAnne Lee\n\nHarbour Office"),
        ("slide 2", "Nobody named it"),
        ("slide 3: Costs", "Costs"),
    ]
    assert [(entry.level, entry.title, entry.page) for entry in document.toc] == [
        (1, "The Lamps of 2024", 1),
        (1, "Costs", 3),
    ]
    assert document.locate(document.text.index("Harbour")).label == "slide 1: The Lamps of 2024"  # no paragraph
    assert document.coverage() == "3 of 3 slides have text."
    check_invariants(document)
    named = ingest(slides(tmp_path / "b.pptx", second, first, layout=TITLE, title="On Lamps"))
    assert named.title == "On Lamps"
    assert ingest(slides(tmp_path / "c d.pptx", second, first, layout=TITLE)).title == "c d"


def test_lists_have_their_levels_and_numbers(tmp_path: Path) -> None:
    """Whether there is a bullet the layout says; numbers are nowhere in the file."""

    def fill(slide: Any) -> None:
        slide.shapes.title.text = "What burns"
        frame = slide.placeholders[1].text_frame
        frame.text = "Oil"
        for text, level in (("Whale", 1), ("from Greenland", 2), ("Gas", 0), ("", 0), ("without", 0)):
            paragraph = frame.add_paragraph()
            paragraph.text, paragraph.level = text, level
        frame.paragraphs[-1]._p.get_or_add_pPr().append(parse_xml(f"<a:buNone {NAMES}/>"))
        box(slide.shapes, "In a box", 1, 7)

    assert read(tmp_path / "a.pptx", fill, layout=CONTENT).text == (
        "What burns\n\n- Oil\n-- Whale\n--- from Greenland\n- Gas\n\nwithout\n\nIn a box"
    )

    def item(text: str, kind: str = "arabicPeriod", level: int = 0, start: str = "") -> str:
        begins = f'startAt="{start}"' if start else ""
        mark = f'<a:buAutoNum type="{kind}" {begins}/>' if kind else '<a:buChar char="•"/>'
        return f'<a:p><a:pPr lvl="{level}">{mark}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>'

    items = (
        *(item("one"), item("deep", "alphaLcParenR", 1), item("deeper", "alphaLcParenR", 1), item("two")),
        *(item("anew", "alphaLcParenR", 1), item("dot", ""), item("one again"), item("ninth", start="9")),
        *(item("tenth", start="9"), item("both", "romanUcParenBoth"), item("plain", "circleNumDbPlain")),
        *(item("no level", level=12), item("blank", "romanUcParenBoth").replace("blank", " ")),
    )
    inherited = (
        "<a:lstStyle><a:lvl1pPr><a:buBlip/></a:lvl1pPr></a:lstStyle><a:p><a:r><a:t>by its shape</a:t></a:r></a:p>"
    )
    text = read(tmp_path / "b.pptx", markup(shape("".join(items)), shape(inherited))).text
    assert text.split("\n") == [
        *("1. one", "a) deep", "b) deeper", "2. two", "a) anew", "- dot", "1. one again", "9. ninth", "10. tenth"),
        *("(I) both", "1. plain", "1. no level", "", "- by its shape"),
    ]


def test_markup_of_text_that_changes_what_is_said(tmp_path: Path) -> None:
    raised = '<a:r><a:rPr baseline="30000"/><a:t>{}</a:t></a:r>'
    body = (
        f"<a:p><a:r><a:t>10</a:t></a:r>{raised.format('1')}{raised.format('2')}<a:r><a:t> m</a:t></a:r><a:br/>"
        '<a:r><a:rPr baseline="-25000"/><a:t>low</a:t></a:r><a:fld type="slidenum"><a:t> 7</a:t></a:fld>'
        '<a:endParaRPr/></a:p><a:p><a:r><a:t>See</a:t></a:r><a:r><a:rPr baseline="30%"><a:hlinkClick r:id="x"/></a:rPr>'
        "<a:t>3</a:t></a:r></a:p>"
    )
    assert read(tmp_path / "a.pptx", markup(shape(body))).text == "10^12 m\nlow 7\n\nSee[3]"


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ({"a": (0, 0, 10, 2), "b": (0, 3, 10, 5)}, "ab"),
        ({"a": (0, 0, 4, 5), "b": (5, 0, 9, 5)}, "ab"),
        # Two columns with headings touch below each other; what is above and below reaches a little into them.
        (
            {
                **{"a": (0, 0, 9, 2.05), "b": (0, 2, 4, 3), "d": (5, 2, 9, 3), "c": (0, 3, 4, 6), "e": (5, 3, 9, 6)},
                "f": (0, 5.98, 9, 7),
            },
            "abcdef",
        ),
        # Cards in two rows, their headings just above their texts.
        (
            {
                **{"a": (0, 0, 3, 1), "b": (0, 1.1, 3, 2), "c": (4, 0, 7, 1), "d": (4, 1.1, 7, 2)},
                **{"e": (0, 4, 3, 5), "f": (0, 5.1, 3, 6), "g": (4, 4, 7, 5), "h": (4, 5.1, 7, 6)},
            },
            "abcdefgh",
        ),
        ({"a": (0, 0, 3, 3), "b": (2, 1, 5, 4), "c": (1, 2, 4, 5)}, "abc"),  # nothing parts them
        ({"b": (1, 0, 2, 1), "a": (0, 0, 1, 1)}, "ab"),
    ],
)
def test_reading_order(boxes: dict[str, tuple[float, float, float, float]], expected: str) -> None:
    for names in (sorted(boxes), sorted(boxes, reverse=True)):
        assert "".join(in_reading_order((Box(*boxes[name]), name) for name in names)) == expected


def test_more_boxes_than_anybody_reads_take_no_time() -> None:
    many = [(Box(index, 0, index + 0.5, 1), index) for index in reversed(range(20_000))]
    assert in_reading_order(many) == list(range(20_000))


def test_what_was_put_in_last_may_come_first(tmp_path: Path) -> None:
    """The order in the file is that in which somebody drew."""

    def fill(slide: Any) -> None:
        slide.shapes.title.text = "Compared"
        slide.shapes.title.top = Inches(7)  # read first wherever it stands
        for index, text in ((4, "dear"), (3, "Gas"), (2, "cheap"), (1, "Oil")):
            slide.placeholders[index].text = text  # placed by the layout
        group = slide.shapes.add_group_shape()
        box(group.shapes, "right", 5, 0)
        box(group.shapes, "left", 1, 0)
        inner = group.shapes.add_group_shape()
        box(inner.shapes, "innermost", 3, 0)

    assert read(tmp_path / "a.pptx", fill, layout=COMPARISON).text.split() == [
        *("Compared", "left", "innermost", "right", "Oil", "-", "cheap", "Gas", "-", "dear"),
    ]


def test_tables_keep_their_columns(tmp_path: Path) -> None:
    rows = (("Ship", "Guns", ""), ("", "iron", "brass"), ("Lark", "7", ""), ("", "", "8"))

    def fill(slide: Any) -> None:
        table = slide.shapes.add_table(4, 3, 0, 0, Inches(6), Inches(2)).table
        for row, texts in enumerate(rows):
            for column, text in enumerate(texts):
                table.cell(row, column).text = text
        table.cell(0, 1).merge(table.cell(0, 2))
        table.cell(2, 0).merge(table.cell(3, 0))
        table.cell(2, 1).text_frame.add_paragraph().text = "or so"

    assert read(tmp_path / "a.pptx", fill).text == "Ship | Guns\n| iron | brass\nLark | 7 or so\n| | 8"

    def alone(slide: Any) -> None:
        slide.shapes.add_table(1, 1, 0, 0, Inches(6), Inches(2)).table.cell(0, 0).text = "All of it."

    assert read(tmp_path / "b.pptx", alone).text == "All of it."


def test_charts_are_read_in_the_formats_of_their_numbers(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        data = CategoryChartData(number_format="0%")
        data.categories = ["Oil", "Gas"]
        data.add_series("Share", (0.25, 0.75))
        slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, Inches(5), Inches(4), data)

    assert read(tmp_path / "a.pptx", fill).text == "[chart: Share: Oil 25%, Gas 75%]"


def test_diagrams_and_new_kinds_of_charts_are_read(tmp_path: Path) -> None:
    """The latter stand among alternatives, which python-pptx passes over."""
    new = frame('<cx:chart r:id="rNew"/>')
    either = f'<mc:AlternateContent {NAMES}><mc:Choice Requires="cx1">{new}</mc:Choice><mc:Fallback>'
    either += (
        shape("<a:p><a:r><a:t>Your program is too old.</a:t></a:r></a:p>") + "</mc:Fallback></mc:AlternateContent>"
    )
    old = f"<mc:AlternateContent {NAMES}><mc:Fallback>" + shape("<a:p><a:r><a:t>Old.</a:t></a:r></a:p>")
    old += "</mc:Fallback></mc:AlternateContent>"
    path = slides(tmp_path / "a.pptx", markup(either, frame('<dgm:relIds r:dm="rDiagram"/>'), old))
    points = "".join(
        f'<cx:{kind}Dim type="x"><cx:lvl formatCode="0%"><cx:pt idx="0">{first}</cx:pt><cx:pt idx="1">{second}</cx:pt>'
        f"</cx:lvl></cx:{kind}Dim>"
        for kind, first, second in (("str", "Oil", "Gas"), ("num", "0.25", "0.5"))
    )
    part = (
        f'<cx:chartSpace {NAMES}><cx:chartData><cx:data id="0">{points}</cx:data></cx:chartData><cx:chart><cx:title>'
        "<a:p><a:r><a:t>Burnt</a:t></a:r></a:p></cx:title><cx:series><cx:tx><cx:txData><cx:v>Share</cx:v></cx:txData></cx:tx>"
        '<cx:dataId val="0"/></cx:series><cx:series><cx:tx><cx:txData><cx:v>Nothing</cx:v></cx:txData></cx:tx>'
        '<cx:dataId val="7"/></cx:series></cx:chart></cx:chartSpace>'
    )
    point = "<dgm:pt><dgm:t><a:p><a:r><a:t>{}</a:t></a:r></a:p></dgm:t></dgm:pt>"
    diagram = f"<dgm:dataModel {NAMES}>{point.format('Plan')}{point.format('Build')}</dgm:dataModel>"
    makers.with_part(path, SLIDE, "http://x/chartEx", "ppt/charts/new.xml", part, "rNew")
    makers.with_part(path, SLIDE, "diagramData", "ppt/diagrams/data.xml", diagram, "rDiagram")
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
    either = f'<mc:AlternateContent {NAMES}><mc:Choice Requires="a14">{shape(math)}</mc:Choice><mc:Fallback>'
    either += shape("<a:p><a:r><a:t>a picture of it</a:t></a:r></a:p>") + "</mc:Fallback></mc:AlternateContent>"
    assert read(tmp_path / "a.pptx", markup(either)).text == "So x^2"


def test_notes_and_comments_stand_below(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        box(slide.shapes, "Oil is gone.", 1, 1)
        slide.notes_slide.notes_text_frame.text = "Pause here.\nThen go on."

    path = slides(tmp_path / "a.pptx", fill)
    old = "".join(
        f'<p:cm authorId="{author}"><p:text>{text}</p:text></p:cm>'
        for author, text in ((3, "Says\nwho?"), (9, "Yes."), (3, " "))
    )
    body = "<p188:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p188:txBody>"
    answer = f'<p188:replyLst><p188:reply authorId="B">{body.format("I do.")}</p188:reply></p188:replyLst>'
    new = f'<p188:cm authorId="A">{answer}{body.format("Whale oil?")}</p188:cm>'
    people = f'<p:cmAuthorLst {NAMES}><p:cmAuthor id="3" name="Anne"/></p:cmAuthorLst>'
    others = "".join(f'<p188:author id="{name[0]}" name="{name[1:]}"/>' for name in ("ABen", "BCleo"))
    for owner, kind, name, data in (
        (SLIDE, "comments", "ppt/comments/comment1.xml", f"<p:cmLst {NAMES}>{old}</p:cmLst>"),
        (SLIDE, "http://x/2018/comments", "ppt/comments/modern.xml", f"<p188:cmLst {NAMES}>{new}</p188:cmLst>"),
        ("ppt/presentation.xml", "commentAuthors", "ppt/commentAuthors.xml", people),
        ("ppt/presentation.xml", "http://x/authors", "ppt/authors.xml", f"<p188:list {NAMES}>{others}</p188:list>"),
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


def test_pictures_are_what_they_are_described_as(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        box(slide.shapes, "Here:", 1, 0)
        for top, description in ((1, "Ships in the harbour"), (2, "screenshot-2024-05-06.png"), (3, "a lamp")):
            picture(slide, 1, top)._element.nvPicPr.cNvPr.set("descr", description)

    assert read(tmp_path / "a.pptx", fill).text == "Here:\n\n[picture: Ships in the harbour]"


def test_footers_dates_and_numbers_are_left_out(tmp_path: Path) -> None:
    def place(kind: str) -> str:
        return shape(f"<a:p><a:r><a:t>{kind or 'kept'}</a:t></a:r></a:p>").replace(
            "<p:nvPr/>", f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else "<p:nvPr/>"
        )

    assert read(tmp_path / "a.pptx", markup(*map(place, ("sldNum", "dt", "ftr", "hdr", "")))).text == "kept"


def test_hidden_slides_are_read_and_said_to_be_hidden(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        slide.shapes.title.text = "Secret"
        slide._element.set("show", "0")

    def shown(slide: Any) -> None:
        slide.shapes.title.text = "Shown"
        slide._element.set("show", "1")

    document = read(tmp_path / "a.pptx", fill, shown, fill, fill, layout=ONLY_TITLE)
    assert [page.label for page in document.pages] == [
        *("slide 1 (hidden): Secret", "slide 2: Shown", "slide 3 (hidden): Secret", "slide 4 (hidden): Secret"),
    ]
    assert document.warnings == ("Hidden in the presentation, but read: slides 1, 3-4.",)


def test_files_and_recordings_are_no_silent_loss(tmp_path: Path) -> None:
    def words(slide: Any) -> None:
        box(slide.shapes, "Words.", 0, 0)

    def film(slide: Any) -> None:
        words(slide)
        slide.shapes.add_movie(str(tmp_path / "film.mp4"), 0, 0, 9, 9, str(tmp_path / "poster.png"))

    def file(slide: Any) -> None:
        words(slide)
        slide.shapes.add_ole_object(str(tmp_path / "film.mp4"), "Package", 0, 0)

    (tmp_path / "film.mp4").write_bytes(b"a film")
    (tmp_path / "poster.png").write_bytes(PNG)
    document = read(tmp_path / "a.pptx", words, film, words, file)
    assert document.text.split("\n\n") == ["Words."] * 4
    assert document.warnings == ("Not read: files or recordings on slides 2, 4. Save them from there and add them.",)


def test_slides_that_are_pictures_are_named(tmp_path: Path) -> None:
    def full(slide: Any) -> None:
        picture(slide, 0, 0, 10, 7.5)

    def captioned(slide: Any) -> None:
        full(slide)
        box(slide.shapes, "Draft", 0, 0)

    def told(slide: Any) -> None:
        full(slide)
        box(slide.shapes, "All of what is to be seen in it is told here, at length.", 0, 0)

    document = read(tmp_path / "a.pptx", told, full, captioned, lambda slide: None)
    assert document.warnings == (
        "2 of 4 slides have text; slide 4 blank; doubtful text on slide 3 (a picture fills the slide, with only 5 "
        "characters of text beside it). No text on slide 2: the model will not know what is on it. If they are "
        "pictures of text, save the presentation as PDF and read that with OCR.",
    )
    with pytest.raises(EmptyDocument, match="no text in it: if it holds scanned pictures, save it as PDF"):
        ingest(slides(tmp_path / "b.pptx", full))


@pytest.mark.parametrize(
    "kind",
    [
        *("application/vnd.ms-powerpoint.presentation.macroEnabled.main+xml", f"{TYPES}.slideshow.main+xml"),
        *("application/vnd.ms-powerpoint.slideshow.macroEnabled.main+xml", f"{TYPES}.template.main+xml"),
        "application/vnd.ms-powerpoint.template.macroEnabled.main+xml",
    ],
)
def test_shows_templates_and_presentations_with_macros_are_read(tmp_path: Path, kind: str) -> None:
    path = slides(tmp_path / "a.ppsm", lambda slide: box(slide.shapes, "Words.", 0, 0))
    with zipfile.ZipFile(path) as archive:
        types = archive.read("[Content_Types].xml").decode()
    changed = types.replace(f"{TYPES}.presentation.main+xml", kind)
    assert changed != types
    document = ingest(makers.with_member(path, "[Content_Types].xml", changed.encode()))
    assert (document.format, document.text, document.warnings) == ("pptx", "Words.", ())


def test_strict_ones_are_read(tmp_path: Path) -> None:
    path = slides(tmp_path / "a.pptx", lambda slide: box(slide.shapes, "Words.", 0, 0))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    strict = {
        name: re.sub(
            rb"http://schemas.openxmlformats.org/(?!package)(\w+)/2006/", rb"http://purl.oclc.org/ooxml/\1/", data
        )
        if not name.startswith(("[", "docProps"))
        else data
        for name, data in members.items()
    }
    assert strict != members
    assert ingest(makers.archive(path, dict(strict))).text == "Words."


def test_content_decides_and_limits_hold(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        box(slide.shapes, "Some words that are kept.", 0, 0)

    path = slides(tmp_path / "a.docx", fill, fill, fill)
    assert ingest(path).warnings == (
        "The file is named .docx, but it is PowerPoint presentation and was read as such.",
    )
    for limits, words in (
        (Limits(pages=2), "3 slides, more than the limit of 2"),
        (Limits(characters=40), "characters"),
        (Limits(text_member_bytes=1 << 9), "bytes"),
    ):
        with pytest.raises(TooLarge, match=words):
            ingest(path, limits=limits)
    with pytest.raises(
        BrokenFile, match=r"a\.docx cannot be opened as a PowerPoint presentation .*PowerPoint or Libre"
    ):
        ingest(makers.with_member(path, SLIDE, b"<p:sld"))


def test_one_bad_slide_costs_no_other(tmp_path: Path) -> None:
    def good(slide: Any) -> None:
        box(slide.shapes, "Words.", 0, 0)

    def bad(slide: Any) -> None:
        slide.shapes.title._element.nvSpPr.nvPr.ph.set("type", "unheard of")

    document = ingest(slides(tmp_path / "a.pptx", good, bad, layout=ONLY_TITLE))
    assert [page.text for page in document.pages] == ["Words.", ""]
    assert document.warnings[0].startswith("1 of 2 slides have text. No text on slide 2 (could not be read: ")
    with pytest.raises(EmptyDocument, match=r"slide 1 could not be read: .*unheard of"):
        ingest(slides(tmp_path / "b.pptx", bad, layout=ONLY_TITLE))


def test_places_that_are_no_whole_numbers_are_no_places(tmp_path: Path) -> None:
    odd = shape("<a:p><a:r><a:t>Odd.</a:t></a:r></a:p>").replace('x="0" y="0"', 'x="0.5" y="1.5"')
    path = slides(tmp_path / "a.pptx", lambda slide: box(slide.shapes, "Words.", 1, 1))
    with zipfile.ZipFile(path) as archive:
        slide = archive.read(SLIDE).decode()
    changed = slide.replace("</p:spTree>", f"{odd}</p:spTree>")
    assert ingest(makers.with_member(path, SLIDE, changed.encode())).text == "Odd.\n\nWords."


def test_of_several_titles_none_is_one(tmp_path: Path) -> None:
    """Some programs make every large text a title: the label was all of them."""

    def fill(slide: Any) -> None:
        slide.shapes.title.text, slide.placeholders[1].text = "Lower", "Upper"
        slide.shapes.title.top = Inches(6)
        slide.placeholders[1]._element.nvSpPr.nvPr.ph.set("type", "title")

    (page,) = read(tmp_path / "a.pptx", fill, layout=CONTENT).pages
    assert (page.label, page.text) == ("slide 1", "Upper\n\nLower")
