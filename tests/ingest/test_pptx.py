"""Presentations: a slide is a page, read as people look at it."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pptx.oxml import parse_xml
from pptx.util import Inches

from ingest import BrokenFile, Document, EmptyDocument, Limits, TooLarge, ingest
from tests.ingest import makers
from tests.ingest.makers import check_invariants
from tests.ingest.office_makers import (
    BLANK,
    CONTENT,
    ONLY_TITLE,
    PNG,
    SLIDE_NAMES,
    SLIDE_PART,
    SLIDE_TYPES,
    TITLE,
    add_picture,
    fill_with,
    shape_xml,
    slides,
    text_box,
)


def read(path: Path, *fill: Callable[[Any], None], layout: int = BLANK) -> Document:
    document = ingest(slides(path, *fill, layout=layout))
    check_invariants(document)
    return document


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
    """The layout decides about bullets; numbers are nowhere in the file."""

    def fill(slide: Any) -> None:
        slide.shapes.title.text = "What burns"
        frame = slide.placeholders[1].text_frame
        frame.text = "Oil"
        for text, level in (("Whale", 1), ("from Greenland", 2), ("Gas", 0), ("", 0), ("without", 0)):
            paragraph = frame.add_paragraph()
            paragraph.text, paragraph.level = text, level
        frame.paragraphs[-1]._p.get_or_add_pPr().append(parse_xml(f"<a:buNone {SLIDE_NAMES}/>"))
        text_box(slide.shapes, "In a box", 1, 7)

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
    text = read(tmp_path / "b.pptx", fill_with(shape_xml("".join(items)), shape_xml(inherited))).text
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
    assert read(tmp_path / "a.pptx", fill_with(shape_xml(body))).text == "10^12 m\nlow 7\n\nSee[3]"


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


def test_pictures_are_what_they_are_described_as(tmp_path: Path) -> None:
    def fill(slide: Any) -> None:
        text_box(slide.shapes, "Here:", 1, 0)
        for top, description in ((1, "Ships in the harbour"), (2, "screenshot-2024-05-06.png"), (3, "a lamp")):
            add_picture(slide, 1, top)._element.nvPicPr.cNvPr.set("descr", description)

    assert read(tmp_path / "a.pptx", fill).text == "Here:\n\n[picture: Ships in the harbour]"


def test_footers_dates_and_numbers_are_left_out(tmp_path: Path) -> None:
    def place(kind: str) -> str:
        return shape_xml(f"<a:p><a:r><a:t>{kind or 'kept'}</a:t></a:r></a:p>").replace(
            "<p:nvPr/>", f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else "<p:nvPr/>"
        )

    assert read(tmp_path / "a.pptx", fill_with(*map(place, ("sldNum", "dt", "ftr", "hdr", "")))).text == "kept"


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
        text_box(slide.shapes, "Words.", 0, 0)

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
        add_picture(slide, 0, 0, 10, 7.5)

    def captioned(slide: Any) -> None:
        full(slide)
        text_box(slide.shapes, "Draft", 0, 0)

    def told(slide: Any) -> None:
        full(slide)
        text_box(slide.shapes, "All of what is to be seen in it is told here, at length.", 0, 0)

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
        *("application/vnd.ms-powerpoint.presentation.macroEnabled.main+xml", f"{SLIDE_TYPES}.slideshow.main+xml"),
        *("application/vnd.ms-powerpoint.slideshow.macroEnabled.main+xml", f"{SLIDE_TYPES}.template.main+xml"),
        "application/vnd.ms-powerpoint.template.macroEnabled.main+xml",
    ],
)
def test_shows_templates_and_presentations_with_macros_are_read(tmp_path: Path, kind: str) -> None:
    path = slides(tmp_path / "a.ppsm", lambda slide: text_box(slide.shapes, "Words.", 0, 0))
    with zipfile.ZipFile(path) as archive:
        types = archive.read("[Content_Types].xml").decode()
    changed = types.replace(f"{SLIDE_TYPES}.presentation.main+xml", kind)
    assert changed != types
    document = ingest(makers.with_member(path, "[Content_Types].xml", changed.encode()))
    assert (document.format, document.text, document.warnings) == ("pptx", "Words.", ())


def test_strict_ones_are_read(tmp_path: Path) -> None:
    path = slides(tmp_path / "a.pptx", lambda slide: text_box(slide.shapes, "Words.", 0, 0))
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
        text_box(slide.shapes, "Some words that are kept.", 0, 0)

    path = slides(tmp_path / "a.docx", fill, fill, fill)
    assert ingest(path).warnings == ("The file is named .docx, but its format is PowerPoint presentation.",)
    for limits, words in (
        (Limits(pages=2), "3 slides, more than the limit of 2"),
        (Limits(characters=40), "characters"),
        (Limits(text_member_bytes=1 << 9), "bytes"),
    ):
        with pytest.raises(TooLarge, match=words):
            ingest(path, limits=limits)
    with pytest.raises(
        BrokenFile, match=r"a\.docx cannot be opened as a PowerPoint presentation\. .*PowerPoint or Libre"
    ):
        ingest(makers.with_member(path, SLIDE_PART, b"<p:sld"))


def test_one_bad_slide_costs_no_other(tmp_path: Path) -> None:
    def good(slide: Any) -> None:
        text_box(slide.shapes, "Words.", 0, 0)

    def bad(slide: Any) -> None:
        slide.shapes.title._element.nvSpPr.nvPr.ph.set("type", "unheard of")

    document = ingest(slides(tmp_path / "a.pptx", good, bad, layout=ONLY_TITLE))
    assert [page.text for page in document.pages] == ["Words.", ""]
    assert document.warnings[0].startswith("1 of 2 slides have text. No text on slide 2 (could not be read: ")
    with pytest.raises(EmptyDocument, match=r"slide 1 could not be read: .*unheard of"):
        ingest(slides(tmp_path / "b.pptx", bad, layout=ONLY_TITLE))


def test_places_that_are_no_whole_numbers_are_no_places(tmp_path: Path) -> None:
    odd = shape_xml("<a:p><a:r><a:t>Odd.</a:t></a:r></a:p>").replace('x="0" y="0"', 'x="0.5" y="1.5"')
    path = slides(tmp_path / "a.pptx", lambda slide: text_box(slide.shapes, "Words.", 1, 1))
    with zipfile.ZipFile(path) as archive:
        slide = archive.read(SLIDE_PART).decode()
    changed = slide.replace("</p:spTree>", f"{odd}</p:spTree>")
    assert ingest(makers.with_member(path, SLIDE_PART, changed.encode())).text == "Odd.\n\nWords."


def test_of_several_titles_none_is_one(tmp_path: Path) -> None:
    """Some programs make every large text a title: the label was all of them."""

    def fill(slide: Any) -> None:
        slide.shapes.title.text, slide.placeholders[1].text = "Lower", "Upper"
        slide.shapes.title.top = Inches(6)
        slide.placeholders[1]._element.nvSpPr.nvPr.ph.set("type", "title")

    (page,) = read(tmp_path / "a.pptx", fill, layout=CONTENT).pages
    assert (page.label, page.text) == ("slide 1", "Upper\n\nLower")
