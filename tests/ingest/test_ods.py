"""OpenDocument sheets: what cells show, repeated cells, comments, hidden sheets."""

from pathlib import Path

import pytest

from ingest import BrokenFile, Document, EmptyDocument, TooLarge, ingest
from ingest.conversion import ConvertOptions
from ingest.limits import Limits
from ingest.office.ods import convert
from tests.ingest import makers
from tests.ingest.office_makers import ODF_NAMES

KIND = "application/vnd.oasis.opendocument.spreadsheet"
HIDDEN = (
    '<style:style style:name="ta2" style:family="table"><style:table-properties table:display="false"/></style:style>'
)


def content(sheets: str) -> str:
    return (
        f"<office:document {ODF_NAMES} office:mimetype='{KIND}'>"
        f"<office:meta><dc:title>Accounts</dc:title></office:meta>"
        f"<office:automatic-styles>{HIDDEN}</office:automatic-styles>"
        f"<office:body><office:spreadsheet>{sheets}</office:spreadsheet></office:body></office:document>"
    )


def sheet(rows: str, name: str = "Rents", style: str = "ta1") -> str:
    return f'<table:table table:name="{name}" table:style-name="{style}">{rows}</table:table>'


def row(*cells: str, repeated: int = 1) -> str:
    return f'<table:table-row table:number-rows-repeated="{repeated}">{"".join(cells)}</table:table-row>'


def cell(text: str = "", **attributes: str) -> str:
    said = " ".join(f'{key.replace("__", ":").replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<table:table-cell {said}>{f'<text:p>{text}</text:p>' if text else ''}</table:table-cell>"


def number(text: str, value: str) -> str:
    return cell(text, office__value_type="float", office__value=value)


def read(folder: Path, sheets: str) -> Document:
    meta = "<office:meta><dc:title>Accounts</dc:title></office:meta>"
    meta = f"<office:document-meta {ODF_NAMES}>{meta}</office:document-meta>"
    whole = ingest(
        makers.archive(folder / "a.ods", {"mimetype": KIND, "content.xml": content(sheets), "meta.xml": meta})
    )
    flat = makers.read(folder / "a.fods", '<?xml version="1.0"?>' + content(sheets))
    assert (whole.text, whole.warnings, whole.title) == (flat.text, flat.warnings, flat.title)
    assert (whole.format, flat.format) == ("ods", "ods")
    return whole


def test_cells_come_as_they_are_shown_under_their_headings(tmp_path: Path) -> None:
    document = read(
        tmp_path,
        sheet(
            row(cell("House"), cell("Rent"), cell("Since"))
            + row(cell("Mill Lane 4"), number("1,200.50 €", "1200.5"), number("1 May 2019", "43586"))
            + row(cell("Ferry Road 9"), number("980.00 €", "980"), number("", "43900"))
        ),
    )
    assert document.title == "Accounts"
    assert document.text == (
        "Rents\n\nHouse | Rent | Since\nMill Lane 4 | 1,200.50 € | 1 May 2019\nFerry Road 9 | 980.00 € | 43900"
    )
    assert [(entry.title, entry.page) for entry in document.toc] == [("Rents", 1)]


def test_repeated_cells_and_rows_stand_in_their_places(tmp_path: Path) -> None:
    repeated = cell("same", table__number_columns_repeated="2")
    rows = row(cell("a"), cell("b"), cell("c")) + row(cell("x"), repeated, repeated=2)
    gap = row(cell(table__number_columns_repeated="16384"), repeated=1_048_000)
    document = read(tmp_path, sheet(rows + gap + row(cell("last"))))
    assert document.text == "Rents\n\na | b | c\nx | same | same\nx | same | same\n\nlast"


def test_nothing_within_the_sheet_is_lost(tmp_path: Path) -> None:
    comment = "<office:annotation><dc:creator>Ines</dc:creator><text:p>paid late</text:p></office:annotation>"
    box = "<draw:frame><draw:text-box><text:p>See the deed.</text:p></draw:text-box></draw:frame>"
    noted = f"<table:table-cell><text:p>980</text:p>{comment}</table:table-cell>"
    boxed = f"<table:table-cell>{box}</table:table-cell>"
    group = (
        f"<table:table-row-group><table:table-rows>{row(cell('in a group'))}</table:table-rows></table:table-row-group>"
    )
    shape = "<table:shapes><draw:custom-shape><text:p>On a shape.</text:p></draw:custom-shape></table:shapes>"
    document = read(tmp_path, sheet(shape + row(noted, boxed) + group, "A") + sheet(row(cell("secret")), "B", "ta2"))
    assert [page.label for page in document.pages] == ["A", "B (hidden)"]
    assert document.pages[0].text == (
        "A\n\n980 [comment by Ines: paid late]\nin a group\n\nSee the deed.\n\nOn a shape."
    )
    assert document.warnings == ("Hidden in the workbook, but read: B.",)


def test_a_formula_without_a_result_is_written_out_and_counted(tmp_path: Path) -> None:
    document = read(tmp_path, sheet(row(cell("total"), cell(table__formula="of:=SUM([.A1:.A9])"))))
    assert document.text.endswith("total | =SUM([.A1:.A9])")
    assert document.warnings[0].startswith("1 formula without a result")


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptyDocument, match="has no text in it"):
        read(tmp_path, sheet(row(cell(), cell())))
    for bad in ("", "<office:document/>", content(sheet(row(cell("x"))))[:400]):
        with pytest.raises(BrokenFile, match="cannot be opened as an OpenDocument spreadsheet"):
            ingest(makers.archive(tmp_path / "bad.ods", {"mimetype": KIND, "content.xml": bad}))
    bomb = content(sheet(row(cell("x" * 50, table__number_columns_repeated="16384"), repeated=1_048_576)))
    path = makers.archive(tmp_path / "bomb.ods", {"mimetype": KIND, "content.xml": bomb})
    with pytest.raises(TooLarge, match="characters"):
        convert(path, ConvertOptions(limits=Limits(characters=3_000_000)))
