"""Lines from right to left come back in the order in which they are read."""

from pathlib import Path

import pymupdf
import pytest

from ingest import ingest
from ingest.print.bidi import Facing, Glyph, facing, in_order

# As they are read, and as they stand on a page from the left.
LINES = {
    "words and a year": (
        "\u05d1\u05e9\u05e0\u05ea 1984 \u05d4\u05d9\u05d4.",
        ".\u05d4\u05d9\u05d4 1984 \u05ea\u05e0\u05e9\u05d1",
    ),
    "arabic digits": (
        "\u0639\u0627\u0645 \u0661\u0669\u0668\u0664 \u0643\u0627\u0646",
        "\u0646\u0627\u0643 \u0661\u0669\u0668\u0664 \u0645\u0627\u0639",
    ),
    "a code, which arabic turns": ("\u0631\u0645\u0632 12-34", "34-12 \u0632\u0645\u0631"),
    "a code, which hebrew does not": ("\u05e7\u05d5\u05d3 12-34", "12-34 \u05d3\u05d5\u05e7"),
    "a price": ("\u0633\u0639\u0631 1,250.5", "1,250.5 \u0631\u0639\u0633"),
    "brackets": ("(\u05d0\u05d1) \u05d2", "\u05d2 (\u05d1\u05d0)"),
    "a name in latin letters": (
        "\u05d0\u05d1\u05d2 Windows 95 \u05d3\u05d4",
        "\u05d4\u05d3 Windows 95 \u05d2\u05d1\u05d0",
    ),
    "a word in a latin line": ("The word \u05e9\u05dc\u05d5\u05dd here.", "The word \u05dd\u05d5\u05dc\u05e9 here."),
    "a mark on a letter": ("\u05d1\u05bc\u05d0 \u05d2", "\u05d2 \u05d0\u05d1\u05bc"),
}


@pytest.mark.parametrize("turned", [False, True], ids=["from the left", "as MuPDF turns it"])
@pytest.mark.parametrize("name", LINES)
def test_lines_are_put_in_order_by_where_they_stand(name: str, turned: bool) -> None:
    read, seen = LINES[name]
    glyphs: list[Glyph] = []
    for number, letter in enumerate(seen):
        if letter == "\u05bc":
            glyphs[-1] = glyphs[-1]._replace(text=glyphs[-1].text + letter)
        else:
            glyphs.append(Glyph(letter, 6.0 * number, 6.0 * number + 6))
    parted = [Glyph(letter, *each[1:]) for each in (reversed(glyphs) if turned else glyphs) for letter in each.text]
    assert in_order(parted, 10, Facing(name != "a word in a latin line", as_drawn=True)) == read


def test_a_ligature_keeps_its_letters_in_order() -> None:
    """MuPDF spells it out: the letters behind its first have no width, and it turns them around with the rest."""
    lam, alef, heh = "\u0644", "\u0623", "\u0647"
    spelt = [Glyph(alef, 18, 18), Glyph(lam, 10, 18), Glyph(heh, 2, 10)]
    assert in_order(spelt, 10, Facing(True, True)) == lam + alef + heh
    assert (
        in_order(
            [Glyph("f", 0, 9), Glyph("i", 9, 9), Glyph("n", 9, 15), Glyph("\u05d0", 15, 20)], 10, Facing(False, True)
        )
        == "fin\u05d0"
    )


def test_half_a_pair_of_brackets_is_turned_as_the_pairs_of_the_page_are() -> None:
    def drawn(text: str) -> list[Glyph]:
        return [Glyph(letter, 6.0 * number, 6.0 * number + 6) for number, letter in enumerate(text)]

    for pair, half in (("(\u05d1) \u05d0", "\u05d3 (\u05d2"), (")\u05d1( \u05d0", "\u05d3 )\u05d2")):
        page = facing([drawn(pair), drawn(half)])
        assert page == Facing(leftward=True, as_drawn=pair[0] == "(")
        assert in_order(drawn(half), 10, page) == "\u05d2) \u05d3"


def test_a_page_from_right_to_left(tmp_path: Path) -> None:
    """Digits came turned around, 1984 as 4891, and there was no blank beside them."""
    document = pymupdf.open()
    page = document.new_page()
    text = "\u0641\u064a \u0639\u0627\u0645 \u0661\u0669\u0668\u0664 \u0643\u0627\u0646 \u0662\u0660\u0664\u0667."
    page.insert_htmlbox((50, 50, 500, 500), f"<p dir=rtl>{text}</p>")
    document.save(tmp_path / "a.pdf")
    assert ingest(tmp_path / "a.pdf").text == text


def test_a_real_page_has_its_numbers_and_commas_in_place(data: Path) -> None:
    sample = ingest(data / "pdf/pdfbox__BidiSample.pdf").text
    assert "\u0661\u0664 \u0625\u0628\u0631\u064a\u0644 \u0661\u0664\u0663\u0664" in sample
    assert "(\u064a\u0646\u0627\u064a\u0631)" in sample
    assert "\n\n\u0648\u0639\u0644\u064a\u0647\u060c " in ingest(data / "pdf/docling__right_to_left_02.pdf").text
