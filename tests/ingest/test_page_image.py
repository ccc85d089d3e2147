"""A page of a PDF as it is printed, and what is marked in it."""

from pathlib import Path

import pymupdf
import pytest

from ingest import BrokenFile, PasswordNeeded, TooLarge, ingest
from ingest.print.page_image import LARGEST, SHARPEST, picture_of
from ingest.subprocess import picture_apart
from tests.ingest import makers

LINES = [
    *[(50.0, 100.0, "The keeper of the lamp was Orla Quent, who had an effi-"), (50.0, 114.0, "cient way with wicks.")],
    *[(50.0, 200.0, "On Monday it rained."), (50.0, 300.0, "The lamp was lit."), (50.0, 400.0, "On Monday it rained.")],
]


def marked(png: bytes) -> tuple[float, float, float, float] | None:
    """The box around all that is marked, in points; None if nothing is."""
    picture = pymupdf.Pixmap(png)
    width, channels, bytes_ = picture.width, picture.n, picture.samples
    found = [
        divmod(at // channels, width)
        for at in range(0, len(bytes_), channels)
        if bytes_[at] > 200 and bytes_[at + 2] < 150  # red without blue: print is black on white
    ]
    if not found:
        return None
    rows, columns = zip(*found, strict=True)
    box = min(columns), min(rows), max(columns), max(rows)
    return tuple(each / SHARPEST for each in box)  # type: ignore[return-value]


def picture(path: Path, words: str, nth: int = 0, **given: str) -> bytes:
    """The first page, with the nth place marked where these words stand in its text."""
    text = ingest(path, password=given.get("password")).pages[0].text
    start = text.index(words)
    for _ in range(nth):
        start = text.index(words, start + 1)
    return picture_of(path, 1, text, start, start + len(words), **given)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return makers.pdf(tmp_path / "lamp.pdf", [LINES])


def test_a_passage_is_marked_where_it_is_printed(page: Path) -> None:
    box = marked(picture(page, "The lamp was lit."))
    assert box is not None
    left, top, right, bottom = box
    assert 45 < left < 55
    assert 285 < top < 295
    assert 110 < right < 150
    assert 300 <= bottom < 310


def test_a_passage_is_marked_over_lines_and_hyphens(page: Path) -> None:
    """In the text the word is whole."""
    box = marked(picture(page, "an efficient way"))
    assert box is not None
    assert box[1] < 100 < 114 < box[3] + 4


@pytest.mark.parametrize(("nth", "line"), [(0, 200), (1, 400)])
def test_of_words_that_stand_there_twice_the_right_ones_are_marked(page: Path, nth: int, line: int) -> None:
    box = marked(picture(page, "On Monday it rained.", nth))
    assert box is not None
    assert line - 15 < box[1] < box[3] < line + 10


def test_a_turned_page_is_marked_as_it_is_shown(page: Path) -> None:
    document = pymupdf.open(page)
    document[0].set_rotation(90)
    document.save(page.with_name("turned.pdf"))
    upright, turned = (
        marked(picture(page, "The lamp was lit.")),
        marked(picture(page.with_name("turned.pdf"), "The lamp was lit.")),
    )
    assert upright is not None
    assert turned is not None
    left, top, right, bottom = upright
    assert turned == pytest.approx((600 - bottom, left, 600 - top, right), abs=2)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("The lamp was out.", 0, 17),  # not what is printed
        ("On Monday it rained.", 0, 20),  # printed twice: which of them it is, nobody knows
        ("The lamp was lit.", 5, 5),
        ("...", 0, 3),
    ],
)
def test_nothing_is_marked_where_there_is_doubt(page: Path, text: str, start: int, end: int) -> None:
    assert marked(picture_of(page, 1, text, start, end)) is None


def test_a_scan_is_shown_without_a_mark(tmp_path: Path) -> None:
    path = makers.pdf(tmp_path / "scan.pdf", [[]], scans=[1])
    assert marked(picture_of(path, 1, "What somebody recognised.", 0, 25)) is None


def test_an_encrypted_page_needs_its_password(tmp_path: Path) -> None:
    locked = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "user_pw": "swordfish"}
    path = makers.pdf(tmp_path / "locked.pdf", [LINES], **locked)
    with pytest.raises(PasswordNeeded):
        picture_of(path, 1, "", 0, 0)
    assert marked(picture(path, "The lamp was lit.", password="swordfish"))


def test_a_huge_page_makes_no_huge_picture(tmp_path: Path) -> None:
    document = pymupdf.open()
    document.new_page(width=14_000, height=300)
    document.save(tmp_path / "wide.pdf")
    shown = pymupdf.Pixmap(picture_of(tmp_path / "wide.pdf", 1, "", 0, 0))
    assert LARGEST - 2 <= shown.width <= LARGEST


def test_a_page_that_is_not_there_cannot_be_drawn(page: Path) -> None:
    with pytest.raises(BrokenFile, match=r"Page 9 of lamp\.pdf cannot be drawn"):
        picture_of(page, 9, "", 0, 0)


def test_apart_it_is_the_same_picture(page: Path) -> None:
    assert picture_apart(page, 1, "The lamp was lit.", 0, 17) == picture_of(page, 1, "The lamp was lit.", 0, 17)
    with pytest.raises(BrokenFile, match=r"Page 9 of lamp\.pdf cannot be drawn"):
        picture_apart(page, 9, "", 0, 0)


def test_a_page_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.subprocess.PICTURE_SEC", 2)
    with pytest.raises(TooLarge, match=r"bomb\.pdf takes more than 2 s for a single page, and was given up"):
        picture_apart(makers.unfolding_pdf(tmp_path / "bomb.pdf"), 1, "", 0, 0)
