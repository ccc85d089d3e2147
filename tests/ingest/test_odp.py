"""OpenDocument presentations: titles, the order on a slide, notes, hidden slides."""

from pathlib import Path

import pytest

from ingest import BrokenFile, Document, EmptyDocument, ingest
from tests.ingest import makers
from tests.ingest.office_makers import ODF, ODF_NAMES
from tests.ingest.office_makers import odf_paragraph as p

KIND = "application/vnd.oasis.opendocument.presentation"
SPACES = f'{ODF_NAMES} xmlns:presentation="{ODF}presentation:1.0"'
HIDDEN = (
    '<style:style style:name="dp2" style:family="drawing-page">'
    '<style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
)


def content(slides: str) -> str:
    return (
        f"<office:document {SPACES} office:mimetype='{KIND}'>"
        f"<office:automatic-styles>{HIDDEN}</office:automatic-styles>"
        f"<office:body><office:presentation>{slides}</office:presentation></office:body></office:document>"
    )


def slide(*shapes: str, style: str = "dp1") -> str:
    return f'<draw:page draw:style-name="{style}">{"".join(shapes)}</draw:page>'


def box(text: str, x: float = 1, y: float = 1, kind: str = "", **attributes: str) -> str:
    said = " ".join(f'presentation:{key}="{value}"' for key, value in attributes.items())
    named = f'presentation:class="{kind}"' if kind else ""
    place = f'svg:x="{x}cm" svg:y="{y}cm" svg:width="8cm" svg:height="2cm"'
    return f"<draw:frame {named} {said} {place}><draw:text-box>{text}</draw:text-box></draw:frame>"


def read(folder: Path, slides: str) -> Document:
    whole = ingest(makers.archive(folder / "a.odp", {"mimetype": KIND, "content.xml": content(slides)}))
    flat = makers.read(folder / "a.fodp", '<?xml version="1.0"?>' + content(slides))
    assert (whole.text, whole.warnings, whole.format) == (flat.text, flat.warnings, "odp")
    return whole


def test_a_slide_begins_with_its_title_and_ends_with_its_notes(tmp_path: Path) -> None:
    spoken = box(p("Mention the ferry."), kind="notes") + box(p("7"), kind="page-number")
    notes = f"<presentation:notes>{spoken}</presentation:notes>"
    listed = "<text:list><text:list-item><text:p>Oil</text:p></text:list-item></text:list>"
    document = read(
        tmp_path,
        slide(
            box(p("below"), y=9),
            box(listed, y=4),
            box(p("The lamp"), y=15, kind="title"),
            box(p("a date"), kind="date-time"),
            box(p("Click to add text"), placeholder="true"),
            notes,
        )
        + slide(box(p("Second."))),
    )
    assert document.pages[0].label == "slide 1: The lamp"
    assert document.pages[0].text == "The lamp\n\n- Oil\n\nbelow\n\nSpeaker notes:\n\nMention the ferry."
    assert [page.text for page in document.pages[1:]] == ["Second."]
    assert [(entry.title, entry.page) for entry in document.toc] == [("The lamp", 1)]
    assert document.title == "The lamp"


def test_nothing_on_a_slide_is_lost(tmp_path: Path) -> None:
    cells = "".join(f"<table:table-cell>{p(text)}</table:table-cell>" for text in ("Oil", "3"))
    table = (
        f"<draw:frame svg:y='5cm'><table:table><table:table-row>{cells}</table:table-row></table:table></draw:frame>"
    )
    group = f"<draw:g>{box(p('in a group'), y=8)}</draw:g>"
    shape = "<draw:custom-shape svg:y='11cm'><text:p>on a shape</text:p></draw:custom-shape>"
    picture = "<draw:frame svg:y='13cm'><draw:image/><svg:desc>A lamp on a long table</svg:desc></draw:frame>"
    chart = "<draw:frame svg:y='14cm'><draw:object xlink:href='./Object 1'/></draw:frame>"
    document = read(tmp_path, slide(shape, picture, chart, group, table) + slide(box(p("kept back")), style="dp2"))
    assert document.pages[0].text == "Oil | 3\n\nin a group\n\non a shape\n\n[picture: A lamp on a long table]"
    assert document.pages[1].label == "slide 2 (hidden)"
    assert any("1 object within the file, such as charts" in each for each in document.warnings)
    assert "Hidden in the presentation, but read: slide 2." in document.warnings


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptyDocument, match="has no text in it"):
        read(tmp_path, slide(box(p(" "))))
    for bad in ("", content(slide(box(p("x"))))[:300]):
        with pytest.raises(BrokenFile, match="cannot be opened as an OpenDocument presentation"):
            ingest(makers.archive(tmp_path / "bad.odp", {"mimetype": KIND, "content.xml": bad}))
