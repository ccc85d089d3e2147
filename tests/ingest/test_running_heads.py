"""What goes from the edges of pages as a running head or a page number, and what only looks like one."""

import pytest

from ingest.print.layout import Sheet
from ingest.print.lines import Line
from ingest.print.running_heads import drop_running_heads

HEIGHT = 800.0
TEXT = ("On that day the keeper climbed up to the gallery", "and counted the ships, all bound for the harbour.")


def line(text: str, y: float, size: float = 11) -> Line:
    return Line(text, 72, y, 72 + 5 * len(text), y + 1.3 * size, size)


def left(edges: list[str], size: float = 11, top: bool = True) -> list[list[str]]:
    """What is left of a document whose pages have these lines at one edge ("" for none), apart from the text."""
    sheets = [
        Sheet(
            [*([[line(edge, 50 if top else 760, size)]] if edge else []), [line(TEXT[0], 300), line(TEXT[1], 314)]], 800
        )
        for edge in edges
    ]
    texts = [[one.text for block in sheet.blocks for one in block] for sheet in drop_running_heads(sheets)]
    assert all(text[-2:] == list(TEXT) for text in texts)
    return [text[:-2] for text in texts]


@pytest.mark.parametrize("top", [True, False], ids=["top", "bottom"])
@pytest.mark.parametrize("size", [11, 18])
@pytest.mark.parametrize(
    "edges",
    [
        ["Invoice 1001", "Invoice 1017", "Invoice 1042"],
        ["Invoice No. 1017", "Invoice No. 1018", "Invoice No. 1019"],
        ["1914", "1918", "1939"],
        ["Account balance: 5120", "Account balance: 7333"],
        ["Total due: 51", "Total due: 73", "Total due: 99"],
        ["Chapter 1", "Chapter 2", "Chapter 3"],
        ["Exercise 1-4", "Exercise 1-5", "Exercise 1-6"],
        ["Chapter I.", "Chapter II.", "Chapter III.", "Chapter IV."],
        ["Chapter 1: The Storm", "Chapter 2: The Sea", "Chapter 3: Home"],
        ["第1章", "第2章", "第3章"],
        ["Report of 2026-01-01", "Report of 2026-01-02", "Report of 2026-01-03"],
        ["1.1 Storms", "1.2 Calm", "1.3 Fog"],
    ],
    ids=lambda edges: edges[0],
)
def test_numbers_that_do_not_count_pages_stay(edges: list[str], size: float, top: bool) -> None:
    """They were deleted without a word: any number counted as the same, any short line with one as a page number."""
    assert left(edges, size, top) == [[edge] for edge in edges]


def test_chapters_some_pages_apart_stay_while_page_numbers_go() -> None:
    """ "Chapter 1" has the number of its page, and the next ones look like it."""
    heads = [f"Chapter {index // 4 + 1}" if index % 4 == 0 else "" for index in range(16)]
    sheets = [
        Sheet(
            [[line(head, 50)]] * bool(head) + [[line(text, 300) for text in TEXT], [line(str(index + 1), 760)]], HEIGHT
        )
        for index, head in enumerate(heads)
    ]
    texts = [[one.text for block in sheet.blocks for one in block] for sheet in drop_running_heads(sheets)]
    assert texts == [[head, *TEXT] if head else [*TEXT] for head in heads]


@pytest.mark.parametrize("top", [True, False], ids=["top", "bottom"])
@pytest.mark.parametrize(
    "edges",
    [
        ["1", "2", "3", "4"],
        ["", "", "3", "4", "5"],
        ["- 17 -", "- 18 -"],
        ["i", "ii", "iii", "iv", "1", "2", "3"],
        ["Page 1 of 3", "Page 2 of 3", "Page 3 of 3"],
        ["1/4", "2/4", "3/4", "4/4"],
        ["", "Seite 2", "Seite 3", "Seite 4"],
        ["第7页", "第8页", "第9页"],
        ["A-1", "A-2", "A-3", "B-1", "B-2", "B-3"],
        ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"],
        ["1", "1"],
        [f"{TEXT[0].upper()} {number}" for number in range(3, 7)],  # its words stand in the text
    ],
    ids=lambda edges: f"{edges[0]}..{edges[-1]}",
)
def test_page_numbers_and_what_repeats_go(edges: list[str], top: bool) -> None:
    assert left(edges, top=top) == [[]] * len(edges)


@pytest.mark.parametrize("top", [True, False], ids=["top", "bottom"])
@pytest.mark.parametrize(
    ("edges", "kept"),
    [
        (["The Keeper's Log"] * 4, {0: "The Keeper's Log"}),
        (["The Keeper's Log 41", "The Keeper's Log 42", "The Keeper's Log 43"], {0: "The Keeper's Log 41"}),
        (
            ["41 | Of Storms", "42 | Of Storms", "43 | Of Storms", "44 | Of Calm", "45 | Of Calm", "46 | Of Calm"],
            {0: "Of Storms", 3: "Of Calm"},
        ),
        (["41 | Of Storms", "Of Calm | 42", "43 | Of Fog"], {0: "Of Storms", 1: "Of Calm", 2: "Of Fog"}),
        (
            ["Chapter 4: Of Storms | 9", "Chapter 4: Of Storms | 10", "Chapter 4: Of Storms | 11"],
            {0: "Chapter 4: Of Storms"},
        ),
        (["Contract No. 7: Page 1", "Contract No. 7: Page 2"], {0: "Contract No. 7: Page 1"}),
    ],
    ids=lambda edges: edges[0],
)
def test_words_that_stand_nowhere_else_are_kept_once(edges: list[str], kept: dict[int, str], top: bool) -> None:
    """A contract was named at the head of its pages only, and so the model never read which it was."""
    assert left(edges, top=top) == [[kept[index]] if index in kept else [] for index in range(len(edges))]


def test_a_head_that_is_kept_parts_no_sentence() -> None:
    texts = ["and counted all the", "ships that came in.", "Nobody saw it.", "The end."]
    heads = ["", "Of Fog", "Of Fog", "Of Fog"]
    pages = [[[line(head, 50)]] * bool(head) + [[line(text, 300)]] for head, text in zip(heads, texts, strict=True)]
    sheets = drop_running_heads([Sheet(blocks, HEIGHT) for blocks in pages])
    assert [sheet.blocks[0][0].text for sheet in sheets] == [*texts[:2], "Of Fog", texts[3]]


def test_large_print_stays_though_it_repeats() -> None:
    """Three slides in a row had the same title."""
    assert left(["Results"] * 4, 18) == [["Results"]] * 4
    assert left(["Results"] * 4, 12) == [["Results"], [], [], []]


def test_a_title_that_comes_once_in_the_head_line_goes_if_nothing_is_lost() -> None:
    heads = ["The Keeper's Log"] * 10
    heads[6] = TEXT[0].upper()  # its words stand in the text as well
    heads[7] = "Of Fog 48"  # has its page's number: the others follow
    heads[8] = "Total due: 99"
    numbered = [head if head[-1].isdecimal() else f"{head} {index + 41}" for index, head in enumerate(heads)]
    title = [["The Keeper's Log"], *[[]] * 6]
    assert left(heads) == [*title, ["Of Fog 48"], ["Total due: 99"], []]
    assert left(numbered) == [["The Keeper's Log 41"], *[[]] * 6, ["Of Fog 48"], ["Total due: 99"], []]
