"""Words and lines: what `clean` and `layout` do to print, and what they leave alone."""

from pathlib import Path

import pymupdf
import pytest

from ingest import ingest
from ingest.clean import PLAIN, doubts, join_lines, mend_accents, tidy, unreadable, vocabulary
from tests.ingest import makers


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("ﬁne eﬃcient ﬂow ﬅ", "fine efficient flow st"),
        ("so\u00adft hy\u200bphens\ufeff", "soft hyphens"),
        ("a\u00a0b\u2009c\t d", "a b c d"),
        ("one\r\ntwo\x0cthree\n\n\n\nfour  ", "one\ntwo\nthree\n\nfour"),
        ("it\x92s \x93quoted\x94", "it’s “quoted”"),
        ("x² ½ ＡＢＣ ｶﾅ № ™", "x² ½ ＡＢＣ ｶﾅ № ™"),  # NFKC would change every one of them
        (
            "می\u200cخواهم क्\u200dष 👨\u200d👩\u200d👧",
            "می\u200cخواهم क्\u200dष 👨\u200d👩\u200d👧",
        ),  # joiners that matter
        ("ﻣﺮﺣﺒﺎ بنـــاء", "مرحبا بناء"),
        ("e\u0301", "é"),
        ("\uf0b7 item", "• item"),
    ],
)
def test_tidy(raw: str, clean: str) -> None:
    assert tidy(raw) == clean
    assert tidy(clean) == clean


def test_what_is_taken_for_tidy_is_what_tidying_leaves_alone() -> None:
    for letter in map(chr, range(0x20, 0x2100)):
        for text in (f"a{letter}b", f"{letter}", f"a {letter}\n\n{letter} b", f"a\n{letter}"):
            if PLAIN.fullmatch(text):
                assert tidy(f"\t{text}") == text  # a tab makes it go the long way
    assert PLAIN.fullmatch("“It’s naïve – or déjà vu…”\nhe said.")
    assert not any(
        PLAIN.fullmatch(text) for text in ("a  b", " a", "a ", "a\n\n\nb", "a \nb", "so\u00adft", "e\u0301", "")
    )


WORDS = vocabulary(["a low-dimensional space and high art", "the long-term plan and more words", "well-known high"])


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("very effi-", "ciency counts", "very efficiency counts"),
        ("a high-", "dimensional one", "a high-dimensional one"),
        ("the long-", "term view", "the long-term view"),
        ("COVID-", "19 cases", "COVID-19 cases"),
        ("Wen-", "Tau", "Wen-Tau"),
        ("an x-", "axis", "an x-axis"),
        ("he paused—", "then spoke", "he paused—then spoke"),
        ("he paused –", "then spoke", "he paused – then spoke"),
        ("plain", "words", "plain words"),
        ("日本", "語の文", "日本語の文"),
        ("日本語", "and English", "日本語 and English"),
    ],
)
def test_lines_join(first: str, second: str, joined: str) -> None:
    assert join_lines(first, second, WORDS) == joined


def test_accents_go_back_on_their_letters() -> None:
    assert mend_accents("O˘guz, M¨uller, na¨ıve, Dvoˇr´ak") == "Oğuz, Müller, naïve, Dvoř´ak"
    assert mend_accents("5˚ C, a ¨ 7") == "5˚ C, a ¨ 7"


def test_doubtful_characters_are_counted() -> None:
    assert doubts("plain text") == ()
    assert doubts("ab\ufffd\ue001") == (
        "1 of 4 characters could not be mapped to text (no font mapping)",
        "1 of 4 characters are private to a font and have no known meaning",
    )
    drawn = "تضعها صووو مسووولدامة وووخماة " * 10
    assert doubts(drawn) == ("30 of 40 words have a letter three times in a row, as if wrongly mapped",)
    for sound in ("Aaargh! " + "some words more " * 20, "哈哈哈哈 " * 30, "Aaargh! " * 19):
        assert doubts(sound) == ()
    assert doubts(drawn, in_print=False) == ()
    assert unreadable("ab\ufffd\ue001")
    assert not unreadable("abc\ufffd")


HEADS = ["The Keeper's Log", "The Keeper's Log", "Of Storms", "Of Storms", "Of Calm", "Of Calm", "Of Calm", "Of Fog"]


def log_book(path: Path) -> Path:
    """Eight pages of a book: head lines that change with the chapter, page numbers in the corners and at the foot."""
    pages = []
    for index, head in enumerate(HEADS):
        number = index + 41
        lines = [(50, 40, f"{number}") if index % 2 else (340, 40, f"{number}"), (140, 40, head)]
        lines += [
            (50, 80, f"On day {number} the keeper of the lamp climbed up the stairs to"),
            (50, 94, f"the gallery and counted {number * 7} ships, all bound for the harb-"),
            (50, 108, "our; none of them carried a light."),
            (62, 122, "A second paragraph began with a first line that stood in a"),
            (50, 136, "little, as such lines do."),
        ]
        if index == 3:
            lines.append((50, 560, "At last the fog came in and hid the light-"))
        if index == 4:
            lines[2] = (50, 80, "house. Nobody saw it on day 45, and the keeper went up to")
        pages.append(lines)
    return makers.pdf(path, pages)


def test_running_heads_go_and_the_text_stays(tmp_path: Path) -> None:
    document = ingest(log_book(tmp_path / "log.pdf"))
    for index, page in enumerate(document.pages):
        assert (
            f"counted {(index + 41) * 7} ships, all bound for the harbour; none of them carried a light." in page.text
        )
        assert "\n\nA second paragraph began with a first line that stood in a little, as such lines do." in page.text
    assert document.pages[1].text.startswith("On day 42 the keeper")
    assert [document.text.count(head) for head in dict.fromkeys(HEADS)] == [1, 1, 1, 1]


def test_a_word_broken_over_two_pages_is_whole_above_the_notes(tmp_path: Path) -> None:
    first = [
        (50, 100, "At last the fog came in and hid the light-"),
        (50, 550, "1 Of the year 1901."),
        (50, 564, "2 Or 2."),
    ]
    document = ingest(makers.pdf(tmp_path / "a.pdf", [first, [(50, 100, "house. Nobody saw it.")]]))
    assert document.pages[0].text.startswith("At last the fog came in and hid the lighthouse.\n\n1 Of")
    assert document.pages[1].text == "Nobody saw it."


def test_a_word_broken_over_two_pages_is_whole_on_the_first(tmp_path: Path) -> None:
    document = ingest(log_book(tmp_path / "log.pdf"))
    assert document.pages[3].text.endswith("hid the lighthouse.")
    assert document.pages[4].text.startswith("Nobody saw it on day 45")


def test_what_is_all_a_page_says_is_not_taken_for_a_running_head(tmp_path: Path) -> None:
    document = ingest(makers.pdf(tmp_path / "a.pdf", [[(50, 50, "Keep out")] for _ in range(5)]))
    assert [page.text for page in document.pages] == ["Keep out"] * 5


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    left = [(30, 100 + 14 * n, f"left {n} of the column, word after") for n in range(20)]
    right = [(215, 100 + 14 * n, f"right {n} of the other one, and so") for n in range(20)]
    text = ingest(makers.pdf(tmp_path / "a.pdf", [left + right])).text
    order = [text.index(f"left {n} of") for n in range(20)] + [text.index(f"right {n} of") for n in range(20)]
    assert order == sorted(order)


def test_a_page_that_is_shown_turned_is_read_as_it_is_shown(tmp_path: Path) -> None:
    def made(name: str, rotation: int) -> str:
        with pymupdf.open() as document:
            for number in range(3):
                page = document.new_page(width=700, height=700)
                page.set_rotation(rotation)
                lines = [(60, 40, "The Annual Report"), (60, 120, "Country"), (200, 120, "1990")]
                lines += [(60, 134, "Norway"), (200, 134, f"{number}12"), (60, 148, "Chile"), (200, 148, "7")]
                lines += [(60, 300 + 14 * y, f"{y + 1}. Open valve {y}.") for y in range(3)]
                for x, y, words in [*lines, (300, 680, str(number + 1))]:
                    page.insert_text(pymupdf.Point(x, y) * page.derotation_matrix, words, rotate=rotation)
            document.save(tmp_path / name)
        return ingest(tmp_path / name).text

    upright = made("upright.pdf", 0)
    assert "Country | 1990\nNorway | 012\nChile | 7" in upright
    assert upright.count("Annual Report") == 1
    assert [made(f"{rotation}.pdf", rotation) for rotation in (90, 180, 270)] == [upright] * 3


def test_marks_piled_on_a_letter_do_not_take_for_ever() -> None:
    """To put them in order took the square of their number: hours for these."""
    piled = "\u0323\u0301" * 500_000
    assert tidy(f"a{piled} b") == tidy(f"a{piled[:30]} b")
    thirty = "e" + "\u0316" * 30
    assert tidy(f"{thirty} {'—' * 40}") == f"{thirty} {'—' * 40}"
