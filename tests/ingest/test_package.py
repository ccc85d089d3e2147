"""Office files whose parts have other names, other cases, or lead nowhere."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest

from ingest import ingest
from tests.ingest import makers
from tests.ingest.test_xlsx import bare

WORDS = "The lease for the mill began in 1931."


def word(path: Path) -> Path:
    document = docx.Document()
    document.add_paragraph(WORDS)
    document.save(str(path))
    return path


def excel(path: Path) -> Path:
    book = openpyxl.Workbook()
    book.active.append([WORDS, "Sacks"])
    book.create_sheet("More").append(["Rye", 900])
    book.save(path)
    return path


def slides(path: Path) -> Path:
    show = pptx.Presentation()
    for text in (WORDS, "The second slide of two."):
        show.slides.add_slide(show.slide_layouts[5]).shapes.title.text = text
    show.save(str(path))
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {"docx": word, "xlsx": excel, "pptx": slides}


def changed(
    path: Path, name: Callable[[str], str], data: Callable[[str, bytes], bytes] = lambda name, data: data
) -> Path:
    """The same archive with its members called and filled otherwise."""
    with zipfile.ZipFile(path) as file:
        members = {name(each): data(each, file.read(each)) for each in file.namelist()}
    return makers.archive(path, members)


def everywhere(old: str, new: str) -> Callable[[str, bytes], bytes]:
    return lambda name, data: data.replace(old.encode(), new.encode())


@pytest.mark.parametrize("kind", MAKERS)
def test_parts_have_any_names(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    expected = ingest(MAKERS[kind](path))
    old = {"docx": "document.xml", "xlsx": "workbook.xml", "pptx": "presentation.xml"}[kind]
    changed(path, lambda name: name.replace(old, f"other7-{old}"), everywhere(old, f"other7-{old}"))
    assert ingest(path).pages == expected.pages


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("rename", [str.upper, str.swapcase, lambda name: name.replace("/", "\\")])
def test_parts_have_names_in_any_case_and_with_any_strokes(
    tmp_path: Path, kind: str, rename: Callable[[str], str]
) -> None:
    path = tmp_path / f"a.{kind}"
    expected = ingest(MAKERS[kind](path))
    changed(path, lambda name: name if name.startswith("[") else rename(name))
    found = ingest(path)
    assert (found.format, found.pages, found.warnings) == (kind, expected.pages, ())


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("lacking", ["[Content_Types].xml", "_rels/.rels"])
def test_what_leads_to_the_text_may_be_lacking(tmp_path: Path, kind: str, lacking: str) -> None:
    path = MAKERS[kind](tmp_path / f"a.{kind}")
    expected = ingest(path)
    with zipfile.ZipFile(path) as file:
        members = {each: file.read(each) for each in file.namelist() if each != lacking}
    assert ingest(makers.archive(path, dict(members))).text == expected.text


@pytest.mark.parametrize("target", ["NULL", "#_top", "../nowhere/a.png", "media/%zz.png", ""])
@pytest.mark.parametrize("kind", ["docx", "pptx"])
def test_a_relation_that_leads_nowhere_is_no_loss(tmp_path: Path, kind: str, target: str) -> None:
    path = MAKERS[kind](tmp_path / f"a.{kind}")
    part = {"docx": "word/document.xml", "pptx": "ppt/slides/slide1.xml"}[kind]
    makers.with_part(path, part, "image", "word/media/a.png", "x")
    relations = part.replace("/document", "/_rels/document").replace("/slide1", "/_rels/slide1") + ".rels"
    with zipfile.ZipFile(path) as file:
        known = file.read(relations)
    makers.with_member(path, relations, known.replace(b"/word/media/a.png", target.encode()))
    document = ingest(path)
    assert WORDS in document.text
    assert document.warnings == ()


def test_parts_with_words_that_are_lacking_are_named(tmp_path: Path) -> None:
    book = excel(tmp_path / "a.xlsx")
    changed(book, lambda name: name.replace("sheet2", "gone"))
    show = slides(tmp_path / "a.pptx")
    changed(show, lambda name: name.replace("slides/slide1.xml", "slides/gone.xml"))
    notes = makers.with_part(word(tmp_path / "a.docx"), "word/document.xml", "footnotes", "word/notes.xml", "<a/>")
    changed(notes, lambda name: name.replace("notes", "gone"))
    for path, lost in ((book, "More"), (show, "ppt/slides/slide1.xml"), (notes, "word/notes.xml")):
        document = ingest(path)
        assert document.warnings == (f"Not read: {lost}, which the file names but lacks. Fetch it again.",)
        assert document.text


def test_a_cell_that_names_no_text_loses_only_its_own(tmp_path: Path) -> None:
    row = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>77</v></c></row>'
    document = ingest(bare(tmp_path / "a.xlsx", row, "<si><t>one</t></si>"))
    assert document.text == "S\n\none"
    assert document.warnings == ("Not read: the text of B1 of S, which the workbook lacks.",)


def test_long_numbers_keep_all_their_digits(tmp_path: Path) -> None:
    path = excel(tmp_path / "a.xlsx")
    for written, shown in (
        *(("1.2345678901234E13", "12345678901234"), ("1.234567890123456E15", "1234567890123456")),
        *(("1.2345678901237E11", "123456789012.37"), ("1.0E2", "100"), ("4.2999999999999998", "4.3")),
        *(("-4.5E-3", "-0.0045"), ("1.5E300", "1.5e+300"), ("12345.678", "12345.678")),
    ):
        changed(path, str, lambda name, data: data.replace(b"<v>900</v>", f"<v>{written}</v>".encode()))  # noqa: B023
        assert f"Rye | {shown}" in ingest(path).text
        excel(path)
