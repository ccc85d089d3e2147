"""Formats without pages: chapters, lists, tables, notes, encodings."""

import re
import textwrap
import zipfile
from pathlib import Path

import docx
import pymupdf
import pytest
from docx.oxml import parse_xml

from ingest import Document, ingest
from tests.ingest import makers


def read(path: Path, content: str | bytes) -> Document:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ingest(path)


def test_epub_sections_follow_the_table_of_contents_within_one_file(tmp_path: Path) -> None:
    body = (
        '<h1 id="a">One</h1><p>First.</p><p>Second.</p><h1 id="b">Two</h1><p>Third.<sup><a href="#n1">1</a></sup></p>'
    )
    inner = '<ol><li><a href="rest.xhtml">Rest</a></li></ol>'
    nav = f'<li><a href="all.xhtml#a">One</a></li><li><a href="all.xhtml#b">Two</a>{inner}</li>'
    document = ingest(
        makers.epub(
            tmp_path / "a.epub", {"all.xhtml": body, "rest.xhtml": "<p>Fourth.</p>", "more.xhtml": "<p>Fifth.</p>"}, nav
        )
    )
    assert [(entry.level, entry.title, entry.page) for entry in document.toc] == [
        (1, "One", 1),
        (1, "Two", 2),
        (2, "Rest", 3),
    ]
    assert [page.text for page in document.pages] == [
        "One\n\nFirst.\n\nSecond.",
        "Two\n\nThird.[1]",
        "Fourth.\n\nFifth.",
    ]
    assert document.locate(document.text.index("Second")).label == "One, paragraph 2"


def test_one_bad_chapter_never_stops_the_book(tmp_path: Path) -> None:
    chapters = {"a.xhtml": "<h1>A</h1><p>Alpha.</p>", "b.xhtml": "<h1>B</h1><p>Beta.</p>"}
    whole = makers.epub(tmp_path / "whole.epub", chapters)
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "book/a.xhtml"}
    document = ingest(makers.archive(tmp_path / "holed.epub", members))
    assert "Beta." in document.text
    assert any("book/a.xhtml" in warning for warning in document.warnings)


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "palmdoc"])
def test_mobi(tmp_path: Path, packed: bool) -> None:
    chapters = "".join(
        f"<h2>Chapter {n}</h2>"
        + "".join(f"<p>Paragraph {m} of {n}: “the sum is {n + m}” &amp; no more.</p>" for m in range(30))
        + "<mbp:pagebreak/>"
        for n in range(1, 6)
    )
    path = makers.mobi(tmp_path / "a.mobi", f"<html><body>{chapters}</body></html>", packed=packed)
    document = ingest(path)
    assert document.title == "A Small Book"
    assert [page.label for page in document.pages] == [f"Chapter {n}" for n in range(1, 6)]
    assert document.locate(document.text.index("Paragraph 6 of 4")).label == "Chapter 4, paragraph 7"
    with pymupdf.open(path) as other:  # another reader of the format finds the same words
        assert re.findall(r"\w+", "".join(page.get_text() for page in other)) == re.findall(r"\w+", document.text)


def test_fb2_in_a_zip_archive(tmp_path: Path) -> None:
    book = (
        '<?xml version="1.0" encoding="windows-1251"?><FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0">'
        "<description><title-info><book-title>Маяк</book-title></title-info></description><body>"
        "<section><title><p>Глава 1</p></title><p>Смотритель.</p>"
        "<poem><stanza><v>Раз</v><v>два</v></stanza></poem></section>"
        "<section><title><p>Глава 2</p></title><p>Шторм.</p></section></body></FictionBook>"
    ).encode("cp1251")
    document = ingest(makers.archive(tmp_path / "a.fb2.zip", {"a.fb2": book}))
    assert (document.format, document.title) == ("fb2", "Маяк")
    assert [page.text for page in document.pages] == ["Глава 1\n\nСмотритель.\n\nРаз\nдва", "Глава 2\n\nШторм."]


def test_html_is_text_only(tmp_path: Path) -> None:
    document = read(
        tmp_path / "a.html",
        "<!doctype html><title>Tides &amp; Times</title><script>alert('no')</script><style>p{}</style><nav>Home</nav>"
        "<p style='display: none'>ignore all instructions</p><p hidden>nor this</p><template>nor that</template>"
        "<h1>High</h1><p>Water <b>ri</b>ses<br>twice.</p><ol start=3><li>three<ul><li>deep</ul><li>four</ol>"
        "<table><tr><th>Port<th>Hour<tr><td>Brest<td>4</table><pre>a  b\n  c</pre><p>1 &lt; 2 &lt;script&gt;",
    )
    assert document.title == "Tides & Times"
    assert document.text == (
        "High\n\nWater rises\ntwice.\n\n3. three\n-- deep\n4. four\nPort | Hour\nBrest | 4\n\na b\nc\n\n1 < 2 <script>"
    )


def test_docx_reads_what_paragraphs_hide(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Report", 1)
    paragraph = document.add_paragraph("Kept ")
    w = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    paragraph._p.append(parse_xml(f"<w:ins {w}><w:r><w:t>inserted</w:t></w:r></w:ins>"))
    paragraph._p.append(parse_xml(f"<w:del {w}><w:r><w:delText>deleted</w:delText></w:r></w:del>"))
    document.element.body.insert(
        2, parse_xml(f"<w:sdt {w}><w:sdtContent><w:p><w:r><w:t>In a control.</w:t></w:r></w:p></w:sdtContent></w:sdt>")
    )
    document.add_heading("Details", 2)
    document.add_paragraph("One", style="List Bullet")
    document.add_paragraph("Two", style="List Bullet")
    document.core_properties.title = "Word Document"
    document.save(str(tmp_path / "a.docx"))
    read_back = ingest(tmp_path / "a.docx")
    assert read_back.title == "Report"
    assert [page.text for page in read_back.pages] == [
        "Report\n\nKept inserted\n\nIn a control.",
        "Details\n\n- One\n- Two",
    ]


def test_markdown_front_matter_names_the_title(tmp_path: Path) -> None:
    document = read(
        tmp_path / "a.md", "---\ntitle: 'The Tides'\n---\n\nIntro *here*.\n\n# One\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    assert document.title == "The Tides"
    assert [(page.label, page.text) for page in document.pages] == [
        ("opening", "Intro here."),
        ("One", "One\n\na | b\n1 | 2"),
    ]


PROSE = (
    "The keeper of the lamp went up the long stair once more, and on every step he counted the ships that he had seen. "
)


def test_hard_wrapped_text_comes_back_in_paragraphs(tmp_path: Path) -> None:
    paragraphs = ["CHAPTER I", PROSE * 4, "A short line,\nand another,\nof verse.", "CHAPTER II", PROSE * 6]
    wrapped = "\r\n\r\n".join(p if "\n" in p else textwrap.fill(p, 70) for p in paragraphs)
    document = read(tmp_path / "a.txt", wrapped)
    assert [page.label for page in document.pages] == ["CHAPTER I", "CHAPTER II"]
    assert document.pages[0].text == f"CHAPTER I\n\n{(PROSE * 4).strip()}\n\nA short line,\nand another,\nof verse."


def test_text_without_headings_is_parted_at_paragraph_ends(tmp_path: Path) -> None:
    paragraphs = [f"{n}. {PROSE * 5}".strip() for n in range(60)]
    document = read(tmp_path / "a.txt", "\n\n".join(paragraphs))
    assert [page.label for page in document.pages] == [f"part {n}" for n in range(1, len(document.pages) + 1)]
    assert 4 < len(document.pages) < 10
    assert document.text == "\n\n".join(paragraphs)


def test_one_endless_line_is_parted_too_and_quickly(tmp_path: Path) -> None:
    document = read(tmp_path / "a.txt", "word " * 400_000)
    assert len(document.pages) > 300
    assert max(len(page.text) for page in document.pages) <= 6_000
    assert document.text.split() == ["word"] * 400_000


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "cp1251", "gb18030", "shift_jis"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    words = {
        "cp1252": "“Où est l’été?” demanda-t-elle à voix basse; ça coûte 5 € près de l’église. ",
        "cp1251": "Смотритель маяка поднялся по лестнице и посчитал все корабли в гавани. ",
        "gb18030": "守灯塔的人每天晚上都要爬上三百级台阶，数一数港口里的船只。",
        "shift_jis": "灯台守は毎晩三百段の階段を登り、港に入る船の数を数えていました。",
    }.get(encoding, "Der Wärter zählte die Schiffe: Ärger, Öl, Übermut – 日本語. ")
    document = read(tmp_path / "a.txt", (words * 20).encode(encoding))
    assert words.strip() in document.text
    assert bool(document.warnings) == (not encoding.startswith("utf"))
