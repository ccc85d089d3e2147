"""Numbers at the edge of a page: those that count its lines go, those that say something stay in their rows."""

from pathlib import Path

import pytest

from ingest import ingest
from tests.ingest import makers

NAMES = [f"{first} {last}" for first in ("Anna", "Bart", "Cees", "Dirk") for last in ("Mol", "Kok", "Vos")]
PROSE = [
    "The sacks came on Tuesday and were carried up",
    "to the loft by two of the men who live",
    "beside the mill, and nobody counted them on",
    "the way. When the keeper of the loft came back",
    "he found that four were missing and that the",
    "key was not where he had left it. He went",
    "to the warden, who had seen nobody, and then",
    "to the men, who had seen nothing at all. The",
    "rest of the week it rained, and the sacks were",
    "forgotten until the baker asked for them.",
]


@pytest.mark.parametrize("numbers", [range(1, 13), range(1900, 2020, 10), [1861, 1863, 1870, *range(1901, 1910)]])
@pytest.mark.parametrize("apart", [True, False])
def test_numbers_of_a_list_stay_beside_what_they_number(tmp_path: Path, numbers: range, apart: bool) -> None:
    """apart: they come first in the file, as a column of their own."""
    left = [(72.0, 80.0 + 22 * row, str(number)) for row, number in enumerate(numbers)]
    right = [(130.0, 80.0 + 22 * row, name) for row, name in enumerate(NAMES)]
    lines = [*left, *right] if apart else [each for pair in zip(left, right, strict=True) for each in pair]
    text = ingest(makers.pdf(tmp_path / "a.pdf", [[(72, 40, "Who carried the sacks"), *lines]])).text
    for number, name in zip(numbers, NAMES, strict=True):
        assert f"{number} | {name}" in text


def test_numbers_that_count_the_lines_of_prose_go(tmp_path: Path) -> None:
    lines = [(20.0, 80.0 + 14 * row, str(row + 31)) for row in range(len(PROSE))]
    lines += [(60.0, 80.0 + 14 * row, line) for row, line in enumerate(PROSE)]
    text = ingest(makers.pdf(tmp_path / "a.pdf", [lines])).text
    assert text.split() == " ".join(PROSE).split()


def test_every_fifth_number_of_verse_goes(tmp_path: Path) -> None:
    verse = [f"The mill went round for {name}" for name in (NAMES * 4)[:45]]
    lines = [(60.0, 30.0 + 12 * row, line) for row, line in enumerate(verse)]
    lines += [(20.0, 30.0 + 12 * row, str(row + 1)) for row in range(4, 45, 5)]
    text = ingest(makers.pdf(tmp_path / "a.pdf", [lines])).text
    assert text.split() == " ".join(verse).split()


def test_the_years_of_a_register_stay_although_ten_lines_lie_between_them(tmp_path: Path) -> None:
    """Two lines under each year are not the ten that numbers of lines would count."""
    lines = [(60.0, 60.0 + 14 * row, PROSE[row % 10]) for row in range(24)]
    lines += [(20.0, 60.0 + 28 * row, str(1900 + 10 * row)) for row in range(12)]
    text = ingest(makers.pdf(tmp_path / "a.pdf", [lines])).text
    assert all(str(year) in text for year in range(1900, 2020, 10))
