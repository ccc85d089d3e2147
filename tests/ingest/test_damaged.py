"""Books whose markup is cut off, ill-formed or unusual: nothing is lost silently."""

import zipfile
from pathlib import Path

import pytest

from ingest import BrokenFile, ingest
from tests.ingest import makers

BOOK = (
    '<?xml version="1.0" encoding="utf-8"?>\n<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><body>\n'
    "<section><title><p>Dyke</p></title><p>Raised in 1861.</p></section>\n"
    "<section><title><p>Mill & Sons</p></title><p>R&D; a < b &nosuch; x.</p></section>\n"
    "<section><title><p>Debt</p></title><p>Nine hundred.</p></section></body></FictionBook>"
)


def test_stray_signs_of_markup_are_text(tmp_path: Path) -> None:
    document = makers.read(tmp_path / "a.fb2", BOOK)
    assert [entry.title for entry in document.toc] == ["Dyke", "Mill & Sons", "Debt"]
    assert "R&D; a < b &nosuch; x." in document.text
    assert document.warnings == ()


@pytest.mark.parametrize("end", ["Nine", "R&D", "<title><p>Debt", "</section>\n<section><title><p>Debt"])
def test_a_cut_off_book_says_where(tmp_path: Path, end: str) -> None:
    cut = BOOK[: BOOK.index(end) + len(end)]
    document = makers.read(tmp_path / "a.fb2", cut)
    line = cut.count("\n") + 1
    assert document.warnings == (f"a.fb2 is cut off at line {line}: what followed is missing. Fetch it again.",)
    assert "Raised in 1861." in document.text


def test_an_ill_formed_book_says_where(tmp_path: Path) -> None:
    document = makers.read(tmp_path / "a.fb2", BOOK.replace("Raised in", "Raised <in"))
    assert len(document.warnings) == 1
    assert document.warnings[0].startswith("a.fb2 is damaged at line 3")


@pytest.mark.parametrize("member", ["book/package.opf", "book/nav.xhtml", "book/b.xhtml"])
def test_a_cut_off_member_of_a_book_is_named(tmp_path: Path, member: str) -> None:
    nav = '<li><a href="a.xhtml">Dyke</a></li><li><a href="b.xhtml">Mill</a></li>'
    pages = {"a.xhtml": "<h1>Dyke</h1><p>Raised.</p>", "b.xhtml": "<h1>Mill</h1><p>Sold in the year 1931.</p>"}
    path = makers.epub(tmp_path / "a.epub", pages, nav)
    assert ingest(path).warnings == ()
    with zipfile.ZipFile(path) as file:
        whole = file.read(member)
    makers.with_member(path, member, whole[:-25])
    warning = ingest(path).warnings[0]
    assert member in warning
    assert "what followed is missing. Fetch it again." in warning


XHTML = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (
            XHTML.format("<p>Raised <![CDATA[in 1861 & <not> later]]> by hand.</p>"),
            "Raised in 1861 & <not> later by hand.",
        ),
        (f'<!DOCTYPE html [<!ENTITY mill "De Hoop">]>{XHTML.format("<p>&mill;&nbsp;&hellip;</p>")}', "De Hoop …"),
        (f'<!DOCTYPE html [<!ENTITY a "&b;"><!ENTITY b "x">]>{XHTML.format("<p>&a; &b;</p>")}', "&a; x"),
    ],
)
def test_chapters_are_xml(tmp_path: Path, markup: str, expected: str) -> None:
    path = makers.epub(tmp_path / "a.epub", {"a.xhtml": ""})
    assert ingest(makers.with_member(path, "book/a.xhtml", markup.encode())).text == expected
    assert makers.read(tmp_path / "a.xhtml", markup).text == expected


def test_entities_of_a_chapter_do_not_grow(tmp_path: Path) -> None:
    declared = f'<!DOCTYPE html [<!ENTITY a "{"x" * 190}">]>'
    path = makers.epub(tmp_path / "a.epub", {"a.xhtml": ""})
    makers.with_member(path, "book/a.xhtml", (declared + XHTML.format("&a;" * 100_000)).encode())
    assert len(ingest(path).text) < 6_000_000


def test_members_are_found_whatever_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"část 1.xhtml": "<p>The dyke was raised.</p>", "B.xhtml": "<p>The mill was sold.</p>"}
    path = makers.epub(tmp_path / "a.epub", pages)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    renamed = {name.replace("B.xhtml", "b.XHTML").replace("/", "\\"): data for name, data in members.items()}
    container = renamed["META-INF\\container.xml"].replace(b'full-path="', b'full-path="/')
    renamed["META-INF\\container.xml"] = container
    monkeypatch.setattr(zipfile.ZipInfo, "_encodeFilenameFlags", lambda info: (info.filename.encode(), info.flag_bits))
    makers.archive(path, dict(renamed))  # without the flag that names are in UTF-8
    document = ingest(path)
    assert document.text == "The dyke was raised.\n\nThe mill was sold."
    assert document.warnings == ()


def test_a_picture_among_the_chapters_is_read_as_the_page_that_stands_for_it(tmp_path: Path) -> None:
    path = makers.epub(tmp_path / "a.epub", {"a.svg": "", "b.xhtml": "<p>The mill was sold.</p>"})
    with zipfile.ZipFile(path) as file:
        package = file.read("book/package.opf").decode()
    drawn = '<item id="a.svg" href="a.svg" media-type="image/svg+xml" fallback="c"/>'
    drawn += '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/>'
    old = '<item id="a.svg" href="a.svg" media-type="application/xhtml+xml"/>'
    makers.with_member(path, "book/package.opf", package.replace(old, drawn).encode())
    makers.with_member(path, "book/c.xhtml", XHTML.format("<p>The dyke was raised.</p>").encode())
    document = ingest(path)
    assert document.text == "The dyke was raised.\n\nThe mill was sold."
    assert document.warnings == ()


FB2 = b"<FictionBook><body><section><p>Words of a book.</p></section></body></FictionBook>"
RTF = rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}} The mill was sold.\par It had a \{wheel\}.\par It was sold again.}"


@pytest.mark.parametrize(
    ("name", "whole", "broken", "said"),
    [
        ("a.rtf", RTF, RTF[:-12], "has no end"),
        ("b.rtf", RTF, RTF.replace(b"had", b"h}ad"), "There is text behind the end of the document"),
        ("c.rtf", RTF, RTF.replace(b"sold again", bytes(20)), "20 NULs stand"),
        ("d.rtf", RTF, RTF.replace(b"sold again", b"\x01\x02\x03\x04\x05"), "5 control characters"),
        ("a.json", b'{"mill": ["sold", "sold again"]}', b'{"mill": ["sold", "so', "does not end with }"),
        ("a.ipynb", b'{"cells": [{"source": ["sold"]}]}', b'{"cells": [{"source": ["so', "The notebook is cut off"),
        ("a.fb2", FB2, FB2.replace(b"Words", b"\xff\xfe\x93W\x8f\x81"), "not clean UTF-8"),
    ],
)
def test_what_is_cut_off_or_overwritten_is_said(
    tmp_path: Path, name: str, whole: bytes, broken: bytes, said: str
) -> None:
    """These lost text without a word."""
    assert makers.read(tmp_path / name, whole).warnings == ()
    (warning,) = makers.read(tmp_path / name, broken).warnings
    assert said in warning


@pytest.mark.parametrize("member", ["META-INF/container.xml", "book/a.xhtml"])
def test_a_book_without_a_readable_chapter_says_what_to_do(tmp_path: Path, member: str) -> None:
    chapters = {"a.xhtml": "<p>The dyke was raised.</p>"}
    path = makers.epub(tmp_path / "a.epub", chapters)
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(member)
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(info.filename) + 5] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BrokenFile, match=f"{member} cannot be unpacked .*Fetch it again"):
        ingest(path)
