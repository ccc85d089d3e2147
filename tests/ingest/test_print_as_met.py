"""Pages as people meet them: doubled by OCR, in Hebrew letter by letter, vertical, and with programs."""

from pathlib import Path
from typing import Any

import pymupdf

from ingest import ingest
from ingest.print.layout import Paragrapher, PrintedPage, join_rows
from ingest.print.lines import Line
from ingest.print.pdf_page import text_blocks


def test_an_invisible_layer_over_print_is_not_read_again(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((72, 72), "The company carried 4,210 passengers.", fontsize=11)
    page.insert_text((73, 73), "The company carried 4,2l0 passengers.", fontsize=10, render_mode=3)
    page.insert_text((72, 300), "Stamped: paid.", fontsize=11, render_mode=3)
    document.save(str(tmp_path / "a.pdf"))
    assert ingest(tmp_path / "a.pdf").text == "The company carried 4,210 passengers.\n\nStamped: paid."


def test_a_program_keeps_its_indentation(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((72, 60), "It adds up what is owed.", fontsize=11)
    rows = [
        (72, "def toll(crates):"),
        (72, "    for crate in crates:"),
        (96 + 0.6 * 40, "pay(crate)"),
        (72, "    return"),
    ]
    for number, (x, text) in enumerate(rows):
        page.insert_text((x, 90 + 13 * number), text, fontsize=10, fontname="cour")
    document.save(str(tmp_path / "a.pdf"))
    assert ingest(tmp_path / "a.pdf").text == (
        "It adds up what is owed.\n\ndef toll(crates):\n    for crate in crates:\n        pay(crate)\n    return"
    )


def line(x: float, text: str, direction: float = 1.0) -> dict[str, Any]:
    """Return a line of MuPDF's with letters of 6 points from x on, in a direction, on a base line at 100."""
    boxes = [(x + 6 * direction * at, x + 6 * direction * (at + 1)) for at in range(len(text))]
    chars = [
        {"c": sign, "bbox": (min(box), 90.0, max(box), 103.0), "origin": (box[0], 100.0)}
        for sign, box in zip(text, boxes, strict=True)
    ]
    bbox = (min(min(box) for box in boxes), 90.0, max(max(box) for box in boxes), 103.0)
    span = {"chars": chars, "size": 12.0, "flags": 0, "origin": chars[0]["origin"], "char_flags": 16, "font": "a"}
    return {"spans": [span], "bbox": bbox, "dir": (direction, 0.0)}


def test_numbers_drawn_digit_by_digit_from_the_right_are_as_they_are_seen() -> None:
    hebrew = line(400.0, "תנשב"[::1])  # drawn from the left, so seen as it stands here
    digits = [line(388.0 - 6 * number, digit) for number, digit in enumerate("1391")]
    (block,) = text_blocks({"blocks": [{"lines": [hebrew, *digits]}]})
    assert [each.text for each in block] == ["בשנת 1931"]


def test_a_mirrored_line_of_ocr_is_in_reading_order() -> None:
    (block,) = text_blocks({"blocks": [{"lines": [line(400.0, "בשנת 1931 נמכרה", direction=-1.0)]}]})
    assert [each.text for each in block] == ["בשנת 1931 נמכרה"]


def test_vertical_print_runs_on_in_the_next_column() -> None:
    def column(x: float, text: str, top: float = 100.0) -> list[Line]:
        return [
            Line(sign, x, top + 14 * at, x + 14, top + 14 * (at + 1), 14, horizontal=False)
            for at, sign in enumerate(text)
        ]

    columns = [
        column(470, "渡し船は川を渡った。橋が"),
        column(446, "できるまで。"),
        column(422, "春になった。船は川を渡っ"),
    ]
    page = PrintedPage([*columns, column(398, "た。", 114.0)], 800)
    assert Paragrapher([page]).page(page) == "渡し船は川を渡った。橋ができるまで。\n\n春になった。船は川を渡っ\n\nた。"


def test_a_drop_cap_that_was_drawn_last_begins_its_word() -> None:
    lines = [Line("he ferry crossed the estuary", 100, 80, 300, 92, 11), Line("twice a day.", 100, 94, 160, 106, 11)]
    blocks = join_rows([[Line("The Ferry", 72, 40, 140, 60, 16)], lines, [Line("T", 72, 76, 98, 130, 40)]])
    page = PrintedPage(blocks, 800)
    assert Paragrapher([page]).page(page) == "The Ferry\n\nThe ferry crossed the estuary twice a day."
