"""Scores of PDFs read by several programs, and the pages made for them."""

from pathlib import Path

import pytest

from benchmarks.pages.printed import printed
from benchmarks.printed import apart, distance, draw, made_pages, plain, tau
from ingest import ingest

LINES = ("The boat", "The book", "The bridge")


@pytest.mark.parametrize(
    ("read", "order"),
    [
        ("The boat\n\n**The book** The bridge", 1),
        ("The bridge, the book, the boat", -1),
        ("The book, the boat, the bridge", 1 / 3),
        ("The boat, the book", -1 / 3),
    ],
)
def test_order_is_kendalls_tau(read: str, order: float) -> None:
    assert tau(LINES, read) == pytest.approx(order)


def test_errors_and_lines_do_not_depend_on_markdown() -> None:
    assert plain("# The **boat**\n\n| a | b<br>c |\n|---|:---|") == "The boat a b c"
    assert (distance("kitten", "sitting"), distance("", "ab"), distance("ab", "ab")) == (3, 2, 0)
    assert apart(LINES, "- The boat\n|The|book|\nThe bridge and more") == pytest.approx(2 / 3)


def test_made_pages_have_their_text_however_they_are_drawn(tmp_path: Path) -> None:
    """Notes at the foot of a column are read before the next column, as they are drawn."""
    names = set()
    for made in made_pages():
        draw(made, tmp_path / "a.pdf")
        text = ingest(tmp_path / "a.pdf", ocr=False).text
        assert (tau(made.text, text) == 1) == (made.name != "two columns with notes")
        assert not made.apart or apart(made.text[1:], text) == 1
        names.add(made.name)
    assert len(names) == 10


def test_the_section_has_means_for_each_program() -> None:
    scores = {"order": 0.5, "errors": 2.0, "apart": None, "model": "none", "machine": "a processor, 1 thread"}
    rows = [
        {"program": name, "file": "a", "made": made, **scores}
        for name in ("stockpot", "markitdown")
        for made in (True, False)
    ]
    rows[0] |= {"order": 1.0, "apart": 0.5}
    table = printed(rows)[-1]
    assert "| a | 1.00, 2.0 %, 50 % apart | 0.50, 2.0 % |" in table
    assert "| **mean of files of others** | 0.50, 2.0 % | 0.50, 2.0 % |" in table
