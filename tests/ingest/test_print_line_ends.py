"""Line ends that are meant: verse, lists without bullets, and prose that only looks like them."""

from pathlib import Path

import pytest

from benchmarks.printed import FERRY, Piece
from tests.ingest.print_pages import STAGE, column, text_of

ITEMS = (
    "Lantern of copper with two spare glasses",
    "Anchor of the small boat with forty feet",
    "Bell that hung above the door of the house",
    "Chart of the estuary drawn on linen, folded",
    "Ledger of passengers, bound in calf, three",
)
GERMAN = (
    "Laterne aus Kupfer mit zwei Gläsern",
    "Anker des kleinen Bootes mit Kette",
    "Glocke über der Tür des Hauses",
    "Karte der Mündung auf Leinen gezeichnet",
    "Buch der Fahrgäste in Leder gebunden",
    "Ruder aus Esche, eines davon geflickt",
    "Bild der ersten Fähre von einem Gast",
)
STANZAS = (
    (
        "The water takes the evening light away,",
        "And leaves the rope that holds the boat at bay.",
        "The lamp is lit before the end of day,",
        "And no one comes who has the coin to pay.",
    ),
    (
        "The bridge they built of iron and of stone",
        "Has left the ferry and the man alone.",
        "He keeps the book of all that he has known,",
        "And every page is quieter than its own.",
    ),
)


def lines(y: float, *texts: str, indent: float = 0) -> list[Piece]:
    return [(72 + indent * (at % 2), y + 14 * at, text, 11) for at, text in enumerate(texts)]


@pytest.mark.parametrize("items", [ITEMS, GERMAN])
def test_items_without_bullets_stay_on_lines_of_their_own(tmp_path: Path, items: tuple[str, ...]) -> None:
    assert text_of(tmp_path / "a.pdf", lines(90, *items)) == "\n".join(items)


def test_items_that_take_several_lines_are_whole(tmp_path: Path) -> None:
    rests = ("and one that is broken", "that was found a mile up", "and its rope", "and much torn", "volumes")
    pieces = lines(90, *(line for pair in zip(ITEMS, rests, strict=True) for line in pair), indent=14)
    read = text_of(tmp_path / "a.pdf", pieces)
    assert read == "\n".join(f"{item} {rest}" for item, rest in zip(ITEMS, rests, strict=True))


@pytest.mark.parametrize("indent", [0, 14])
@pytest.mark.parametrize("gap", [14, 8])
def test_verse_keeps_its_lines_and_stanzas(tmp_path: Path, indent: float, gap: float) -> None:
    pieces = lines(90, *STANZAS[0], indent=indent) + lines(90 + 4 * 14 + gap, *STANZAS[1], indent=indent)
    assert text_of(tmp_path / "a.pdf", pieces) == "\n\n".join(map("\n".join, STANZAS))


def test_stanzas_of_three_lines_are_told_by_their_number(tmp_path: Path) -> None:
    stanzas = [STANZAS[0][:3], STANZAS[1][:3], STANZAS[0][1:]]
    pieces = [piece for at, stanza in enumerate(stanzas) for piece in lines(90 + 56 * at, *stanza)]
    assert text_of(tmp_path / "a.pdf", pieces) == "\n\n".join(map("\n".join, stanzas))


@pytest.mark.parametrize(
    "prose",
    [
        f"{FERRY} {STAGE}",
        "Sie sahen am Abend den Anker und die Glocke, und der Wirt trug das Buch der Gäste in die Stube, wo der "
        "Lehrer mit dem Müller am Tisch saß und von dem Sturm erzählte, der im Winter die Brücke und das Haus des "
        "Fischers fortgetragen hatte, bis die Frau des Wirts die Lampe löschte und alle gehen hieß.",
    ],
)
def test_prose_is_not_taken_for_verse(tmp_path: Path, prose: str) -> None:
    """Of many widths one may have six capital letters in a row, as German has."""
    read = [text_of(tmp_path / "a.pdf", column(72, 90, prose, width)) for width in range(90, 360, 15)]
    assert sum(text == prose for text in read) >= len(read) - 1
