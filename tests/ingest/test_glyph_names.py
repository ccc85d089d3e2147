"""Print whose letters are not what the font says, or stand where no blank is: ligatures, letters set apart, hyphens."""

from pathlib import Path

import pymupdf
import pytest

from ingest import ingest
from ingest.print.glyph_names import letters_of

NAMES = "/Encoding<</BaseEncoding/WinAnsiEncoding/Differences[1/f_i 2/f_f_i.alt 3/t_t 4/T_h 5/hyphen]>>"
CMAP = (
    "begincmap 1 begincodespacerange <00> <FF> endcodespacerange {} 1 beginbfrange <20> <7E> <0020> endbfrange endcmap"
)
PROSE = "The sacks came on Tuesday and were carried up to the loft by two men."


def printed(path: Path, lines: list[str], font: str = NAMES, text: str = "") -> Path:
    """A PDF of a font with these entries; text: what ToUnicode says of its codes; lines: as operators take them."""
    content = "BT /F 12 Tf 72 700 Td " + " 0 -16 Td ".join(lines) + " ET"
    said = CMAP.format(text)
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        f"<</Length {len(content)}>> stream\n{content}\nendstream",
        f"<</Type/Font/Subtype/Type1/BaseFont/Helvetica{font}{'/ToUnicode 6 0 R' if text else ''}>>",
        f"<</Length {len(said)}>> stream\n{said}\nendstream",
    ]
    body = "".join(f"{number} 0 obj {each} endobj\n" for number, each in enumerate(objects, 1))
    path.write_bytes(f"%PDF-1.7\n{body}trailer << /Root 1 0 R >>\n".encode("latin-1"))
    return path


@pytest.mark.parametrize("said", ["", "2 beginbfchar <01> <E000> <02> <E001> endbfchar"])
def test_the_names_of_glyphs_say_what_they_are(tmp_path: Path, said: str) -> None:
    path = printed(tmp_path / "a.pdf", [r"(con\001dential o\002ce) Tj", f"({PROSE}) Tj"], text=said)
    assert ingest(path).text.startswith("confidential office")
    if not said:
        path = printed(tmp_path / "b.pdf", [r"(\004ink of the ma\003er) Tj"])
        assert ingest(path).text == "Think of the matter"


def test_names_of_glyphs_are_read_by_their_parts() -> None:
    found = [letters_of(name) for name in ("f_f_i", "T_h.liga", "eacute", "a1_nosuch", "g37", "uni00660069")]
    assert found[:4] == ["ffi", "Th", "é", ""]


def test_signs_that_nobody_knows_are_told_however_few(tmp_path: Path) -> None:
    said = "1 beginbfchar <06> <E005> endbfchar"
    path = printed(tmp_path / "a.pdf", [f"({PROSE}) Tj"] * 9 + [r"(Nine \006 owed) Tj"], text=said)
    document = ingest(path)
    assert any("private to a font" in warning and "page 1" in warning for warning in document.warnings)


def test_a_gap_behind_a_ligature_parts_no_word(tmp_path: Path) -> None:
    said = "2 beginbfchar <01> <00660069> <02> <006600660069> endbfchar"
    lines = [r"[(con\001) -180 (rm the o\002) -180 (ce) -278 (was o\002) -278 (now)] TJ"]
    assert ingest(printed(tmp_path / "a.pdf", lines, font="", text=said)).text == "confirm the office was offi now"


@pytest.mark.parametrize("word", ["(THE LOST KEY) Tj", "(gesperrte Worte im Satz) Tj"])
def test_letters_set_apart_are_words(tmp_path: Path, word: str) -> None:
    path = printed(tmp_path / "a.pdf", [f"3 Tc {word}", f"0 Tc ({PROSE}) Tj", "(A B C D E F G) Tj"], font="")
    text = ingest(path).text
    assert text.startswith(word[1:-4])
    assert "A B C D E F G" in text


@pytest.mark.parametrize("sign", ["2212", "FFFE", "00AD", "2011"])
def test_words_broken_at_any_hyphen_are_whole(tmp_path: Path, sign: str) -> None:
    said = f"1 beginbfchar <05> <{sign}> endbfchar"
    lines = [r"(two men of great and wide inter\005) Tj", "(national fame, as was said at the) Tj", "(time.) Tj"]
    assert "great and wide international fame" in ingest(printed(tmp_path / "a.pdf", lines, text=said)).text


def test_forms_that_are_made_late_are_told(tmp_path: Path) -> None:
    path = printed(tmp_path / "a.pdf", ["(Please wait...) Tj"])
    path.write_bytes(
        path.read_bytes().replace(b"<</Type/Catalog", b"<</Type/Catalog/AcroForm<</Fields[]/XFA[(a)6 0 R]>>")
    )
    assert any("XFA" in warning for warning in ingest(path).warnings)


def test_files_attached_to_a_place_on_a_page_are_named(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((72, 72), PROSE)
    page.add_file_annot((72, 200), b"words", "plan.txt")
    document.save(str(tmp_path / "a.pdf"))
    document.close()
    assert ingest(tmp_path / "a.pdf").warnings == ("1 attached file was not read: plan.txt.",)
