"""Pages whose drawing order is not their reading order, and pages whose order stays."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from benchmarks.printed import FERRY, Piece
from ingest.print.lines import Line
from ingest.print.order import in_order
from ingest.print.tables import with_tables
from tests.ingest.print_pages import STAGE, column, text_of

BRIDGE = "Nobody in the village had asked for a bridge, but it was opened with a band and with a speech that was long."


def by_rows(pieces: list[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (piece[1], piece[0]))


def upwards(pieces: list[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (-piece[1], piece[0]))


def backwards(pieces: list[Piece]) -> list[Piece]:
    return pieces[::-1]


@pytest.mark.parametrize("drawn", [list, by_rows, upwards, backwards])
def test_columns_are_read_one_after_the_other_however_they_are_drawn(
    tmp_path: Path, drawn: Callable[[list[Piece]], list[Piece]]
) -> None:
    heading: Piece = (72, 60, "The end of the ferry", 14)
    two = [*column(72, 90, FERRY), *column(260, 90, STAGE)]
    assert text_of(tmp_path / "a.pdf", [heading, *drawn(two)]) == f"The end of the ferry\n\n{FERRY}\n\n{STAGE}"
    three = [*column(72, 90, FERRY, 140), *column(230, 90, STAGE, 140), *column(388, 90, BRIDGE, 140)]
    read = text_of(tmp_path / "b.pdf", [heading, *drawn(three)])
    assert read == f"The end of the ferry\n\n{FERRY}\n\n{STAGE}\n\n{BRIDGE}"


@pytest.mark.parametrize("drawn", [by_rows, upwards, backwards])
def test_a_heading_over_columns_parts_them_from_those_above(
    tmp_path: Path, drawn: Callable[[list[Piece]], list[Piece]]
) -> None:
    above = [*column(72, 90, FERRY), *column(260, 90, STAGE)]
    below = [*column(72, 300, BRIDGE), *column(260, 300, f"Then {STAGE}")]
    heading: Piece = (72, 280, "What came after", 14)
    read = text_of(tmp_path / "a.pdf", [*drawn(above), heading, *drawn(below)])
    assert read == f"{FERRY}\n\n{STAGE}\n\nWhat came after\n\n{BRIDGE}\n\nThen {STAGE}"


def test_headings_that_were_drawn_last_stand_above_their_texts(tmp_path: Path) -> None:
    left = [*column(72, 100, FERRY), *column(72, 300, BRIDGE)]
    right = [*column(260, 100, STAGE)]
    headings: list[Piece] = [(72, 80, "1. The boat", 13), (72, 280, "2. The bridge", 13), (260, 80, "3. The stage", 13)]
    read = text_of(tmp_path / "a.pdf", [*left, *right, *headings])
    assert read == f"1. The boat\n\n{FERRY}\n\n2. The bridge\n\n{BRIDGE}\n\n3. The stage\n\n{STAGE}"


def test_a_title_that_was_drawn_last_comes_first(tmp_path: Path) -> None:
    left = f"{FERRY} {STAGE}"
    columns = [*column(72, 300, left), *column(260, 300, STAGE)]
    box = column(72, 200, BRIDGE, 340)
    read = text_of(tmp_path / "a.pdf", [*columns, *box, (72, 150, "The Ferry and the Bridge of the Estuary", 20)])
    assert read == f"The Ferry and the Bridge of the Estuary\n\n{BRIDGE}\n\n{left}\n\n{STAGE}"


def test_a_column_that_goes_on_below_a_picture_is_not_torn_apart(tmp_path: Path) -> None:
    """The words of the picture lie over both columns, and were drawn last."""
    left = [*column(72, 90, FERRY), *column(72, 320, BRIDGE)]
    right = [*column(260, 90, STAGE), *column(260, 320, f"Then {STAGE}")]
    label: Piece = (150, 260, "A picture of the bridge in winter", 9)
    read = text_of(tmp_path / "a.pdf", [*left, *right, label])
    assert read.index(FERRY) < read.index(BRIDGE) < read.index(STAGE) < read.index(f"Then {STAGE}")


@pytest.mark.parametrize("drawn", [upwards, backwards, lambda lines: Random(3).sample(lines, len(lines))])
def test_an_invisible_layer_is_read_from_the_top(tmp_path: Path, drawn: Callable[[list[Piece]], list[Piece]]) -> None:
    lines = column(72, 90, f"{FERRY} {STAGE}", 400, 16)
    assert text_of(tmp_path / "a.pdf", drawn(lines), 3).replace("\n\n", " ") == f"{FERRY} {STAGE}"


def test_columns_of_right_to_left_print_are_read_from_the_right() -> None:
    def lines(x: float, words: str) -> list[Line]:
        return [Line(f"{words} {at}", x, 100 + 14 * at, x + 150, 112 + 14 * at, 11) for at in range(6)]

    right, left = lines(300, "המעבורת נמכרה לסוחר בשנת"), lines(100, "הגשר נפתח באביב של שנת")
    rows = [line for pair in zip(left, right, strict=True) for line in reversed(pair)]
    assert [line for block in in_order([rows[::-1]]) for line in block] == [*right, *left]


def test_no_line_is_lost_or_doubled_on_any_page() -> None:
    chance = Random(50)
    for _ in range(300):
        blocks = []
        for _ in range(chance.randint(0, 12)):
            x, y = chance.uniform(0, 500), chance.uniform(0, 800)
            words = chance.choice(["A line of words", "and another one that runs on", "12", "x", "1,204", "המעבורת"])
            step = chance.choice([9, 13, 30])
            blocks.append(
                [
                    Line(
                        words,
                        x + chance.choice([0, 0, 80, 200]),
                        y + step * at,
                        x + 60 + chance.choice([0, 30, 300]),
                        y + 12 + step * at,
                        chance.choice([9, 11, 20]),
                        horizontal=chance.random() < 0.95,
                    )
                    for at in range(chance.randint(1, 9))
                ]
            )
        before = [id(line) for block in blocks for line in block]
        after = [id(line) for block in in_order(blocks) for line in block]
        assert sorted(after) == sorted(before)
        words_before = sorted(word for block in blocks for line in block for word in line.text.split())
        tabled = [line for block in in_order(with_tables(blocks, [])) for line in block]
        assert sorted(word for line in tabled for word in line.text.split() if word != "|") == words_before
