"""Formats without pages: chapters, lists, notes, front matter, paragraphs."""

import re
import struct
import textwrap
import zipfile
from pathlib import Path

import docx
import pymupdf
import pytest

from ingest import UnsupportedFormat, ingest
from ingest.clean import superscript
from tests.ingest import makers
from tests.ingest.makers import PROSE, read


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


def test_equal_titles_are_told_apart_by_what_they_stand_under(tmp_path: Path) -> None:
    """Parts without a page were in no table of contents, and their chapters were "1 (1)" and "1 (2)"."""
    chapters = {f"{name}.xhtml": f"<h2>{name[1]}</h2><p>Words of {name}.</p>" for name in ("a1", "a2", "b1", "b2")}
    part = (
        '<li><span>Part {0}</span><ol><li><a href="{0}1.xhtml">1</a></li><li><a href="{0}2.xhtml">2</a></li></ol></li>'
    )
    nav = "<li><span>Nothing</span></li>" + part.format("a") + part.format("b")
    document = ingest(makers.epub(tmp_path / "a.epub", chapters, nav))
    assert [page.label for page in document.pages] == [
        f"Part {part}: Chapter {number}" for part in ("a", "b") for number in (1, 2)
    ]
    assert [(entry.level, entry.title, entry.page) for entry in document.toc] == [
        *((1, "Part a", 1), (2, "1", 1), (2, "2", 2), (1, "Part b", 3), (2, "1", 3), (2, "2", 4)),
    ]


def test_an_entry_that_leads_nowhere_names_no_other_place(tmp_path: Path) -> None:
    nav = "".join(f'<li><a href="a.xhtml#{part}">{part.title()}</a></li>' for part in ("lost", "kept", "gone", "end"))
    body = '<p>One.</p><p id="kept">Two.</p><p id="end">Three.</p>'
    document = ingest(makers.epub(tmp_path / "a.epub", {"a.xhtml": body}, nav))
    assert [page.label for page in document.pages] == ["Lost", "Kept", "End"]
    assert [(entry.title, entry.page) for entry in document.toc] == [("Lost", 1), ("Kept", 2), ("Gone", 2), ("End", 3)]


def test_one_bad_chapter_never_stops_the_book(tmp_path: Path) -> None:
    chapters = {"a.xhtml": "<h1>A</h1><p>Alpha.</p>", "b.xhtml": "<h1>B</h1><p>Beta.</p>"}
    whole = makers.epub(tmp_path / "whole.epub", chapters)
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != "book/a.xhtml"}
    document = ingest(makers.archive(tmp_path / "holed.epub", members))
    assert "Beta." in document.text
    assert any("book/a.xhtml" in warning for warning in document.warnings)


def test_the_spine_loses_no_chapter_without_a_warning(tmp_path: Path) -> None:
    chapters = {f"{n}.xhtml": f"<h1>Chapter {n}</h1><p>Words of {n}.</p>" for n in (1, 2)}
    path = makers.epub(tmp_path / "a.epub", chapters)
    with zipfile.ZipFile(path) as archive:
        package = archive.read("book/package.opf").decode()
    package = package.replace(
        'href="2.xhtml" media-type="application/xhtml+xml"', 'href="2.xhtml" media-type="application/xml"'
    )
    package = package.replace("</manifest>", '<item id="map" href="map.png" media-type="image/png"/></manifest>')
    package = package.replace("</spine>", '<itemref idref="map"/><itemref idref="3.xhtml"/></spine>')
    document = ingest(makers.with_member(path, "book/package.opf", package.encode()))
    assert [page.label for page in document.pages] == ["Chapter 1", "Chapter 2"]
    assert len(document.warnings) == 2
    assert "map.png (image/png) was not read" in document.warnings[0]
    assert "'3.xhtml'" in document.warnings[1]


def test_a_drawing_of_the_spine_is_a_page_of_its_lines(tmp_path: Path) -> None:
    path = makers.epub(tmp_path / "a.epub", {"a.xhtml": "<p>One.</p>", "b.svg": "", "c.xhtml": "<p>Two.</p>"})
    with zipfile.ZipFile(path) as archive:
        package = archive.read("book/package.opf").decode()
    old = 'href="b.svg" media-type="application/xhtml+xml"'
    package = package.replace(old, 'href="b.svg" media-type="image/svg+xml"')
    drawing = (
        '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><title>Notice</title><defs><text>no</text></defs>'
        '<g><text y="9">No <tspan font-weight="bold">crossing</tspan>'
        '<tspan x="0" dy="1.2em">after dark.</tspan></text></g>'
        "<switch><foreignObject><p>The warden</p></foreignObject><text>Upgrade</text></switch></svg>"
    )
    path = makers.with_member(path, "book/package.opf", package.encode())
    document = ingest(makers.with_member(path, "book/b.svg", drawing.encode()))
    assert document.text == "One.\n\nNo crossing\nafter dark.\nThe warden\n\nTwo."
    assert document.warnings == ()


def test_one_case_of_a_switch_is_read(tmp_path: Path) -> None:
    math = '<epub:case required-namespace="http://www.w3.org/1998/Math/MathML"><math><mi>r</mi></math></epub:case>'
    chem = '<epub:case required-namespace="http://www.xml-cml.org/schema"><cml>H O H</cml></epub:case>'
    page = "<p>It is <epub:switch>{}<epub:default><span>a picture</span></epub:default></epub:switch> here.</p>"
    for case, text in ((math, "It is r here."), (chem, "It is a picture here.")):
        assert ingest(makers.epub(tmp_path / "a.epub", {"a.xhtml": page.format(case)})).text == text


def test_pages_outside_the_spine_are_named(tmp_path: Path) -> None:
    """Notes that only links lead to were left out silently."""
    files = {"book/notes.xhtml": "<p>A note.</p>", "book/cover.xhtml": "<img src=a.png>"}
    path = makers.epub(tmp_path / "a.epub", {"a.xhtml": "<p>Word.</p>"}, "<li><a href='a.xhtml'>A</a></li>", **files)
    with zipfile.ZipFile(path) as archive:
        package = archive.read("book/package.opf").decode()
    items = "".join(f'<item id="{n}" href="{n}.xhtml" media-type="text/html"/>' for n in ("notes", "cover", "lost"))
    document = ingest(
        makers.with_member(path, "book/package.opf", package.replace("</manifest>", f"{items}</manifest>").encode())
    )
    assert document.text == "Word."
    assert document.warnings == ("Not among the chapters of the book, and not read: notes.xhtml.",)


@pytest.mark.parametrize(("said", "written"), [(1252, "utf-8"), (65001, "cp1252"), (1251, "utf-8")])
def test_a_mobi_header_may_name_another_encoding(tmp_path: Path, said: int, written: str) -> None:
    page = "<h1>Die Fähre</h1><p>Sie wurde im Frühling für 900 € verkauft.</p><h1>Die Brücke</h1><p>Sie blieb.</p>"
    path = makers.mobi(tmp_path / "a.mobi", page)
    data = path.read_bytes().replace(page.encode(), page.encode(written).ljust(len(page.encode())))
    start = data.index(b"MOBI", 70)
    path.write_bytes(data[: start + 12] + struct.pack(">L", said) + data[start + 16 :])
    document = ingest(path)
    assert [entry.title for entry in document.toc] == ["Die Fähre", "Die Brücke"]
    assert "im Frühling für 900 € verkauft" in document.text


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


def test_azw3_ends_where_its_style_sheets_begin(tmp_path: Path) -> None:
    chapters = "".join(
        f"<?xml version='1.0'?><html><head><title>x</title></head><body><h1>Chapter {n}</h1></body></html>"
        f"<p>{PROSE * 30}</p>"
        for n in (1, 2)
    )
    path = makers.mobi(tmp_path / "a.azw3", chapters, style="p { margin: 0 } h1 { color: black }")
    document = ingest(path)
    assert [page.text for page in document.pages] == [f"Chapter {n}\n\n{(PROSE * 30).strip()}" for n in (1, 2)]
    path.write_bytes(path.read_bytes().replace(b"FDST", b"DATP"))
    with pytest.raises(UnsupportedFormat, match=r"a\.azw3 is an AZW3 book .* convert it to EPUB"):
        ingest(path)


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


def test_markdown_that_is_nested_without_end_loses_nothing(tmp_path: Path) -> None:
    levels = "".join("  " * depth + f"- level {depth}\n" for depth in range(12))
    document = read(tmp_path / "a.md", f"{levels}\n\n# After\n\nThe rest.\n")
    assert "level 11" in document.text
    assert (document.text.endswith("The rest."), document.warnings) == (True, ())
    document = read(tmp_path / "b.md", "> " * 300 + "deep\n\n# After\n\nThe rest.\n")
    assert "deep" in document.text
    assert "The rest." in document.text
    assert any("read as plain text" in warning for warning in document.warnings)


@pytest.mark.parametrize("name", ["views.py", "app.jsx", "log.csv"])
def test_programs_and_tables_may_speak_of_html(tmp_path: Path, name: str) -> None:
    text = 'def page(a, b):\n    """<html><body>of it</body>"""\n    if a<b and b>a:\n        return 1'
    document = read(tmp_path / name, text)
    assert (document.format, document.text) == ("txt", text)


def test_odd_nodes_and_links_in_a_table_of_contents_lose_nothing(tmp_path: Path) -> None:
    chapters = {"a.xhtml": "<h1>A</h1><p>Alpha.</p>", "b.xhtml": "<h1>B</h1><p>Beta.</p>"}
    nav = '<li>&nbsp;<?x y?><a href="a.xhtml">A&eacute;</a></li><li><a href="http://[bad/">C</a></li>'
    nav += '<li><x:y><ol><li><a href="b.xhtml">Be</a></li></ol></x:y></li>'  # x is declared nowhere
    document = ingest(makers.epub(tmp_path / "a.epub", chapters, nav))
    assert "Beta." in document.text
    assert [entry.title for entry in document.toc] == ["Aé", "Be"]


def test_fb2_has_named_entities_and_titles_of_stanzas(tmp_path: Path) -> None:
    poem = "<poem><stanza><title><p>I</p></title><v>Line.</v></stanza></poem>"
    body = f"<section><p>Caf&eacute;&nbsp;au lait &mdash; fine &amp; good.</p>{poem}</section>"
    document = read(tmp_path / "a.fb2", f"<FictionBook><body>{body}</body></FictionBook>")
    assert document.text == "Café au lait — fine & good.\n\nI\nLine."


def test_markdown_code_keeps_its_indentation(tmp_path: Path) -> None:
    code = "def f(x):\n    if x:\n        return 1\n\n    return 2"
    assert read(tmp_path / "a.md", f"# Code\n\n```python\n{code}\n```\n\n- item\n\n      a\n        b\n").text == (
        f"Code\n\n{code}\n\n- item\na\n  b"
    )


def test_fb2_and_docx_tables_keep_their_columns(tmp_path: Path) -> None:
    rows = [["Year", "Import", "Export"], ["1990", "", "50"], ["1991", "40", ""]]
    expected = "Year | Import | Export\n1990 | | 50\n1991 | 40"
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    book = f"<FictionBook><body><section><table>{cells}</table></section></body></FictionBook>"
    assert read(tmp_path / "a.fb2", book).text == expected
    document = docx.Document()
    table = document.add_table(4, 3)
    for index, row in enumerate(rows):
        for cell, text in zip(table.rows[index].cells, row, strict=True):
            cell.text = text
    table.rows[3].cells[0].merge(table.rows[3].cells[1]).text = "Both"
    table.rows[3].cells[2].text = "90"
    document.save(str(tmp_path / "a.docx"))
    assert ingest(tmp_path / "a.docx").text == f"{expected}\nBoth | | 90"


@pytest.mark.parametrize(
    ("text", "linked", "plain"),
    [
        *(("1", "[1]", "^1"), ("3, 4", "[3,4]", "^3,4"), ("5–7", "[5–7]", "^5–7"), ("[8]", "[8]", "[8]")),
        *(("a", "[a]", "a"), ("*", "[*]", "*"), ("note 1", "[note 1]", "^(note 1)"), ("↩", "↩", "↩")),
        *(("th", "th", "th"), ("ème", "ème", "ème"), ("™", "™", "™"), ("", "", "")),
        *(("-1", "^-1", "^-1"), ("x" * 40, "x" * 40, "x" * 40), (" 2+ ", "[2+]", "^(2+)"), ("1/2", "[1/2]", "^(1/2)")),
        ("(i)", "[i]", "^(i)"),
    ],
)
def test_what_is_raised_stands_on_the_line(text: str, linked: str, plain: str) -> None:
    assert (superscript(text, linked=True), superscript(text, linked=False)) == (linked, plain)


def test_fb2_annotations_are_read(tmp_path: Path) -> None:
    about = "<description><title-info><annotation><p>Of a lamp.</p></annotation></title-info></description>"
    body = "<body><section><title><p>One</p></title><p>It burns.</p></section></body>"
    document = read(tmp_path / "a.fb2", f"<FictionBook>{about}{body}</FictionBook>")
    assert [page.text for page in document.pages] == ["Of a lamp.", "One\n\nIt burns."]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "Before<p>a</p>loose <emphasis>b</emphasis> text<ul><li>c</li></ul>",
            "Before\n\na\n\nloose\n\nb\n\ntext\n\nc",
        ),
        ("<table><tbody><tr><td>a</td><td>b</td></tr></tbody></table>", "a | b"),
        ("<image alt='Ships in the harbour'/><p>See.</p>", "[picture: Ships in the harbour]\n\nSee."),
        ("<p>See <image title='Ships in the harbour'/>.</p>", "See [picture: Ships in the harbour] ."),
        ("<p>a</p><q:z>b</q:z>", "a\n\nb"),
    ],
    ids=["loose", "table", "picture", "picture in a line", "namespace of nobody"],
)
def test_fb2_as_programs_write_it_loses_no_words(tmp_path: Path, section: str, expected: str) -> None:
    body = f"<FictionBook><body><section>{section}</section></body></FictionBook>"
    assert read(tmp_path / "a.fb2", body).text == expected


def test_fb2_note_marks_and_powers(tmp_path: Path) -> None:
    link = '<a xmlns:l="http://www.w3.org/1999/xlink" l:href="#n1" type="note">{}</a>'
    notes = [link.format(mark) for mark in ("1", "<sup>2</sup>", "[3]")]
    body = f"<p>In 1990{notes[0]} and{notes[1]}{notes[2]} 10<sup>5</sup> 1<sup>st</sup>"
    body += f"<sup>n+1</sup><emphasis>x</emphasis><sup>{notes[0]}</sup>, <sup>2</sup>And</p>"
    document = read(tmp_path / "a.fb2", f"<FictionBook><body><section>{body}</section></body></FictionBook>")
    assert document.text == "In 1990[1] and[2][3] 10^5 1st^(n+1)x[1], ^2 And"


def test_mobi_note_marks(tmp_path: Path) -> None:
    """Links of MOBI lead to a place in the file, not to an anchor."""
    path = makers.mobi(tmp_path / "a.mobi", "<p>in 1990<sup><a filepos=0000000040>1</a></sup>, 10<sup>5</sup>")
    assert ingest(path).text == "in 1990[1], 10^5"


def test_markdown_front_matter_names_the_title(tmp_path: Path) -> None:
    document = read(
        tmp_path / "a.md", "---\ntitle: 'The Tides'\n---\n\nIntro *here*.\n\n# One\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    assert document.title == "The Tides"
    assert [(page.label, page.text) for page in document.pages] == [
        ("opening", "Intro here."),
        ("One", "One\n\na | b\n1 | 2"),
    ]
    document = read(tmp_path / "b.md", '+++\ntitle = "The Tides"\n+++\n\nIntro.\n')
    assert (document.title, document.text) == ("The Tides", "Intro.")


def test_markdown_between_two_rules_is_text(tmp_path: Path) -> None:
    """All text before the second rule was taken for front matter and left out."""
    assert read(tmp_path / "a.md", "---\n\nFirst.\n\n---\n\nSecond.\n").text == "First.\n\nSecond."
    assert read(tmp_path / "b.md", "---\nFirst: one.\nTwo.\n---\n\nThird.\n").text == "First: one. Two.\n\nThird."
    front = (
        "---\n# about\ntitle: Tides\ntags:\n- sea\n\nabout: |\n  Of\n  water\nat: 12:30\nlist: [\n]\n...\n\nWords.\n"
    )
    document = read(tmp_path / "c.md", front)
    assert (document.title, document.text) == ("Tides", "Words.")


def test_markdown_may_speak_of_a_name_in_angles_alone_on_a_line(tmp_path: Path) -> None:
    """It was taken for an element, and left out."""
    text = "Save as\n\n<file>\n\nor\n\n- <folder>\n\n<div>\nor *both*\n</div>\n"
    assert read(tmp_path / "a.md", text).text == "Save as\n\n<file>\n\nor\n\n- <folder>\n\nor *both*"


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
