"""The page with a keyboard, a screen reader or a magnifier."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server, book_text
from tests.browser.helpers import asked, fill, visit

pytestmark = pytest.mark.browser


def test_every_refusal_is_shown_and_read_out(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """The second one was written into the first, and not read out."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading)}")
    field, notice = tab.locator("#question textarea"), tab.locator("#trouble [role=alert]")
    for many in (6000, 7000):
        field.fill("why " * many)
        field.press("Enter")
        expect(notice).to_contain_text(f"The question has {4 * many - 1:,}")
        assert notice.evaluate("each => !each.met && (each.met = true)")
    notice.get_by_role("button", name="Close").click()
    expect(notice).to_have_count(0)


def test_the_focus_goes_on_with_what_comes_next(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """The focused element disappeared, and the focus fell to the page."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading, 'Who kept the lamp?')}")
    field = tab.locator("#question textarea")
    with server.held_back():
        field.fill("Who kept the diary?")
        tab.locator("#ask").press("Enter")
        expect(tab.locator("#stop")).to_be_visible()
        expect(field).to_be_focused()
        tab.locator("#stop").press("Enter")
        expect(tab.locator("#ask")).to_be_visible()
        expect(field).to_be_focused()
    tab.get_by_role("button", name="Rename, export, delete").click()
    tab.locator("#delete-session").press("Enter")
    expect(tab.locator(".confirm p[role=alert]")).to_be_in_viewport()
    tab.locator("#keep").press("Enter")
    expect(field).to_be_focused()
    tab.locator("#delete-session").click()
    tab.locator("#keep").click()  # with a mouse nothing moves by itself
    expect(tab.locator(".confirm p[role=alert]")).to_be_hidden()
    tab.wait_for_timeout(1500)
    expect(field).not_to_be_focused()


def test_what_happens_is_read_out(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading)}")
    teller = tab.locator("#teller[aria-live=polite]")
    expect(teller).to_have_text("")  # there from the beginning, or its first words are not heard
    with server.held_back():
        tab.locator("#question textarea").fill("Who kept the lamp?")
        tab.locator("#question textarea").press("Enter")
        expect(teller).to_have_text("Answering")
        tab.locator("#stop").click()
    expect(teller).to_contain_text("Stopped")
    tab.locator("#search input, #search textarea").fill("nothing of the kind")
    expect(teller).to_have_text("Nothing found")
    tab.locator("#search input, #search textarea").fill("lamp")
    expect(teller).to_have_text(re.compile(r"Found: \d+"))
    for name in ("Documents", "Chats", "Found"):
        expect(tab.get_by_role("group", name=name, exact=True)).to_be_visible()
    fold = tab.get_by_role("button", name="How to answer")
    expect(fold).to_have_attribute("aria-expanded", "false")
    fold.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")


def test_what_is_done_is_read_out_and_that_nothing_is_searched_for_is_not(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """An emptied search said "Found", and nothing was said after Rename and Delete."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading, 'Who kept the lamp?')}")
    teller, search = tab.locator("#teller"), tab.locator("#search input, #search textarea")
    tab.evaluate("""() => { window.said = [];
        new MutationObserver(() => said.push(document.querySelector("#teller").textContent))
            .observe(document.querySelector("#teller"), { childList: true }); }""")
    search.fill("lamp")
    expect(teller).to_have_text(re.compile(r"Found: \d+"))
    search.fill("")
    expect(tab.locator("#hits")).to_be_hidden()
    tab.get_by_role("button", name="Rename, export, delete").click()
    title = tab.locator("#rename-to input, #rename-to textarea").first
    for _ in range(2):
        tab.evaluate("() => document.querySelector('#teller').textContent = ''")
        fill(title, "About lamps")
        title.press("Enter")
        expect(teller).to_have_text("Renamed.")
    tab.locator("#delete-session").click()
    tab.locator("#confirm").click()
    expect(teller).to_have_text("Deleted.")
    said = [each for each in tab.evaluate("said") if each]
    assert [each for each in said if not each.startswith("Found: ")] == ["Renamed.", "Renamed.", "Deleted."]


def test_there_is_room_for_a_finger(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Copy and Edit were 18 pixels high."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading, 'Who kept the lamp?')}")
    buttons = [tab.get_by_role("button", name=name) for name in ("Copy", "Edit question 1", "Ask about this place")]
    for width, least in ((1440, 0), (390, 44)):
        tab.set_viewport_size({"width": width, "height": 800})
        for button in buttons:
            box = button.first.bounding_box()
            assert box
            assert least <= box["height"]
            assert least <= box["width"]
        assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_on_a_phone_nothing_that_is_reached_with_tab_is_below_the_composer(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """Gradio gives that rule another selector."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading, 'Who kept the lamp?')}")
    tab.set_viewport_size({"width": 390, "height": 800})
    places = tab.locator("#conversation summary")
    for number in range(places.count()):
        places.nth(number).focus()
        expect(places.nth(number)).to_be_in_viewport(ratio=1)
        free = "place => composer.getBoundingClientRect().top - place.getBoundingClientRect().bottom"
        assert places.nth(number).evaluate(free) >= 0  # both at one moment: the page may still be laid out
    assert tab.evaluate("getComputedStyle(document.documentElement).scrollPaddingBottom") == "160px"


def test_that_a_book_has_been_read_is_read_out(tab: Page, server: Server, tmp_path: Path) -> None:
    book = tmp_path / "Long.txt"
    book.write_text(book_text(30), encoding="utf-8")
    visit(tab, server, "?new=1")
    tab.locator("#files input[type=file]").set_input_files([book])
    expect(tab.get_by_role("row", name="Long.txt").get_by_role("link")).to_be_visible()
    with server.held_back():
        tab.locator("#start").press("Enter")
        expect(tab).to_have_title(re.compile(r"^\d+% · Long$"))
    expect(tab.locator("#question textarea")).to_be_focused()
    expect(tab.locator("#teller")).to_have_text("It has been read.")


def test_what_has_the_focus_is_marked(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Gradio removes the mark from fields."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading)}")
    tab.get_by_role("button", name="How to answer").click()
    marks = """each => { const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(each);
        return `${outlineStyle} ${outlineWidth} ${boxShadow}`; }"""
    for name in (
        "#question textarea",
        "#pages input, #pages textarea",
        "#temperature input",
        "#max-tokens input",
        "#ask",
    ):
        control = tab.locator(name).first
        before = control.evaluate(marks)
        tab.keyboard.press("Tab")  # so that the browser knows of the keyboard
        control.focus()
        assert control.evaluate(marks) != before, name


def test_sources_stay_as_they_were_folded(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """The next answer folded sources that had been opened by hand, and the text jumped."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading, 'Who kept the lamp?')}")
    sources = tab.locator("#past .turn").first.locator(".sources")
    expect(sources.locator(".place").first).to_be_visible()
    sources.locator("summary").first.click()
    expect(sources.locator(".place").first).to_be_hidden()
    sources.locator("summary").first.click()
    for _ in range(2):
        tab.locator("#question textarea").fill("Who kept the diary?")
        tab.locator("#question textarea").press("Enter")
        expect(tab.locator("#live-turn .turn")).to_have_count(0)
        expect(sources.locator(".place").first).to_be_visible()


def test_a_turn_is_as_wide_as_the_page_while_it_is_answered_and_all_fits_at_four_times_the_size(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """Question and answer stood side by side at some widths, and Ask was cut off at others."""
    visit(tab, server, f"?context={reading['id']}&session={asked(server, reading)}")
    with server.held_back():
        tab.set_viewport_size({"width": 1000, "height": 700})
        tab.locator("#question textarea").fill("Who kept the lamp?")
        tab.locator("#question textarea").press("Enter")
        live = tab.locator("#live-turn .turn")
        expect(live).to_be_visible()
        assert live.evaluate("each => getComputedStyle(each).gridTemplateColumns.split(' ').length") == 1
        tab.locator("#stop").click()
    tab.set_viewport_size({"width": 320, "height": 640})
    expect(tab.locator("#ask")).to_be_in_viewport(ratio=1)
    assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_a_page_of_a_document_has_the_theme_that_was_chosen(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server)
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    for wanted in ("dark", "light"):
        tab.locator("[data-action=theme]").click()
        assert tab.evaluate(scheme) == wanted
        document = tab.context.new_page()
        document.goto(f"{server.url}/documents/{reading['document_ids'][0]}/pages/1")
        assert document.evaluate(scheme) == wanted
        document.close()
