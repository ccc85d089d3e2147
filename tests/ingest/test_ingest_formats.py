"""Formats without pages: chapters, lists, tables, notes, encodings."""

import re
import textwrap
import zipfile
from pathlib import Path

import docx
import pymupdf
import pytest

from ingest import BrokenFile, Document, EmptyDocument, UnsupportedFormat, ingest
from ingest.clean import raised
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


def test_equal_titles_are_told_apart_by_what_they_stand_under(tmp_path: Path) -> None:
    """Parts without a page of their own were in no table of contents, and their chapters were "1 (1)" and "1 (2)"."""
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
    package = package.replace("</manifest>", '<item id="map" href="map.svg" media-type="image/svg+xml"/></manifest>')
    package = package.replace("</spine>", '<itemref idref="map"/><itemref idref="3.xhtml"/></spine>')
    document = ingest(makers.with_member(path, "book/package.opf", package.encode()))
    assert [page.label for page in document.pages] == ["Chapter 1", "Chapter 2"]
    assert len(document.warnings) == 2
    assert "map.svg (image/svg+xml) was not read" in document.warnings[0]
    assert "'3.xhtml'" in document.warnings[1]


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
        "High\n\nWater rises\ntwice.\n\n3. three\n-- deep\n4. four\n\nPort | Hour\nBrest | 4\n\n"
        "a  b\n  c\n\n1 < 2 <script>"
    )


@pytest.mark.parametrize("count", [400, 5000])
@pytest.mark.parametrize("tag", ["div", "center", "blockquote", "font"])
def test_elements_that_are_never_closed_lose_no_text(tmp_path: Path, tag: str, count: int) -> None:
    """libxml2 stopped at 256 nested elements, or at 2,048; and what was flattened lost its paragraphs."""
    body = "".join(f"<{tag}><p>Para<b>graph</b> {n}.</p><script>no()</script>" for n in range(count))
    document = read(tmp_path / "a.html", f"<html><body>{body}</body></html>")
    paragraphs = [text for page in document.pages for text in page.text.split("\n\n")]
    assert [text.removeprefix("- ") for text in paragraphs] == [f"Paragraph {n}." for n in range(count)]
    book = makers.epub(tmp_path / "a.epub", {"a.xhtml": body})
    assert ingest(book).text == document.text


def test_elements_too_deep_to_be_read_are_no_silent_loss(tmp_path: Path) -> None:
    with pytest.raises(BrokenFile, match=r"2,048 deep: save it as plain text"):
        read(tmp_path / "a.html", "<html><body>" + "<object><p>x" * 3000)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<pre>line1<br>line2</pre>", "line1\nline2"),
        ("<pre>\n    def f():\n        return 1\n\n    f()</pre>", "def f():\n    return 1\n\nf()"),
        ("<pre><div>if a:</div><div>\tb()</div>\n<div>c()</div></pre>", "if a:\n    b()\nc()"),
        (
            "<pre>\nship    guns\tcrew\nLark       7\ts = 'a  b' </pre>",
            "ship    guns    crew\nLark       7    s = 'a  b'",
        ),
        (
            "<p>One</p></body>\n<p>two</p></html><html><body class=b><p>Three</p></BODY ></html>four",
            "One\n\ntwo\n\nThree\n\nfour",
        ),
        ("<pre>a<script>no()</script> b</pre>", "a b"),
        ('<p class="pagebreak">Chapter One</p><p>It rains.</p>', "Chapter One\n\nIt rains."),
        ('<p class="pagenum">xii</p><div class="pagenum">[Pg 12]</div><p>It <span class="pagenum">p. 3</span>', "It"),
        ("<p>So <math alttext='x^2'><mi>x</mi><mn>2</mn></math>.", "So x^2."),
        (
            "<p>So <math><semantics><mi>x</mi><annotation encoding='application/x-tex'>x_1</annotation>"
            "<annotation encoding='MathType'>MTEF</annotation></semantics></math>.",
            "So x_1.",
        ),
        ("<p>So <math><mi>x</mi><mo>=</mo><mn>2</mn></math>.", "So x=2."),
        (
            "<p>So <math><msup><mi>x</mi><mn>2</mn></msup><mi>y</mi><mo>=</mo><mn>2</mn><mfrac><mn>3</mn><mrow>"
            "<mi>a</mi><mo>+</mo><mn>1</mn></mrow></mfrac><mtext>if</mtext><msqrt><mi>b</mi></msqrt></math>.",
            "So x^2 y=2 3/(a+1)if√(b).",
        ),
        (
            "<p>So <math><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><msub>"
            "<mi>a</mi><mi>i</mi></msub><mi>sin</mi><mo>&#8289;</mo><msup><mi>f</mi><mo>′</mo></msup><mroot><mi>c</mi><mn>3"
            "</mn></mroot><mtext>or</mtext><mi>d</mi></math>.",
            "So ∑_(i=1)^n a_i sin f′√[3](c)or d.",
        ),
        (
            "<p>So <math><mo>[</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn>"
            "</mtd><mtd><mfenced separators='|'><mi>a</mi><mi>b</mi></mfenced></mtd></mtr></mtable><mo>]</mo></math>.",
            "So [1, 2; 3, (a|b)].",
        ),
        (
            "<p>So <span class=katex><span><math alttext='x^2'></math></span><span aria-hidden=true>x2</span></span>.",
            "So x^2.",
        ),
        (
            "<p>So <span style='display: none'><math alttext='y'></math></span>"
            "<img class=mwe-math-image aria-hidden=true alt='{y}'>.",
            "So {y}.",
        ),
        (
            "<ol type=a><li>x<li value=5>y<li>z</ol><p>and</p><ol reversed><li>p<li>q</ol><p>or</p>"
            "<ol type=I start=3><li>v</ol>",
            "a. x\ne. y\nf. z\n\nand\n\n2. p\n1. q\n\nor\n\nIII. v",
        ),
        ("<ol><li>one<ol><li>nested</ol></ol><ul><li>dot</ul>", "1. one\n- 1. nested\n\n- dot"),
        ("<table><tr><td>a<td>b</table><table><tr><td>c<td>d</table>", "a | b\n\nc | d"),
        ("<h3><button>Price</button> <button hidden>x</button></h3><p>5 <button>Buy</button>", "Price\n\n5"),
        ("<p>It is <del>100</del><ins>250</ins> or <s>7</s><ins>8</ins>, se<ins>v</ins>en", "It is 250 or 7 8, seven"),
        ("<h2>History<span class=mw-editsection>[edit]</span></h2><p>Old.", "History\n\nOld."),
        ("<h2>Intro<a class='headerlink' href='#i'>¶</a></h2><p>New.", "Intro\n\nNew."),
        ("<h2><a class='header-anchor' href='#i'>Intro</a></h2><p>New.", "Intro\n\nNew."),
        ("<table><tr><th>Guns<td>42</table>", "Guns | 42"),
        ("<p>A<div role=doc-footnote style='display:none'>1. Kept.</div>", "A\n\n1. Kept."),
        (
            "<p>A<aside epub:type=footnote hidden><p>1. Kept.</aside><p hidden=until-found>Folded.",
            "A\n\n1. Kept.\n\nFolded.",
        ),
        (
            "<p>See <svg><title>no</title><text>Ships in the</text><text>harbour</text></svg>",
            "See [picture: Ships in the; harbour]",
        ),
        ("<p>He said <q>no</q>.", "He said “no”."),
        ("<p>in 1990<a href='#fn1'><sup>1</sup></a>", "in 1990[1]"),
        ("<p>in 1990<a href='#fn1'><b><sup>1</sup></b></a>", "in 1990[1]"),
        ("<p>in 1990<sup><a href=n.html>3</a>, <a href=n.html>4</a></sup>", "in 1990[3,4]"),
        ("<p>in 1990<sup>5–7</sup>, 2<sup>n</sup>x<sup>2</sup>y, 1<sup>st</sup>", "in 1990^5–7, 2^n x^2 y, 1st"),
        (
            "<p><sup>1</sup>In the <sup>2</sup><b>And</b><p><a href='#r'><sup>3</sup></a>See",
            "^1 In the ^2 And\n\n[3] See",
        ),
        ("<p>word<a class=noteref href='#n2'>2</a>", "word[2]"),
        ("<p>10<sup>5</sup> and <a href='#s'>see 2</a>", "10^5 and see 2"),
        ("<table><tr><td>a<td>b</tr><tr hidden><td>secret</tr><tbody style='display:none'><tr><td>no</table>", "a | b"),
    ],
)
def test_html_markup_that_changes_what_is_said(tmp_path: Path, body: str, expected: str) -> None:
    assert read(tmp_path / "a.html", f"<!doctype html><html><body>{body}</body></html>").text == expected


def test_what_stands_in_a_table_outside_its_cells_is_read(tmp_path: Path) -> None:
    """Parsers for browsers move it before the table; ours leaves it there."""
    markup = (
        "<table xmlns='http://www.w3.org/1999/xhtml'>loose<p>para</p><tr><p>in row</p><td>a</td><td>b</td></tr></table>"
    )
    document = ingest(makers.epub(tmp_path / "a.epub", {"a.xhtml": f"<h1>One</h1>{markup}"}))
    assert document.text == "One\n\nloose\npara\nin row\na | b"


def test_a_table_of_very_many_columns_is_read_quickly(tmp_path: Path) -> None:
    cells = "".join(f"<td>{n}" for n in range(20_000))
    assert read(tmp_path / "a.html", f"<html><table><tr>{cells}</table></html>").text.endswith("| 19998 | 19999")


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
    nav += '<li><a href="b.xhtml">Be</a></li>'
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


TABLES = {
    "empty cells": (
        "<tr><th>Year<th>Import<th>Export<tr><td>1990<td><td>50<tr><td>1991<td>40<td>",
        "Year | Import | Export\n1990 | | 50\n1991 | 40",
    ),
    "spacers and signs": (
        "<tr><td><td><th colspan=3>2016<td><th colspan=3>2015<tr><td>Rent<td>$<td>1,200<td><td><td>$<td>900<td>"
        "<tr><td>Loss<td><td>(30<td>)<td><td><td><td><tr><td>Rate<td><td>4<td>%<td><td><td>5<td>%",
        "| 2016 | 2015\nRent | $1,200 | $900\nLoss | (30)\nRate | 4% | 5%",
    ),
    "a title over all": (
        "<tr><th colspan=3>Ships<tr><th><th>In<th>Out<tr><td>May<td>3<td><tr><td>June<td><td>4",
        "Ships\n| In | Out\nMay | 3\nJune | | 4",
    ),
    "cells over rows": (
        "<tr><td rowspan=2>Fruit<td>apple<td>1<tr><td>pear<td>2<tr><td>Nut<td><td>3",
        "Fruit | apple | 1\n| pear | 2\nNut | | 3",
    ),
    "an empty column": ("<tr><td>a<td><td>b<tr><td>c<td> &nbsp; <td>d", "a | b\nc | d"),
    "no row in the head": ("<thead><th>Port<th>Hour</thead><tr><td>Brest<td>4", "Port | Hour\nBrest | 4"),
    "a long remark": (
        f"<tr><th>Ship<th>Remark<tr><td>Lark<td>{'at sea ' * 60}<tr><td>Storm<td>",
        f"Ship | Remark\nLark | {'at sea ' * 60}".rstrip() + "\nStorm",
    ),
    "a long remark under no heading": (
        f"<tr><td>a<td>1<tr><td>b<td>2<tr><td>c<td>3<tr><td>d<td>{'at sea ' * 60}",
        f"a | 1\nb | 2\nc | 3\nd | {'at sea ' * 60}".rstrip(),
    ),
    "a row left open": ("<tr><td>a</tr><td>b<td>c<tr><td>d", "a\nb | c\nd"),
}


@pytest.mark.parametrize("name", TABLES)
def test_values_of_a_table_stay_under_their_headings(tmp_path: Path, name: str) -> None:
    rows, expected = TABLES[name]
    document = read(tmp_path / "a.html", f"<html><body><table><caption>All</caption>{rows}</table></body></html>")
    assert document.text == f"All\n{expected}"


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
    assert (raised(text, linked=True), raised(text, linked=False)) == (linked, plain)


def test_a_page_of_frames_says_so(tmp_path: Path) -> None:
    document = read(
        tmp_path / "a.html", "<html><frameset><frame src=b.html><noframes>No frames.</noframes></frameset></html>"
    )
    assert (document.text, len(document.warnings)) == ("No frames.", 1)
    assert "were not read: add them too" in document.warnings[0]


def test_fb2_annotations_are_read(tmp_path: Path) -> None:
    about = "<description><title-info><annotation><p>Of a lamp.</p></annotation></title-info></description>"
    body = "<body><section><title><p>One</p></title><p>It burns.</p></section></body>"
    document = read(tmp_path / "a.fb2", f"<FictionBook>{about}{body}</FictionBook>")
    assert [page.text for page in document.pages] == ["Of a lamp.", "One\n\nIt burns."]


def test_fb2_note_marks_and_powers(tmp_path: Path) -> None:
    link = '<a xmlns:l="http://www.w3.org/1999/xlink" l:href="#n1" type="note">{}</a>'
    notes = [link.format(mark) for mark in ("1", "<sup>2</sup>", "[3]")]
    body = f"<p>In 1990{notes[0]} and{notes[1]}{notes[2]} 10<sup>5</sup> 1<sup>st</sup>"
    body += f"<sup>n+1</sup><emphasis>x</emphasis><sup>{notes[0]}</sup>, <sup>2</sup>And</p>"
    document = read(tmp_path / "a.fb2", f"<FictionBook><body><section>{body}</section></body></FictionBook>")
    assert document.text == "In 1990[1] and[2][3] 10^5 1st^(n+1)x[1], ^2 And"


def test_mobi_note_marks(tmp_path: Path) -> None:
    """Its links lead to a place in the file, not to an anchor."""
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


def test_page_breaks_that_do_not_end_do_not_take_for_ever(tmp_path: Path) -> None:
    """The time grew with the square of their number: hours for these."""
    path = makers.mobi(tmp_path / "a.mobi", f"<p>The lamp.</p>{'<mbp:pagebreak ' * 700_000}")
    assert ingest(path).text == "The lamp."


def test_a_title_full_of_blanks_does_not_take_for_ever(tmp_path: Path) -> None:
    """The time grew with the square of their number: hours for these, in which nothing else could be done."""
    document = read(tmp_path / "a.md", f'---\ntitle: "a{" " * 1_000_000}b"\n---\n\nIntro.\n')
    assert document.title == "a b"


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


@pytest.mark.parametrize(
    "encoding",
    [
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-2022-jp"),
        *("cp1252", "cp1251", "gb18030", "shift_jis"),
    ],
)
def test_encodings(tmp_path: Path, encoding: str) -> None:
    words = {
        "cp1252": "“Où est l’été?” demanda-t-elle à voix basse; ça coûte 5 € près de l’église. ",
        "cp1251": "Смотритель маяка поднялся по лестнице и посчитал все корабли в гавани. ",
        "gb18030": "守灯塔的人每天晚上都要爬上三百级台阶，数一数港口里的船只。",
        "shift_jis": "灯台守は毎晩三百段の階段を登り、港に入る船の数を数えていました。",
        "iso-2022-jp": "灯台守は毎晩三百段の階段を登り、港に入る船の数を数えていました。",
    }.get(encoding, "Der Wärter zählte die Schiffe: Ärger, Öl, Übermut – 日本語. ")
    document = read(tmp_path / "a.txt", (words * 20).encode(encoding))
    assert words.strip() in document.text
    assert bool(document.warnings) == (not encoding.startswith(("utf", "iso-2022")))


@pytest.mark.parametrize(
    ("declared", "body", "expected"),
    [
        ("gb2312", "朱镕基先生".encode("gbk"), "朱镕基先生"),
        ("Shift_JIS", "①灯台守".encode("cp932"), "①灯台守"),
        ("x-sjis", "髙い灯台".encode("cp932"), "髙い灯台"),
        ("euc-kr", "똠방각하".encode("cp949"), "똠방각하"),
        ("euc-jp", b"\xad\xa1" + "灯台".encode("euc_jp"), "①灯台"),
        ("big5", b"\xf9\xd6" + "嘅".encode("big5hkscs"), "碁嘅"),
        ("us-ascii", "Café “here”".encode("cp1252"), "Café “here”"),
        ("windows-1252", b"Caf\xe9 \x81", "Café \ufffd"),
        ("windows-1251", "Маяк ".encode("cp1251") + b"\x98", "Маяк \ufffd"),
        ("utf-16", "Café".encode(), "Café"),
        ("iso-8859-1", "Café – “here”".encode(), "Café – “here”"),
        ("iso-2022-jp", "灯台".encode("iso-2022-jp"), "灯台"),
        ("unicode_escape", "Café".encode(), "Café"),
        ("no-such-thing", "Café".encode(), "Café"),
    ],
)
def test_no_byte_outside_the_declared_encoding_ends_the_text(
    tmp_path: Path, declared: str, body: bytes, expected: str
) -> None:
    """libxml2 stops at such a byte, and everything after it was lost without a word."""
    head = f"<html><head><meta charset={declared}></head><body><p>"
    document = read(tmp_path / "a.html", head.encode() + body + b"</p><p>The end.</p></body></html>")
    assert document.text == f"{expected}\n\nThe end."
    assert not any("read as" in warning for warning in document.warnings)
    book = f'<?xml version="1.0" encoding="{declared}"?><FictionBook><body><section><p>'
    document = read(tmp_path / "a.fb2", book.encode() + body + b"</p><p>The end.</p></section></body></FictionBook>")
    assert document.text == f"{expected}\n\nThe end."


def test_a_doubt_about_characters_speaks_of_no_font(tmp_path: Path) -> None:
    document = read(tmp_path / "a.html", b"<meta charset=windows-1251><p>\x98 " + "Маяк".encode("cp1251"))
    assert document.pages[0].quality.warnings == ("1 of 5 characters could not be read in the file's encoding",)


MAIL = """From: Anne Lee <anne@example.org>
Subject: =?utf-8?q?The_lamp_=E2=80=94_again?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: base64

Q2Fm6SBhdCBzZXZlbi4=
--b
Content-Type: text/plain
Content-Disposition: attachment; filename="plan.txt"

Nothing.
--b--
"""
ARCHIVE = """From: <Saved by Blink>
Subject: Frames
MIME-Version: 1.0
Content-Type: multipart/related; boundary="b"; type="text/html"

--b
Content-Type: text/html; charset=utf-8

<html><frameset><frame src="cid:1"></frameset></html>
--b
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: quoted-printable

<html><body><h1>=C3=9Cber uns</h1><p>Long w=
ords.</p></body></html>
--b--
"""


def test_mail_and_web_archives(tmp_path: Path) -> None:
    document = read(tmp_path / "a.eml", MAIL.replace("\n", "\r\n"))
    said = "From: Anne Lee <anne@example.org>\nSubject: The lamp — again"
    assert (document.format, document.title, document.text) == ("eml", "The lamp — again", f"{said}\n\nCafé at seven.")
    assert document.warnings == ("Attached and not read: plan.txt. Save what you need and add it.",)
    document = read(tmp_path / "a.mht", ARCHIVE)
    assert (document.format, document.title, document.text) == ("mhtml", "Frames", "Über uns\n\nLong words.")
    assert read(tmp_path / "a.md", MAIL).format == "md"
    with pytest.raises(EmptyDocument, match="has no text in it"):
        read(tmp_path / "b.mht", ARCHIVE[: ARCHIVE.index("--b\nContent-Type: text/html; charset=utf-8\nContent-T")])


def test_markup_that_declares_no_encoding_is_guessed_with_a_warning(tmp_path: Path) -> None:
    words = "Смотритель маяка поднялся по лестнице и посчитал все корабли в гавани. "
    body = f"<p>{words * 20}</p>".encode("cp1251")
    document = read(tmp_path / "a.html", b"<html><body>" + body)
    assert words.strip() in document.text
    assert "read as cp1251" in document.warnings[0]
    late = b"<html><head><script>" + b" " * 4000 + b"</script><meta charset=windows-1251></head>" + body
    document = read(tmp_path / "b.html", late)
    assert words.strip() in document.text
    assert not document.warnings
    book = makers.epub(tmp_path / "a.epub", {"a.xhtml": ""})
    document = ingest(makers.with_member(book, "book/a.xhtml", b"<html><body>" + body))
    assert words.strip() in document.text
    assert any("book/a.xhtml" in warning and "cp1251" in warning for warning in document.warnings)
