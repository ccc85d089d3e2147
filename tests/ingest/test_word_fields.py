"""What Word shows in place of its codes: fields, forms, signs, deleted ends of paragraphs, objects."""

from pathlib import Path

import pytest

from ingest import ingest
from tests.ingest.test_docx import word


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def mark(kind: str, data: str = "") -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}">{data}</w:fldChar></w:r>'


def code(text: str) -> str:
    return f'<w:r><w:instrText xml:space="preserve">{text}</w:instrText></w:r>'


def field(instruction: str, result: str) -> str:
    return mark("begin") + instruction + mark("separate") + result + mark("end")


INNER = field(code(" MERGEFIELD sex "), run("m"))
CHOSEN, NOT_TICKED = '<w:result w:val="1"/>', '<w:default w:val="0"/>'
CHOICE = '<w:ffData><w:ddList>{}<w:listEntry w:val="red"/><w:listEntry w:val="green"/></w:ddList></w:ffData>'
TICK = "<w:ffData><w:checkBox>{}</w:checkBox></w:ffData>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{run('Dear ')}{field(code(' IF ') + INNER + code(' = m Mr'), run('Mr'))}{run(' Tolman')}", "Dear Mr Tolman"),
        (f"{run('by ')}{field(code(' REF a '), run('the ') + INNER)}{run(' alone')}", "by the m alone"),
        (f"{run('a')}{mark('begin')}{code(' PAGE ')}{run(' b')}", "a b"),  # never ends: no code of it is known
        (f"{run('a')}{mark('separate')}{mark('end')}{run(' b')}", "a b"),
        (f"{mark('begin', CHOICE.format(CHOSEN))}{mark('end')}", "green"),
        (f"{mark('begin', CHOICE.format(''))}{mark('end')}", "red"),
        (f"{mark('begin', TICK.format('<w:checked/>'))}{mark('end')}{run(' yes')}", "☒ yes"),
        (
            f"{mark('begin', TICK.format(NOT_TICKED))}{mark('end')}{run(' no')}",
            "☐ no",
        ),
        (
            '<w:r><w:rPr><w:rFonts w:ascii="Symbol" w:hAnsi="Symbol"/></w:rPr><w:t>\uf061 \uf0a3 b</w:t></w:r>',
            "α ≤ b",
        ),
        ('<w:r><w:rPr><w:rFonts w:ascii="Wingdings"/></w:rPr><w:t>\uf0fc</w:t></w:r>', "✓"),
    ],
)
def test_what_is_shown_is_read(tmp_path: Path, body: str, expected: str) -> None:
    assert ingest(word(tmp_path / "a.docx", f"<w:p>{body}</w:p>")).text == expected


def test_the_code_of_a_field_goes_over_paragraphs(tmp_path: Path) -> None:
    long = field(code(" IF 1 ") + "</w:p><w:p>" + INNER, run("shown") + "</w:p><w:p>" + run("and more"))
    assert (
        ingest(word(tmp_path / "a.docx", f"<w:p>{run('x ')}{long}{run(' y')}</w:p>")).text == "x\n\nshown\n\nand more y"
    )


def test_a_paragraph_whose_end_is_deleted_goes_on_in_the_next(tmp_path: Path) -> None:
    gone = '<w:pPr><w:rPr><w:del w:id="8" w:author="A"/></w:rPr></w:pPr>'
    body = f"<w:p>{gone}{run('in good ')}</w:p><w:p>{gone}{run('repair ')}</w:p><w:p>{run('until May.')}</w:p>"
    assert ingest(word(tmp_path / "a.docx", body)).text == "in good repair until May."
    assert ingest(word(tmp_path / "b.docx", f"<w:p>{run('a')}</w:p><w:p>{gone}{run('b')}</w:p>")).text == "a\n\nb"


def test_objects_of_other_programs_are_named(tmp_path: Path) -> None:
    place = (
        '<w:object xmlns:o="urn:schemas-microsoft-com:office:office"><o:OLEObject ProgID="Excel.Sheet.12"/></w:object>'
    )
    document = ingest(word(tmp_path / "a.docx", f"<w:p>{run('Prices:')}<w:r>{place}</w:r></w:p>"))
    assert document.text == "Prices:"
    assert [warning.partition(".")[0] for warning in document.warnings] == [
        "Not read: 1 object of other programs (Excel"
    ]
