"""Workbooks: a sheet is a section, and every value stays under its column heading."""

import datetime
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment

from ingest import BrokenFile, Document, EmptyDocument, Limits, TooLarge, UnsupportedFormat, ingest
from tests.ingest import makers
from tests.ingest.makers import check_invariants
from tests.ingest.office_makers import SHEET_NAMES, SHEET_PART, SHEET_TYPES, bare_workbook, workbook


def read(path: Path) -> Document:
    document = ingest(path)
    check_invariants(document)
    return document


def test_a_sheet_is_a_section(tmp_path: Path) -> None:
    def fill(book: Any) -> None:
        ships, empty, more = book.active, book.create_sheet("Nothing"), book.create_sheet("Harbours & more")
        ships.title, book.properties.title = "Ships", "The Fleet"
        ships["B2"], ships["C2"], ships["E2"] = "Ship", "Guns", "Left"
        ships["B3"], ships["C3"], ships["E3"] = "Lark", 7, True
        ships["B4"], ships["E4"] = "Wren\nof Hull", False
        ships["B7"] = "All of them."
        assert empty["A1"].value is None
        more["A1"] = "Hull"
        more.sheet_state = "veryHidden"

    document = read(workbook(tmp_path / "a.xlsx", fill))
    assert (document.title, document.format) == ("The Fleet", "xlsx")
    assert [(page.label, page.text) for page in document.pages] == [
        ("Ships", "Ships\n\nShip | Guns | Left\nLark | 7 | TRUE\nWren of Hull | | FALSE\n\nAll of them."),
        ("Harbours & more (hidden)", "Harbours & more\n\nHull"),
    ]
    assert [(entry.level, entry.title, entry.page) for entry in document.toc] == [
        *((1, "Ships", 1), (1, "Harbours & more", 2)),
    ]
    assert document.warnings == ("Hidden in the workbook, but read: Harbours & more.",)
    assert document.locate(document.text.index("All of")).label == "Ships, paragraph 2"
    assert document.coverage() == "2 of 2 sections have text."


FORMATS = "".join(f'<xf numFmtId="{each}"/>' for each in (0, 164, 10, 14, 165, "x"))


STYLES = (
    '<numFmts><numFmt numFmtId="164" formatCode="0.0&quot; kg&quot;"/><numFmt numFmtId="165" formatCode=""/></numFmts>'
    "<cellStyleXfs><xf numFmtId='9'/></cellStyleXfs>"
    f"<cellXfs>{FORMATS}</cellXfs>"
)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("<c><v>4.2999999999999998</v></c>", "4.3"),
        ('<c s="1"><v>2</v></c>', "2.0 kg"),
        ('<c s="2"><v>0.125</v></c>', "12.50%"),
        ('<c s="3"><v>45000</v></c>', "2023-03-15"),
        *((f'<c s="{style}"><v>7</v></c>', "7") for style in (0, 4, 5, 99, "x")),
        ('<c t="b"><v>1</v></c><c t="b"><v>0</v></c>', "TRUE | FALSE"),
        ('<c t="e"><f>1/0</f><v>#DIV/0!</v></c>', "#DIV/0!"),
        (
            '<c t="d"><v>2024-05-06T00:00:00</v></c><c t="d"><v>2024-05-06T07:08:00</v></c>',
            "2024-05-06 | 2024-05-06 07:08:00",
        ),
        ('<c t="str"><f>A1</f><v>two\nlines_x000D_</v></c>', "two lines"),
        ('<c t="str"><f>IF(A1,"")</f><v></v></c><c><v>1</v></c>', "1"),
        ('<c t="inlineStr"><is><t>in </t><r><rPr><b/></rPr><t>line</t></r></is></c>', "in line"),
        ('<c t="s"><v>0</v></c><c t="s"><v>1</v></c>', "shared | 10^5"),
        ('<c r="C1"><v>3</v></c><c><v>4</v></c><c r="AB1"><v>28</v></c>', "3 | 4 | 28"),
        ('<c r="?"><v>1</v></c><c r="B1"/><c r="C1"><v>3</v></c>', "1 | 3"),
        ('<c><v>1</v></c><c t="s"><v>2</v></c>', "1 | one line"),
        ("<c><v>1</v></c><?pi x?><!-- x --><c><v>2</v></c>", "1 | 2"),
    ],
)
def test_values_are_as_people_see_them(tmp_path: Path, cell: str, expected: str) -> None:
    strings = (
        "<si><t>shared</t><rPh><t>how it is spoken</t></rPh></si>"
        '<si><r><t>10</t></r><r><rPr><vertAlign val="superscript"/></rPr><t>5</t></r></si><si><t>one\n line</t></si>'
    )
    document = read(bare_workbook(tmp_path / "a.xlsx", f"<row>{cell}</row>", strings, STYLES))
    assert (document.text, document.warnings) == (f"S\n\n{expected}", ())


def test_sheets_have_names_by_which_they_can_be_cited(tmp_path: Path) -> None:
    sheets = "".join(f'<sheets><sheet name="{name}" r:id="worksheet"/></sheets>' for name in ("", "A", "A", "n" * 300))
    document = read(bare_workbook(tmp_path / "a.xlsx", "<row><c><v>1</v></c></row>", book=sheets))
    assert [page.label for page in document.pages] == ["sheet 1", "A (1)", "A (2)", "n" * 120, "S"]


def test_rows_are_where_they_say(tmp_path: Path) -> None:
    cell = "<c><v>{}</v></c>"
    numbered = [(None, 1), (3, 3), (2, 4), ("x", 5), (None, "")]  # a row number that goes back is ignored
    said = "".join(f"<row{f' r={chr(34)}{r}{chr(34)}' if r else ''}>{cell.format(v)}</row>" for r, v in numbered)
    assert read(bare_workbook(tmp_path / "a.xlsx", said)).text == "S\n\n1\n\n3\n4\n5"


def test_days_of_macs(tmp_path: Path) -> None:
    path = bare_workbook(
        tmp_path / "a.xlsx", '<row><c s="3"><v>43538</v></c></row>', "", STYLES, '<workbookPr date1904="1"/>'
    )
    assert read(path).text == "S\n\n2023-03-15"


def test_values_of_openpyxls(tmp_path: Path) -> None:
    def fill(book: Any) -> None:
        day = datetime.datetime(2024, 5, 6, 7, 8)
        book.active.append([day.date(), day, day.time(), datetime.timedelta(hours=30), 0.25, "007", 7.0])
        book.active["E1"].number_format = "0%"
        book.active["G1"].number_format = '#,##0.00 "€"'

    assert read(workbook(tmp_path / "a.xlsx", fill)).text == (
        "Sheet\n\n2024-05-06 | 2024-05-06 07:08:00 | 07:08:00 | 30:00:00 | 25% | 007 | 7.00 €"
    )


def test_merged_cells_stand_over_their_columns(tmp_path: Path) -> None:
    def fill(book: Any) -> None:
        for row in (["Ship", "Guns", None], [None, "iron", "brass"], ["Lark", 7, 8], [None, 9, 10]):
            book.active.append(row)
        for cells in ("A1:A2", "B1:C1", "A3:A4"):
            book.active.merge_cells(cells)

    assert (
        read(workbook(tmp_path / "a.xlsx", fill)).text == "Sheet\n\nShip | Guns\n| iron | brass\nLark | 7 | 8\n| 9 | 10"
    )


def test_formulas_without_results_are_no_silent_loss(tmp_path: Path) -> None:
    def fill(book: Any) -> None:
        book.active.append(["Sum", "=SUM(1, 2)"])

    without = " without a result, as a program wrote them that does not calculate: open the workbook in Excel or "
    without += "LibreOffice, save it and add it again."
    document = read(workbook(tmp_path / "a.xlsx", fill))
    assert (document.text, document.warnings) == ("Sheet\n\nSum | =SUM(1, 2)", (f"1 formula{without}",))
    with xlsxwriter.Workbook(str(tmp_path / "b.xlsx")) as book:  # xlsxwriter writes 0 for a result it is not given
        sheet = book.add_worksheet("S")
        sheet.write_row(0, 0, ["=1+1", "=2+2", "text"])
        sheet.write_formula(0, 3, "=3+3", None, 6)
        sheet.write_number(0, 4, 0)
    document = read(tmp_path / "b.xlsx")
    assert (document.text, document.warnings) == ("S\n\n=1+1 | =2+2 | text | 6 | 0", (f"2 formulas{without}",))
    shared = '<row><c><f t="shared" si="0"/></c><c><f>0</f><v>0</v></c></row>'
    document = read(bare_workbook(tmp_path / "c.xlsx", shared))
    assert (document.text, document.warnings) == ("S\n\n0", (f"1 formula{without}",))


def test_comments_stand_with_what_they_are_on(tmp_path: Path) -> None:
    def fill(book: Any) -> None:
        sheet = book.active
        sheet.append(["Lark", 7])
        for cell, author, text in (
            ("B1", "Anne", "Anne:\nSold, I thought."),
            ("D1", "", "By whom?"),
            ("A9", "Ben", "Far off."),
        ):
            sheet[cell].comment = Comment(text, author)

    path = workbook(tmp_path / "a.xlsx", fill)
    with zipfile.ZipFile(path) as archive:
        sheet = archive.read(SHEET_PART)
    # Excel has no cell where there is nothing in it.
    path = makers.with_member(path, SHEET_PART, re.sub(rb'<row r="9".*?</row>|<c r="[CD]1"[^>]*/>', b"", sheet))
    document = read(path)
    assert document.text == (
        "Sheet\n\nLark | 7 [comment by Anne: Sold, I thought.] | [comment: By whom?]\n\n[comment by Ben: Far off.]"
    )
    threads = "".join(
        f'<threadedComment ref="B1" personId="{{{person}}}"><text>{text}</text></threadedComment>'
        for person, text in (("A", "Sold?"), ("B", "Not yet."))
    )
    kind = "http://schemas.microsoft.com/office/2017/10/relationships"
    people = '<personList><person id="{A}" displayName="Anne Lee"/></personList>'
    makers.with_part(
        path, SHEET_PART, f"{kind}/threadedComment", "xl/t.xml", f"<ThreadedComments>{threads}</ThreadedComments>"
    )
    makers.with_part(path, "xl/workbook.xml", f"{kind}/person", "xl/persons/person.xml", people)
    assert "7 [comment by Anne Lee: Sold?] [comment: Not yet.] | [comment: By whom?]" in read(path).text


def test_charts_and_text_boxes_stand_below(tmp_path: Path) -> None:
    def fill(book: Any) -> None:
        book.active.append(["Oil", 0.25])
        chart = BarChart()
        chart.title = "Burnt"
        chart.add_data(Reference(book.active, min_col=2, min_row=1, max_row=1))
        book.active.add_chart(chart, "D1")
        other = BarChart()
        other.title = "On a sheet of its own"
        book.create_chartsheet("Drawn").add_chart(other)

    path = workbook(tmp_path / "a.xlsx", fill)
    with zipfile.ZipFile(path) as archive:
        chart, drawing = archive.read("xl/charts/chart1.xml"), archive.read("xl/drawings/drawing1.xml")
    cache = b"<numCache><formatCode>0%</formatCode><pt idx='0'><v>0.25</v></pt></numCache></numRef>"
    makers.with_member(path, "xl/charts/chart1.xml", chart.replace(b"</numRef>", cache))
    named = re.search(rb"<(?:\w+:)?cNvPr [^>]*/>", drawing)
    assert named
    described = named[0].replace(b"/>", b' descr="Ships in the harbour"/>')
    main = b"http://schemas.openxmlformats.org/drawingml/2006/main"
    words = b'<t xmlns:a="%s"><a:p><a:r><a:t>%s</a:t></a:r></a:p></t>'
    alternatives = b'<m:Fallback xmlns:m="http://schemas.openxmlformats.org/markup-compatibility/2006">%s</m:Fallback>'
    boxes = words % (main, b"In a box.") + alternatives % (words % (main, b"In an old box."))
    changed = drawing.replace(named[0], described).replace(b"</wsDr>", boxes + b"</wsDr>")
    assert boxes in changed
    document = read(makers.with_member(path, "xl/drawings/drawing1.xml", changed))
    assert [(page.label, page.text) for page in document.pages] == [
        ("Sheet", "Sheet\n\nOil | 0.25\n\n[picture: Ships in the harbour]\n\n[chart: Burnt; 25%]\n\nIn a box."),
        ("Drawn", "Drawn\n\n[chart: On a sheet of its own]"),
    ]
    makers.with_member(path, "xl/charts/chart1.xml", b" ")
    assert "Not read: 1 drawing that cannot be understood." in read(path).warnings


def test_files_within_are_no_silent_loss(tmp_path: Path) -> None:
    path = bare_workbook(tmp_path / "a.xlsx", "<row><c><v>1</v></c></row>")
    makers.with_part(path, SHEET_PART, "oleObject", "xl/embeddings/a.bin", "x")
    assert read(path).warnings == ("Not read: files within S. Save them from there and add them.",)


@pytest.mark.parametrize(
    "kind", ["application/vnd.ms-excel.sheet.macroEnabled.main+xml", f"{SHEET_TYPES}.template.main+xml"]
)
def test_templates_and_workbooks_with_macros_are_read(tmp_path: Path, kind: str) -> None:
    path = workbook(tmp_path / "a.xltm", lambda book: book.active.append(["Words"]))
    with zipfile.ZipFile(path) as archive:
        types = archive.read("[Content_Types].xml").decode()
    changed = types.replace(f"{SHEET_TYPES}.sheet.main+xml", kind)
    assert changed != types
    document = ingest(makers.with_member(path, "[Content_Types].xml", changed.encode()))
    assert (document.format, document.text, document.warnings) == ("xlsx", "Sheet\n\nWords", ())


def test_strict_ones_are_read(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", lambda book: book.active.append(["Words", datetime.date(2024, 5, 6)]))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    strict = {
        name: re.sub(
            rb"http://schemas.openxmlformats.org/(?!package)(\w+)/2006/", rb"http://purl.oclc.org/ooxml/\1/", data
        )
        for name, data in members.items()
    }
    assert strict != members
    assert read(makers.archive(path, dict(strict))).text == "Sheet\n\nWords | 2024-05-06"


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptyDocument, match="no text in it"):
        ingest(workbook(tmp_path / "a.xlsx", lambda book: None))
    row = "<row><c><v>1</v></c></row>"
    good = bare_workbook(tmp_path / "b.xlsx", row)
    assert read(good).text == "S\n\n1"
    for damage in (
        {SHEET_PART: b"<worksheet><sheetData><row>"},
        {"xl/sharedStrings.xml": b"<sst><si><t>x"},
        {"xl/workbook.xml": b" "},
    ):
        bare_workbook(good, row)
        for member, data in damage.items():
            makers.with_member(good, member, data)
        with pytest.raises(BrokenFile, match=r"b\.xlsx cannot be opened as an Excel workbook\. .*Excel or LibreOffice"):
            ingest(good)
    with pytest.raises(UnsupportedFormat, match="a binary Excel workbook \\(XLSB\\): save it as XLSX"):
        ingest(makers.archive(tmp_path / "a.xlsb", {"xl/workbook.bin": b"x"}))


def test_entities_do_not_grow(tmp_path: Path) -> None:
    laughs = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    for rows in ('<row><c t="&a9;"><v>1</v></c></row>', '<row><c t="inlineStr"><is><t>&a9;</t></is></c></row>'):
        data = f"<!DOCTYPE x [{laughs}]><worksheet {SHEET_NAMES}><sheetData>{rows}</sheetData></worksheet>"
        try:
            text = ingest(bare_workbook(tmp_path / "a.xlsx", "", data=data)).text
        except (BrokenFile, EmptyDocument) as error:
            text = str(error)
        assert len(text) < 400


def test_large_ones_are_streamed_and_have_limits(tmp_path: Path) -> None:
    empty = "".join(
        f'<row r="{row}" s="1"><c r="A{row}" s="1"/><c r="B{row}" s="1"/></row>' for row in range(1, 50_001)
    )
    with pytest.raises(EmptyDocument):
        ingest(
            bare_workbook(tmp_path / "a.xlsx", empty), limits=Limits(text_member_bytes=1 << 20)
        )  # the limit is for text that is kept
    path = bare_workbook(tmp_path / "b.xlsx", empty + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')
    assert read(path).text == "S\n\n1"
    said = '<row><c t="s"><v>0</v></c></row>' * 1000
    strings = f"<si><t>{'word ' * 100}</t></si>"
    for limits, words in (
        (Limits(characters=400), "characters"),  # characters of the strings
        (Limits(characters=100_000), "characters"),  # characters of the pages
        (Limits(text_member_bytes=300), "bytes"),
        (Limits(unpacked_bytes=1000), "bytes when unpacked"),
    ):
        with pytest.raises(TooLarge, match=words):
            ingest(bare_workbook(tmp_path / "c.xlsx", said, strings), limits=limits)
