"""Answers as the page shows them."""

import pytest

from app.web.views.markdown import rendered


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Plain & simple", "<p>Plain &amp; simple</p>"),
        ("1872.", "<p>1872.</p>"),  # no list with nothing in it
        ("- 5 degrees", "<p>- 5 degrees</p>"),
        ("**bold** and `a<b`", "<p><strong>bold</strong> and <code>a&lt;b</code></p>"),
        ("- one\n- two", "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"),
        ("One\nTwo", "<p>One\nTwo</p>\n"),
        ("One\n---\nTwo", "<p>One</p>\n<hr />\n<p>Two</p>\n"),
        ("# Points\nOne", '<p class="heading">Points</p><p>One</p>\n'),
        ("One\n\n    Two", "<p>One</p>\n<p>Two</p>\n"),
        ("```\n**x** <b>\n```", "<pre><code>**x** &lt;b&gt;\n</code></pre>\n"),
    ],
)
def test_markdown_is_shown_as_it_is_meant(text: str, html: str) -> None:
    assert rendered(text) == html


@pytest.mark.parametrize("mark", ["1. ", "- ", "> "])
def test_what_follows_a_deep_list_is_shown(mark: str) -> None:
    """It was left out without a message, and the session could not be exported."""
    assert "And this is the rest." in rendered(f"{mark * 30}deep\n\nAnd this is the rest.")


def test_tables_are_tables() -> None:
    assert "<th>a</th>" in rendered("| a | b |\n|---|---|\n| 1 | 2 |")


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>\n\nand\n\n<div onclick=alert(1)>\n",
        "![picture](http://example.org/x.png)\n\n![p][1]\n\n[1]: http://example.org/x.png",
        "[link](javascript:alert(1)) and\n[link](http://example.org)",
        "<http://example.org>\n<javascript:alert(1)>",
        '```"><img src=x>\ncode\n```',
        "&lt;img src=x&gt;\nand &#60;b&#62;",
        "| <img src=x> |\n|---|\n| <b onclick=x> |",
    ],
)
def test_nothing_in_it_is_markup_or_leads_elsewhere(text: str) -> None:
    html = rendered(text)
    for each in ("<img", "<script", "<div", "<a ", "<b>", "<b ", "href=", "src=x>", 'class="language-&quot;&gt;<'):
        assert each not in html


def test_marks_go_where_they_belong() -> None:
    """Stars after a full stop end bold text only if Markdown does not take the next character for a letter."""
    marks = ((8, "<q>"), (13, "</q>"), (14, "<i>1</i>"), (22, "<i>2</i>"))
    shown = "<p>He said <q>“yes”</q>.<i>1</i> <strong>No.</strong><i>2</i> And</p>"
    assert rendered("He said “yes”. **No.** And", marks) == shown


def test_the_signs_of_marks_are_nothing_that_a_model_can_say() -> None:
    said = "a \u2e22\ufdd00\ufdd0\u2e23 b"
    assert rendered(said, ((0, "<i>"),)) == "<p><i>a \u2e22\ufffd0\ufffd\u2e23 b</p>"
