"""OpenDocument texts: hidden text, numbers, nesting and notes."""

from pathlib import Path

import pytest

from ingest import BrokenFile, EmptyDocument, TooLarge, UnsupportedFormat, ingest
from ingest.limits import Limits
from tests.ingest import makers
from tests.ingest.office_makers import ODF, ODF_NAMES
from tests.ingest.office_makers import odf_paragraph as p

SAMPLE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "docs" / "unstructured__fake.odt"


def document(body: str, styles: str = "", meta: str = "") -> str:
    """Return an OpenDocument text in one XML file."""
    return (
        f"<office:document {ODF_NAMES} office:mimetype='application/vnd.oasis.opendocument.text'>"
        f"<office:meta><dc:title>{meta}</dc:title></office:meta>"
        f"<office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document>"
    )


def odt(path: Path, body: str, styles: str = "", **members: str) -> Path:
    kind = "application/vnd.oasis.opendocument.text"
    parts = {name.replace("__", "/") + ".xml": text for name, text in members.items()}
    return makers.archive(path, {"mimetype": kind, "content.xml": document(body, styles), **parts})


def text_of(folder: Path, body: str, styles: str = "") -> str:
    found = {
        ingest(odt(folder / "a.odt", body, styles)).text,
        makers.read(folder / "a.fodt", '<?xml version="1.0"?>' + document(body, styles)).text,
    }
    assert len(found) == 1
    return found.pop()


def styled(name: str, family: str = "text", above: str = "", **properties: str) -> str:
    said = " ".join(f'{key.replace("_", ":", 1).replace("_", "-")}="{value}"' for key, value in properties.items())
    return (
        f'<style:style style:name="{name}" style:family="{family}" style:parent-style-name="{above}">'
        f"<style:text-properties {said}/></style:style>"
    )


def test_a_text_of_libreoffices_is_read() -> None:
    if not SAMPLE.exists():
        pytest.skip("the sample documents are not here")
    read = ingest(SAMPLE)
    assert (read.format, read.warnings) == ("odt", ())
    assert read.text == (
        "Lorem ipsum dolor sit amet.\n\n"
        "Header row | Mon | Wed | Fri\nColor | Blue | Red | Green\nTime | 1pm | 2pm | 3pm\nLeader | Sarah | Mark | Ryan"
    )


def test_headings_make_sections(tmp_path: Path) -> None:
    def h(level: int, text: str) -> str:
        return f'<text:h text:outline-level="{level}">{text}</text:h>'

    body = p("On Lamps", "P1") + p("By Anne.") + h(1, "Oil") + p("It burns.") + h(2, "Whale") + p("No more.")
    read = makers.read(tmp_path / "a.fodt", document(body, styled("P1", "paragraph", "Title"), "The Lamps"))
    assert (read.title, read.format) == ("The Lamps", "odt")
    assert [(page.label, page.text) for page in read.pages] == [
        ("On Lamps", "On Lamps\n\nBy Anne."),
        ("Oil", "Oil\n\nIt burns."),
        ("Whale", "Whale\n\nNo more."),
    ]
    outline = "".join(
        f'<text:outline-level-style text:level="{level}" style:num-format="{form}" style:num-suffix="." '
        f'text:display-levels="{level}"/>'
        for level, form in ((1, "I"), (2, "1"))
    )
    numbered = text_of(
        tmp_path,
        h(1, "Oil")
        + p("x")
        + h(2, "Whale")
        + h(2, "Olive")
        + p("y")
        + h(1, "Gas")
        + h(2, "Coal")
        + h(3, "Deep")
        + p("z"),
        f"<text:outline-style>{outline}</text:outline-style>",
    )
    assert [line for line in numbered.split("\n\n") if len(line) > 1] == [
        *("I. Oil", "I.1. Whale", "I.2. Olive", "II. Gas", "II.1. Coal", "Deep")
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (p("one\n   two<text:s text:c='3'/>three<text:tab/>four<text:line-break/>five"), "one two three four\nfive"),
        (p("10<text:span text:style-name='T1'>5</text:span> and"), "10^5 and"),
        (p("See<text:a><text:span text:style-name='T1'>5</text:span></text:a>."), "See[5]."),
        (p("Kept <text:span text:style-name='T3'>hidden</text:span>here"), "Kept here"),
        (p("Hidden.", "P2") + p("Shown."), "Shown."),
        ("<text:section text:display='none'>" + p("Hidden.") + "</text:section>" + p("Shown."), "Shown."),
        ("<text:section text:is-hidden='true'>" + p("Hidden.") + "</text:section>" + p("Shown."), "Shown."),
        ("<text:section>" + p("In a section.") + "</text:section>", "In a section."),
        (
            "<text:tracked-changes><text:deletion>" + p("Gone.") + "</text:deletion></text:tracked-changes>" + p("x"),
            "x",
        ),
        (p("<text:ruby><text:ruby-base>塔</text:ruby-base><text:ruby-text>とう</text:ruby-text></text:ruby>"), "塔"),
        (
            p("A lamp<draw:frame><draw:image/><svg:desc>A lamp on a long table</svg:desc></draw:frame>"),
            "A lamp [picture: A lamp on a long table]",
        ),
        (
            p("Before<draw:frame><draw:text-box>" + p("Boxed.") + "</draw:text-box></draw:frame> after.") + p("End."),
            "Before after.\n\nBoxed.\n\nEnd.",
        ),
        (p("x<draw:custom-shape>" + p("On a shape.") + "</draw:custom-shape>"), "x\n\nOn a shape."),
        (
            "<text:table-of-content><text:table-of-content-source><text:index-title-template>T"
            "</text:index-title-template></text:table-of-content-source><text:index-body>"
            + p("Oil 3")
            + "</text:index-body></text:table-of-content>",
            "Oil 3",
        ),
    ],
)
def test_markup_that_changes_what_is_said(tmp_path: Path, body: str, expected: str) -> None:
    styles = (
        styled("T1", above="T2")
        + styled("T2", style_text_position="super 58%")
        + styled("T3", text_display="none")
        + styled("P2", "paragraph", text_display="none")
    )
    assert text_of(tmp_path, body, styles) == expected


def test_notes_and_comments_stand_at_the_end(tmp_path: Path) -> None:
    def note(text: str) -> str:
        return (
            f"<text:note><text:note-citation>1</text:note-citation><text:note-body>{text}</text:note-body></text:note>"
        )

    comment = f"<office:annotation><dc:creator>Anne</dc:creator>{p('Whose?')}{p('Ask.')}</office:annotation>"
    body = p(f"The lamp{note(p('Of oil.' + note(p('Whale.'))))} is lent{comment}.<office:annotation-end/>")
    assert text_of(tmp_path, body) == ("The lamp[1] is lent[3].\n\n[1] Of oil.[2]\n[2] Whale.\n[3] Anne: Whose? Ask.")
    headed = ingest(odt(tmp_path / "a.odt", f'<text:h text:outline-level="1">Lamps</text:h>{body}'))
    assert [page.label for page in headed.pages] == ["Lamps", "Notes"]


def test_lists_have_their_numbers(tmp_path: Path) -> None:
    levels = (
        '<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>'
        '<text:list-level-style-number text:level="2" style:num-format="a" style:num-suffix=")"/>'
        '<text:list-level-style-number text:level="3" style:num-format="1" text:display-levels="3"/>'
    )
    bullets = '<text:list-level-style-bullet text:level="1" text:bullet-char="•"/>'
    styles = (
        f'<text:list-style style:name="L1">{levels}</text:list-style>'
        f'<text:list-style style:name="L2">{bullets}</text:list-style>'
    )

    def items(*contents: str, start: str = "") -> str:
        return "".join(f"<text:list-item {start}>{each}</text:list-item>" for each in contents)

    def listed(contents: str, style: str = "L1", more: str = "") -> str:
        return f'<text:list text:style-name="{style}" {more}>{contents}</text:list>'

    inner = listed(items(p("Whale") + listed(items(p("Blue")))) + items(p("Olive")))
    body = listed(items(p("Oil") + inner, p("Gas") + p("Of coal.")), more='xml:id="one"') + p("And")
    body += listed(items(p("Tallow")), more='text:continue-list="one"') + listed(items(p("New")))
    body += listed(items(p("Seventh"), start='text:start-value="7"')) + listed(items(p("Point")), "L2")
    body += listed(items(p("Eighth") + listed(items(p("Dot")), "L2") + listed(items(p("Alpha")), "L1")))
    body += listed(items('<text:h text:outline-level="4">A heading</text:h>'))
    assert text_of(tmp_path, body, styles).split("\n") == [
        *("1. Oil", "a) Whale", "1.a.1 Blue", "b) Olive", "2. Gas", "", "Of coal.", "", "And", ""),
        *(
            "3. Tallow",
            "",
            "1. New",
            "",
            "7. Seventh",
            "",
            "- Point",
            "",
            "1. Eighth",
            "-- Dot",
            "a) Alpha",
            "",
            "1. A heading",
        ),
    ]


def test_tables_keep_their_columns(tmp_path: Path) -> None:
    def row(*cells: str) -> str:
        return f"<table:table-row>{''.join(cells)}</table:table-row>"

    def cell(text: str, **how: int) -> str:
        said = " ".join(f'table:{name.replace("_", "-")}="{value}"' for name, value in how.items())
        return f"<table:table-cell {said}>{p(text)}</table:table-cell>"

    covered = "<table:covered-table-cell/>"
    head = row(cell("Ship"), cell("Guns", number_columns_spanned=2), covered)
    body = row(cell("Lark", number_rows_spanned=2), cell("7", number_columns_repeated=2)) + row(
        covered, cell("8"), cell("")
    )
    table = f"<table:table><table:table-header-rows>{head}</table:table-header-rows>{body}</table:table>"
    assert text_of(tmp_path, table) == "Ship | Guns\nLark | 7 | 7\n| 8"
    alone = f"<table:table>{row(cell('All of the page.'))}</table:table>"
    assert text_of(tmp_path, alone) == "All of the page."


def test_formulas_are_read_and_other_objects_named(tmp_path: Path) -> None:
    def thing(name: str) -> str:
        return f'<draw:frame><draw:object xlink:href="./{name}"/><draw:image/></draw:frame>'

    formula = '<math xmlns="http://www.w3.org/1998/Math/MathML"><msup><mi>x</mi><mn>2</mn></msup></math>'
    ole = '<draw:frame><draw:object-ole xlink:href="./Object 4"/></draw:frame>'
    body = p(f"Of {thing('Object 1')} and {thing('Object 2')}, {thing('Object 1')}{thing('Object 3')}{ole}.")
    body += "<text:section><text:section-source/></text:section>"
    objects = {"Object 1__content": formula, "Object 2__content": "<chart/>", "Object 3__content": ""}
    read = ingest(odt(tmp_path / "a.odt", body, **objects))
    assert read.text == "Of x^2 and , x^2."
    assert read.warnings == (
        "Not read: 3 objects within the file, such as charts. Save it as PDF and add that.",
        "Not read: 1 part of the document kept in files beside it. Add them too.",
    )


def test_an_archive_whose_list_of_files_is_damaged_is_said_to_be(tmp_path: Path) -> None:
    """The message asked to report a bug."""
    path = odt(tmp_path / "a.odt", p("x"), **{"META-INF__manifest": "<manifest/>" * 50})
    data, name = path.read_bytes(), b"META-INF/manifest.xml"
    start = data.index(name) + len(name)
    path.write_bytes(data[:start] + b"\xff" * 8 + data[start + 8 :])
    with pytest.raises(BrokenFile, match=r"its archive is damaged or incomplete\. Fetch it again"):
        ingest(path)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    locked = '<manifest:manifest><manifest:encryption-data manifest:checksum="x"/></manifest:manifest>'
    with pytest.raises(UnsupportedFormat, match="encrypted OpenDocument file: remove its password in LibreOffice"):
        ingest(odt(tmp_path / "locked.odt", p("x"), **{"META-INF__manifest": locked}))
    drawing = {"mimetype": "application/vnd.oasis.opendocument.graphics", "content.xml": document(p("x"))}
    with pytest.raises(UnsupportedFormat, match="OpenDocument drawing, chart or formula: save it as PDF"):
        ingest(makers.archive(tmp_path / "a.odg", dict(drawing)))
    with pytest.raises(EmptyDocument, match="no text in it: if it holds scanned pictures"):
        ingest(odt(tmp_path / "empty.odt", p("  ")))
    for content in ("", "<office:document/>", document("x")[:300]):
        bare = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content}
        with pytest.raises((BrokenFile, EmptyDocument)):
            ingest(makers.archive(tmp_path / "bare.odt", dict(bare)))
    with pytest.raises(BrokenFile):
        ingest(makers.archive(tmp_path / "b.odt", {"mimetype": "application/vnd.oasis.opendocument.text"}))
    with pytest.raises(TooLarge, match="characters"):
        ingest(odt(tmp_path / "long.odt", p("word " * 100)), limits=Limits(characters=300))


def test_sections_within_sections_without_end_are_survived(tmp_path: Path) -> None:
    deep = "<text:section>" * 3000 + p("Deep.") + "</text:section>" * 3000
    with pytest.raises(BrokenFile, match="cannot be opened as an OpenDocument text"):
        ingest(odt(tmp_path / "a.odt", deep))


def test_what_is_filled_into_forms_is_read_where_it_stands(tmp_path: Path) -> None:
    form = f'xmlns:form="{ODF}form:1.0"'
    fields = (
        '<form:text form:id="1" form:current-value="Joost van Dam"/>'
        '<form:listbox form:id="2"><form:option form:label="red"/>'
        '<form:option form:label="green" form:current-selected="true"/></form:listbox>'
        '<form:checkbox form:id="3" form:label="agreed" form:current-state="checked"/>'
        '<form:radio form:id="4" form:label="not"/><form:button form:id="5" form:label="Send"/>'
    )
    forms = f"<office:forms><form:form {form}>{fields}</form:form></office:forms>"
    shown = "; ".join(f'{number}: <draw:control draw:control="{number}"/>' for number in range(1, 6))
    assert text_of(tmp_path, forms + p(shown)) == "1: Joost van Dam ; 2: green ; 3: ☒ agreed ; 4: ☐ not ; 5:"
