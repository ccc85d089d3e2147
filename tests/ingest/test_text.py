"""Plain text and Markdown: which lines are joined, damaged encodings, notes."""

import textwrap
from pathlib import Path

import pytest

from tests.ingest.test_formats import PROSE, read

LISTINGS = {
    "log.txt": "".join(
        f"2026-01-{n:02} 10:00:{n:02} INFO server{n % 7} request handled code=200\n" for n in range(10, 30)
    ),
    "equal.txt": "WARNING the harbour tower did not answer within five seconds\n" * 12,
    "levels.txt": "".join(
        f"{('ERROR', 'WARNING', 'INFO')[n % 3]} the tower of harbour {n} did not answer the call\n" for n in range(20)
    ),
    "table.txt": "keeper name|harbour town|what he saw|where he went to\n" * 2
    + "anne|the old harbour|seven ships under sail|home again\n" * 3,
    "users.txt": "".join(
        f"{name}:x:17:18:keeper of the lamp:/home/keepers:/bin/sh\n" for name in ("anne", "bob", "carl")
    ),
    "ships.csv": "ship,harbour town,captain of the ship,cargo\n" + "storm bird,old harbour,anne of the lamp,salt\n" * 2,
    "lamp.py": "while lamp_is_lit_in_the_tower and oil_is_left_in:\n    count_the_ships_in_the_harbour_of_the_town()\n",
}


@pytest.mark.parametrize("name", LISTINGS)
def test_lines_that_are_no_prose_stay_lines(tmp_path: Path, name: str) -> None:
    """They were joined to one line: any text with lines of 40 to 120 characters was taken for wrapped prose."""
    assert read(tmp_path / name, LISTINGS[name]).text == LISTINGS[name].strip()


STANZA = "In what distant deeps or skies,\n  Burnt the fire of thine eyes?\n    On what wings dare he aspire?"


def test_stanzas_keep_their_lines_and_indents(tmp_path: Path) -> None:
    """Every line began at the margin; and a poem by itself was taken for wrapped prose, and its lines were joined."""
    assert read(tmp_path / "poem.txt", f"{STANZA}\n      What the hand, dare seize the fire?\n").text == (
        f"{STANZA}\n      What the hand, dare seize the fire?"
    )
    prose = textwrap.fill("The lamp was lit before the fog came in over the bay and hid the seven ships. " * 12, 70)
    for margin in ("", "     "):
        text = f"  {prose}\n\n{textwrap.indent(STANZA, margin)}\n\n{prose}\n"
        joined = " ".join(prose.split())
        assert read(tmp_path / f"book{len(margin)}.txt", text).text == f"{joined}\n\n{STANZA}\n\n{joined}"


def test_a_program_keeps_the_indentation_of_every_paragraph(tmp_path: Path) -> None:
    """Each paragraph lost what its own lines shared: methods stood beside their class, and statements beside both."""
    code = "class Lamp:\n    lit = True\n\n    def out(self):\n        self.lit = False\n\n        return self\n"
    assert read(tmp_path / "lamp.py", code).text == code.rstrip()
    long = "class Lamp:\n" + "    oil = 'fill it up every evening before it is dark'\n" * 300
    pages = read(tmp_path / "long.py", long).pages
    assert len(pages) > 1
    assert {line for page in pages for line in page.text.split("\n")} == set(long.rstrip().split("\n"))


def test_columns_of_text_keep_their_places(tmp_path: Path) -> None:
    """Blanks beside one another became one: what was under a heading slid under another."""
    table = "ship        captain    guns\nStorm Bird             42\n\n|Version|  IHL  |\n+-------+-------+"
    assert read(tmp_path / "a.txt", f"Ships\n\n{table}\n").text == f"Ships\n\n{table}"
    prose = f"{PROSE} It rains. " * 5
    wrapped = textwrap.fill(prose, 70, fix_sentence_endings=True)
    assert read(tmp_path / "b.txt", wrapped + "\nshort\n" + wrapped).text.count("  ") == 0


@pytest.mark.parametrize("name", ["ships.tsv", "ships.txt"])
def test_cells_between_tabs_stay_apart(tmp_path: Path, name: str) -> None:
    """Tabs became blanks: what stood behind an empty cell slid under the heading before it."""
    table = "ship\tcaptain\tguns\nOld Storm Bird\t\t42\nLark\tAnne Lee\t7\n"
    assert read(tmp_path / name, table).text == "ship | captain | guns\nOld Storm Bird | | 42\nLark | Anne Lee | 7"
    indented = "\tThe keeper saw seven ships.\n\n\tThen he went to bed.\n\n\tNobody came.\n"
    assert "|" not in read(tmp_path / "a.txt", indented).text


@pytest.mark.parametrize(
    "prose",
    [
        PROSE * 12,
        "Der Wärter der Lampe stieg die lange Treppe noch einmal hinauf und zählte Stufe für Stufe die Schiffe. " * 12,
        (PROSE * 6).upper(),
    ],
    ids=["English", "German", "capitals"],
)
def test_wrapped_prose_needs_no_blank_lines(tmp_path: Path, prose: str) -> None:
    assert read(tmp_path / "a.txt", textwrap.fill(prose, 70)).text == prose.strip()


def test_one_bad_byte_does_not_make_another_encoding_of_utf8(tmp_path: Path) -> None:
    text = "“Le café” était là, ça coûte 5 €. " * 4
    document = read(tmp_path / "a.txt", text.encode() + b"bad \xe9 byte " + text.encode()[:-3])
    assert document.text == f"{text}bad \ufffd byte {text[:-3]}\ufffd"
    assert "read as UTF-8, with \ufffd for 2 damaged places" in document.warnings[0]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("So $x*y*z$ and $a_i$, $$a\\\\b$$.", "So $x*y*z$ and $a_i$, $$a\\\\b$$."),
        (r"So \(\alpha_1*b*c\), \[x^2\] and \[3\].", r"So \(\alpha_1*b*c\), \[x^2\] and [3]."),
        ("It was $5 or $6, *now* $7.", "It was $5 or $6, now $7."),
        (
            "Vec<String>, Map<Object> and H<sub>2</sub>O<br>end<my-el>.</my-el>",
            "Vec<String>, Map<Object> and H2O\nend.",
        ),
    ],
)
def test_formulas_and_types_in_markdown(tmp_path: Path, written: str, expected: str) -> None:
    assert read(tmp_path / "a.md", written).text == expected


def test_markdown_notes_are_no_link_definitions(tmp_path: Path) -> None:
    document = read(
        tmp_path / "a.md",
        "One[^1], two[^b] and a [link][l].\n\n[^1]: https://example.org/a\n[^b]: Word\n\n[l]: https://example.org/b\n",
    )
    assert document.text == "One[^1], two[^b] and a link.\n\n[^1]: https://example.org/a\n\n[^b]: Word"
