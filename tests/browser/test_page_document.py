"""The document beside the answer: its pages, map, contents and search; and questions that are asked again."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server, book_text
from tests.browser.helpers import asked, visit
from tests.ingest.makers import epub

pytestmark = pytest.mark.browser
CHAPTERS = "# The Storm\n\nThe sea rose.\n\n# The Calm\n\nHe had a snakish temper, and the lamp was out.\n"


def test_a_source_opens_its_page_beside_the_answer(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "Who kept the lamp?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    link, page = tab.get_by_role("link", name="Read the whole page").first, tab.locator("#beside .page-body")
    link.click()
    mark = page.locator("mark")
    expect(mark).to_be_in_viewport()
    assert mark.inner_text().strip().endswith((".", "”", "!"))
    expect(page.locator("h2")).to_be_focused()
    expect(tab.locator("#past .turn")).to_be_visible()
    expect(tab.locator("#book")).to_be_hidden()
    text, size = (
        page.locator(".page-text"),
        "parseFloat(getComputedStyle(document.querySelector('.page-text')).fontSize)",
    )
    before = tab.evaluate(size)
    tab.get_by_role("button", name="Larger").click()
    tab.wait_for_function(f"{size} > {before}")
    tab.keyboard.press("Escape")
    expect(text).to_be_hidden()
    expect(link).to_be_focused()
    expect(tab.locator("#book")).to_be_visible()
    assert len(tab.context.pages) == 1


def test_on_a_phone_a_page_covers_the_answer_until_it_is_left(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    session = asked(server, reading, "Who kept the lamp?")
    tab.set_viewport_size({"width": 390, "height": 800})
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field, button = tab.locator("#question textarea").bounding_box(), tab.locator("#ask").bounding_box()
    assert field is not None
    assert button is not None
    assert abs(field["y"] + field["height"] - button["y"] - button["height"]) < 8, "Ask stands beside the question"
    tab.get_by_role("link", name="Read the whole page").first.click()
    expect(tab.locator("#beside mark")).to_be_in_viewport()
    assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    tab.get_by_role("button", name="Back to the document").click()
    expect(tab.locator("#beside mark")).to_be_hidden()


def test_a_phrase_is_searched_in_the_text_and_asked_about(tab: Page, server: Server) -> None:
    """PRODUCT: there was no way to find a phrase of the book, in an app for long documents."""
    files = [("Storm.md", CHAPTERS.encode()), ("Keeper.txt", book_text(8).encode())]
    reading = server.read(*files, method="exact", budget="320")
    visit(tab, server, f"?context={reading['id']}")
    find, found = tab.get_by_label("Search in the text of what was read"), tab.locator("#found li")
    find.fill('"snakish temper"')
    expect(found).to_have_count(1)
    expect(found.locator("mark")).to_have_text("snakish temper")
    expect(found).to_contain_text("The Calm")
    found.get_by_role("link").click()
    expect(tab.locator("#beside mark")).to_have_text("snakish temper")
    tab.keyboard.press("Escape")
    found.get_by_role("button", name="Ask about this place").click()
    expect(tab.locator("#pages").locator("input, textarea")).to_have_value(re.compile(r"^1:2/1-\d$"))
    expect(tab.locator("#question textarea")).to_be_focused()
    find.fill("nowhere at all")
    expect(tab.locator("#found")).to_contain_text("Nothing found in the text.")


def test_contents_and_map_of_an_epub_lead_to_their_places(tab: Page, server: Server, tmp_path: Path) -> None:
    chapters = {"1.xhtml": "<h1>The Storm</h1><p>The sea rose.</p>", "2.xhtml": "<h1>The Calm</h1><p>It lay still.</p>"}
    nav = '<li><a href="1.xhtml">The Storm</a></li><li><a href="2.xhtml">The Calm</a></li>'
    book = epub(tmp_path / "Chapters.epub", chapters, nav).read_bytes()
    files = [("Chapters.epub", book), ("Keeper.txt", book_text(40).encode())]
    reading = server.read(*files, method="exact", budget="320")
    session = asked(server, reading, "Who kept the lamp?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    book, page = tab.locator("#book"), tab.locator("#beside")
    expect(book.locator("line.tick")).to_have_count(2)
    expect(book).to_contain_text("everything is remembered")
    book.get_by_role("link", name="The Calm").click()
    expect(page.locator("h2")).to_have_text("The Calm")
    page.get_by_role("link", name="Previous").click()
    expect(page.locator("h2")).to_have_text("The Storm")
    tab.get_by_role("button", name="Back to the document").click()
    book.locator("rect").last.click()
    expect(page.locator("header")).to_contain_text("Keeper")
    tab.keyboard.press("Escape")
    sources = server.get(f"/api/sessions/{session}/turns")[0]["sources"]
    expect(book.locator(".looked:is(path)")).to_have_count(len(sources))
    if sources:
        book.locator(".looked:is(path)").first.click()
        expect(page.locator("mark")).to_be_in_viewport()
        tab.keyboard.press("Escape")
    book.get_by_role("button", name="Ask about this one only").nth(1).click()
    expect(tab.locator("#pages").locator("input, textarea")).to_have_value("2:")
    tab.locator("#question textarea").fill("Is the lamp lit?")
    tab.keyboard.press("Enter")
    expect(tab.locator("#past .turn").nth(1)).to_contain_text("document 2 read again")


def test_a_question_is_asked_again_in_a_chat_of_its_own(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "Who kept the lamp?", "When was it built?")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit(tab, server, f"?context={reading['id']}&session={session}")
    expect(tab.locator("#question textarea")).to_be_focused()
    first = tab.locator("#past .turn").first
    expect(first.locator(".speed p")).to_be_hidden()
    if first.get_by_role("button", name="Copy with source").count():
        first.get_by_role("button", name="Copy with source").click()
        expect(first.get_by_role("button", name="Copied")).to_be_visible()
        copied = tab.evaluate("navigator.clipboard.readText()")
        assert re.fullmatch(r"“.+” \(.*paragraph \d+.*\)", copied, re.DOTALL)
    first.get_by_role("button", name="Ask question 1 again").click()
    expect(tab.locator("#past .question")).to_have_text(["Who kept the lamp?"])
    expect(tab).not_to_have_url(re.compile(f"session={session}"))
    assert len(server.get(f"/api/sessions/{session}/turns")) == 2


def test_a_question_mark_shows_the_keys(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("?")
    keys = tab.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("to the question")
    tab.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    tab.locator("#question textarea").fill("Who")
    tab.locator("#question textarea").press("?")
    expect(keys).to_be_hidden()
