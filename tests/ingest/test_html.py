"""HTML: markup that changes the meaning, tables, elements without end."""

import re
from pathlib import Path

import pytest

from ingest import BrokenFile, EmptyDocument, ingest
from tests.ingest import makers
from tests.ingest.makers import read


def test_pages_are_text_only(tmp_path: Path) -> None:
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
    """libxml2 stopped at 256 nested elements, or at 2,048; flattened text lost its paragraphs."""
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
        (  # a book that had one was refused
            "<p>So <m:math><m:msup><m:mi>x</m:mi><m:mn>2</m:mn></m:msup></m:math>.",
            "So x^2.",
        ),
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
        ("<svg:svg><svg:text>Ships in the harbour</svg:text></svg:svg>", "[picture: Ships in the harbour]"),
        (
            "<svg><foreignObject><div>Ships in the <b>harbour</b></div></foreignObject></svg>",
            "[picture: Ships in the harbour]",
        ),
        ("<dialog open><p>Shown.</dialog><dialog>Not yet.</dialog>", "Shown."),
        (
            "<x-card><template shadowrootmode=open><p>Shown.</template>Not.</x-card><template>no</template>",
            "Shown.",
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
def test_markup_that_changes_what_is_said(tmp_path: Path, body: str, expected: str) -> None:
    assert read(tmp_path / "a.html", f"<!doctype html><html><body>{body}</body></html>").text == expected


def test_what_stands_in_a_table_outside_its_cells_is_read(tmp_path: Path) -> None:
    """Browsers move such text before the table; lxml leaves it there."""
    markup = (
        "<table xmlns='http://www.w3.org/1999/xhtml'>loose<p>para</p><tr><p>in row</p><td>a</td><td>b</td></tr></table>"
    )
    document = ingest(makers.epub(tmp_path / "a.epub", {"a.xhtml": f"<h1>One</h1>{markup}"}))
    assert document.text == "One\n\nloose\npara\nin row\na | b"


def test_a_table_of_very_many_columns_is_read_quickly(tmp_path: Path) -> None:
    cells = "".join(f"<td>{n}" for n in range(20_000))
    assert read(tmp_path / "a.html", f"<html><table><tr>{cells}</table></html>").text.endswith("| 19998 | 19999")


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


def test_a_page_of_frames_says_so(tmp_path: Path) -> None:
    document = read(
        tmp_path / "a.html", "<html><frameset><frame src=b.html><noframes>No frames.</noframes></frameset></html>"
    )
    assert (document.text, len(document.warnings)) == ("No frames.", 1)
    assert "were not read: add them too" in document.warnings[0]
    assert read(tmp_path / "c.html", "<html><p>Page.<iframe src=b></iframe></html>").warnings == ()


def test_page_breaks_that_do_not_end_do_not_take_for_ever(tmp_path: Path) -> None:
    """The time grew with the square of their number: hours for these."""
    path = makers.mobi(tmp_path / "a.mobi", f"<p>The lamp.</p>{'<mbp:pagebreak ' * 700_000}")
    assert ingest(path).text == "The lamp."


def test_a_title_full_of_blanks_does_not_take_for_ever(tmp_path: Path) -> None:
    """The time grew with the square of their number: nothing else could run for hours."""
    document = read(tmp_path / "a.md", f'---\ntitle: "a{" " * 1_000_000}b"\n---\n\nIntro.\n')
    assert document.title == "a b"


@pytest.mark.parametrize(
    ("markup", "text", "said"),
    [
        ("<!-- remark <p>Lost.</p>", "", "A comment at line 3 has no end"),
        ("<script>var a <p>Lost.</p>", "", "<script> at line 3 has no end"),
        ("<style>p {} <p>Lost.</p>", "", "<style> at line 3 has no end"),
        ("<noscript><p>Lost.</p>", "", "<noscript> at line 3 has no end"),
        ("<select><option>a<p>Lost.</p>", "", "<select> at line 3 has no end"),
        ("<video src=x><p>Lost.</p>", "", "<video> at line 3 has no end"),
        ("<a href='x><p>Lost.</p>", "", "A tag at line 3 is not closed or wrongly quoted"),
        ('<a href="x>Lost.</a><p class="b">Found.</p>', "Found.", "A tag at line 3 is not closed or wrongly quoted"),
        ("<p>a<b and lost.</p><p>Found.</p>", "a\n\nFound.", "A tag at line 3 is not closed or wrongly quoted"),
        ("<textarea>typed <p>Found.</p>", "typed <p>Found.</p>", ""),
        ("<plaintext>Found <p>as it is", "Found <p>as it is", ""),
        ("<nav><a href=x>menu</a><p>Found.</p>", "menu\n\nFound.", ""),
        ("<button>ok<p>Found.</p>", "ok\n\nFound.", ""),
        ("<svg><path d='M'><p>Found.</p>", "Found.", ""),
        ("<map name=m><area href=x><p>Found.</p></map>", "Found.", ""),
        ("<p>By <anna@example.org>, <https://example.org>.</p>", "By <anna@example.org>, <https://example.org>.", ""),
        ("<!--><p>Found.</p><!--->", "Found.", ""),
        ("<p data-a='<b>x</b>' title=\"a > b\">Found.</p>", "Found.", ""),
    ],
)
def test_markup_without_an_end_is_read_on_or_said_to_hide_text(
    tmp_path: Path, markup: str, text: str, said: str
) -> None:
    whole = f"<html><head><title>Mill</title></head>\n<body><p>First.</p>\n{markup}</body></html>"
    document = read(tmp_path / "a.html", whole)
    assert document.text == f"First.\n\n{text}".strip()
    assert bool(document.warnings) == bool(said)
    assert all(said in warning for warning in document.warnings)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("<p class='a", "cut off in a tag at line 2"),
        ("<p>And he", r"has no end \(</html>\), so it may be cut off"),
        ("<script>var a", "<script> at line 2 has no end"),
    ],
)
def test_a_page_that_is_cut_off_says_so(tmp_path: Path, end: str, said: str) -> None:
    document = read(tmp_path / "a.html", f"<html><body><p>First.</p>\n{end}")
    assert re.search(said, document.warnings[0])
    with pytest.raises(EmptyDocument, match="<title> at line 1 has no end"):
        read(tmp_path / "b.html", "<html><head><title>Mill<body><p>First.</p></body></html>")


SLOTTED = (
    "<x-card><template shadowrootmode=open><h2><slot name=title>none</slot></h2><p>Before: <slot name=price>no price"
    "</slot> florins. <slot name=more>No more.</slot></p>"
    "<x-in><template shadowrootmode=open>In: <slot></slot></template>"
    "<slot></slot></x-in></template><b slot=price>900</b><i slot=title>Notice</i><u slot=gone>Lost</u>Words.</x-card>"
)
ROLES = (
    "<div role=heading aria-level=1>The ferry</div><p>Old.<h4 role=heading aria-level=2>Price</h4><div role=list>"
    "<span role=listitem>rope</span><span role=listitem>tar</span></div>"
    "<div role=grid><div role=row><i role=columnheader>"
    "Year</i><i role=columnheader>Crates</i></div><div role=rowgroup><div role=row><i role=gridcell>1901</i>"
    "<i role=gridcell>870</i></div></div></div>"
)
TEX = (
    "<p>The area is <span class=MathJax_Preview>pir2</span><span class=MathJax><i>π</i><i>r</i>2</span>"
    "<script type='math/tex'>\\pi r^2</script>, if <script type='math/tex'>% <![CDATA[\na < b %]]></script> and"
    "<script type='math/tex; mode=display'>\\sum i</script><p><script type='math/mml'><math><msup><mi>r</mi><mn>2</mn>"
    "</msup></math></script> <span class=MathJax><math><mi>x</mi></math></span><script type='math/tex'>x</script>."
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (SLOTTED, "Notice\n\nBefore: 900 florins. No more.\n\nIn: Words."),
        (ROLES, "The ferry\n\nOld.\n\nPrice\n\n- rope\n- tar\n\nYear | Crates\n1901 | 870"),
        (TEX, "The area is \\pi r^2, if a < b and\n\n\\sum i\n\nr^2 x."),
        ("<p>A<iframe srcdoc='&lt;p&gt;B&lt;iframe srcdoc=C>&lt;/iframe>'></iframe><p>D", "A\n\nB\n\nC\n\nD"),
        ("<p>A<iframe src='data:text/html;charset=utf-8,%3Cp%3E%C3%A9'></iframe>", "A\n\né"),
        ("<p>A<iframe src='data:text/html;base64,PGI+QjwvYj4='></iframe>", "A\n\nB"),
        ("<p>A<iframe srcdoc=B style='display:none'></iframe><iframe srcdoc=C width=1></iframe>", "A"),
    ],
)
def test_a_page_is_arranged_as_a_browser_does(tmp_path: Path, body: str, expected: str) -> None:
    assert read(tmp_path / "a.html", f"<!doctype html><html><body>{body}</body></html>").text == expected


def test_roles_make_headings(tmp_path: Path) -> None:
    document = read(tmp_path / "a.html", f"<!doctype html><html><body>{ROLES}</body></html>")
    assert [(entry.level, entry.title) for entry in document.toc] == [(1, "The ferry"), (2, "Price")]
