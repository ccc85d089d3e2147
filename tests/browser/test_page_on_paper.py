"""The page as it is printed: the whole conversation, and nothing else."""

from typing import Any

import pymupdf
import pytest
from playwright.sync_api import Page, expect

from sessions import Store
from tests.app.helpers import Server
from tests.browser.helpers import visit

pytestmark = pytest.mark.browser
TURNS = 12


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_all_that_was_said_is_printed_in_black_on_white(
    tab: Page, server: Server, reading: dict[str, Any], width: int, theme: str
) -> None:
    """Only the visible part was printed, between the lists and the panel, and dark on black in the dark theme."""
    session = server.send("/api/sessions", {"context": reading["id"]})["id"]
    with Store(server.home) as store:
        for number in range(1, TURNS + 1):
            turn = store.turns.add(session, f"Question {number}?")
            store.turns.finish(turn.id, answer=f"Answer {number}. " * 60)
    tab.set_viewport_size({"width": width, "height": 700})
    tab.add_init_script(f"localStorage.setItem('stockpot-theme', '{theme}')")
    visit(tab, server, f"?session={session}")
    expect(tab.locator("#past .turn")).to_have_count(TURNS)
    paper = pymupdf.open(stream=tab.pdf(prefer_css_page_size=True, print_background=True))
    text = " ".join("".join(page.get_text() for page in paper).split())
    for number in range(1, TURNS + 1):
        assert (text.count(f"Question {number}?"), text.count(f"Answer {number}.")) == (1, 60)
    assert reading["title"] in text
    for other in (
        "New document",
        "This computer",
        "Contents",
        "Search in the text",
        "How to answer",
        "Documents",
        "Copy",
        "Edit",
    ):
        assert other not in text
    assert all(page.rect.height > page.rect.width for page in paper)
    for page in paper:
        assert page.get_pixmap().pixel(2, 2) == (255, 255, 255)
        for block in page.get_text("dict")["blocks"]:
            for span in (span for line in block.get("lines", []) for span in line["spans"]):
                assert all(part <= 0x33 for part in span["color"].to_bytes(4)), span["text"]  # dark
