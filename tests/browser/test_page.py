"""The page as a person uses it: upload, watch, ask, reload in the middle, at any width."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server, book_text
from tests.browser.helpers import ask, asked, side, visit

pytestmark = pytest.mark.browser


def test_a_book_is_dropped_in_watched_asked_and_nothing_is_lost_on_the_way(
    tab: Page, server: Server, tmp_path: Path
) -> None:
    book, notes = tmp_path / "The Keeper.txt", tmp_path / "Notes.md"
    book.write_text(book_text(60), encoding="utf-8")
    notes.write_text("# Notes\n\nThe keeper liked tea.", encoding="utf-8")
    visit(tab, server, "?new=1")
    tab.locator("#files input[type=file]").set_input_files([book, notes])
    expect(tab.get_by_role("row", name="Notes.md").get_by_role("link")).to_be_visible()  # uploaded
    expect(tab.locator("#estimate .expected")).to_contain_text(
        re.compile(r"^The Keeper and Notes · about \d+ pages · .* · it fits$")
    )
    tab.locator("#memory").get_by_text("The essentials").click()
    tab.get_by_role("button", name="For experts").click()
    expect(tab.locator("#method label.selected")).to_contain_text("infinipot")
    expect(tab.locator("#budget input")).to_have_value("2048")  # the method's own
    tab.locator("#budget input").fill("3")
    expect(tab.locator("#estimate .note")).to_contain_text("budget of 128 or more")
    tab.locator("#budget input").fill("512")
    tab.locator("#budget input").press("Tab")
    expect(tab.locator("#estimate .expected")).to_contain_text("it fits")
    with server.held_back():
        tab.locator("#start").click()
        # Watching: how far it is, and tokens that stay within the budget.
        card = tab.locator("#reading-card")
        expect(card).to_contain_text("The Keeper")
        expect(card).to_contain_text(re.compile(r"[1-9][\d,]* of [\d,]+ tokens"))
        expect(card).to_contain_text("of 512 tokens at hand")
        side(tab, "This computer")
        expect(tab.locator("#kv-entries")).to_be_visible()
        expect(tab).to_have_url(re.compile(r"\?context=c-"))
        # Closing the tab does not stop it, and coming back finds it.
        address = tab.url
        tab.goto("about:blank")
    tab.goto(address)
    expect(tab.locator("#context-head")).to_contain_text("The Keeper and Notes")
    expect(tab.locator("#context-head")).to_contain_text("has text")
    side(tab, "This computer")
    assert int(tab.locator("#kv-entries").inner_text().replace(",", "")) <= 512
    expect(tab.get_by_role("img", name="How much is remembered of each tenth")).to_be_visible()
    expect(tab.locator("#book rect title").first).to_have_text(re.compile(r"The Keeper, .*: [\d.]+% remembered"))

    tab.set_viewport_size({"width": 1440, "height": 560})
    with server.held_back():
        ask(tab, "Tell me everything.", 1000)
        tab.locator("#reason input").check()
        live = tab.locator("#live-turn .answer-text")
        expect(live).not_to_be_empty()
        tab.reload()  # in the middle of the answer
        expect(live).not_to_be_empty()
        expect(tab.locator(".question")).to_have_text(["Tell me everything."])
    turn = tab.locator("#past .turn")
    expect(turn).to_have_count(1)
    expect(turn.locator(".measured")).to_be_in_viewport()  # and not scrolled away by the sources under it
    expect(turn.locator(".measured")).to_contain_text("to the first word")
    # A model of random weights may repeat itself before its 1,000 tokens are over, which ends the answer.
    expect(turn.locator(".measured")).to_contain_text(re.compile(r"\d{3} tokens"))
    expect(turn.locator(".sources li, .nowhere").first).to_be_visible()  # random weights look everywhere
    expect(tab.locator("#live-turn .turn")).to_have_count(0)
    side(tab, "This computer")
    expect(tab.locator("#panel")).to_contain_text("Answering")
    said = turn.locator(".answer-text").inner_text()
    expect(tab.locator("#teller[aria-live=polite]")).to_contain_text(said)  # for screen readers
    turn.get_by_role("button", name="Copy", exact=True).click()
    expect(turn.get_by_role("button", name=re.compile("Copied|Selected"))).to_be_visible()
    # The options are as they were left.
    tab.get_by_role("button", name="How to answer").click()
    expect(tab.locator("#reason input")).to_be_checked()
    expect(tab.locator("#max-tokens input")).to_have_value("1000")


def test_text_of_documents_and_names_is_never_markup(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "<b id=evil>Who?</b>")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    expect(tab.locator(".question")).to_have_text(["<b id=evil>Who?</b>"])
    expect(tab.locator("#sessions label").first).to_contain_text("<b id=evil>")
    assert tab.locator("#evil").count() == 0
    assert tab.locator("#main img").count() == 0
    expect(tab).to_have_title(reading["title"])


def test_nothing_is_cut_off_at_any_width_and_the_dark_side_works(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    visit(tab, server, f"?context={reading['id']}")
    dark, paper = re.compile("dark"), "getComputedStyle(document.body).backgroundColor"
    for width in (390, 820, 1440):
        tab.set_viewport_size({"width": width, "height": 800})
        expect(tab.locator("#question textarea")).to_be_visible()
        assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        light = tab.evaluate(paper)
        switch = tab.get_by_role("button", name="Switch between light and dark")
        switch.click()
        expect(tab.locator("body")).to_have_class(dark)
        assert tab.evaluate(paper) != light
        if width < 1440:
            switch.click()
            expect(tab.locator("body")).not_to_have_class(dark)
    tab.reload()
    expect(tab.locator("body")).to_have_class(dark)


def test_on_a_phone_every_setting_is_named_and_the_menu_shows_what_is_chosen(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """A checkbox left too little room for its label, and the menu began at its top wherever the selection was."""
    for number in range(8):  # above the reading in the list
        server.read((f"{number}.txt", f"Note number {number}.".encode()), method="streaming", budget="64")
    tab.set_viewport_size({"width": 390, "height": 700})
    visit(tab, server, f"?context={reading['id']}")
    tab.get_by_role("button", name="Documents and chats").click()
    expect(tab.locator("#contexts label.selected")).to_be_in_viewport(ratio=1)
    tab.get_by_role("button", name="New document").click()
    tab.get_by_role("button", name="For experts").click()
    expect(tab.locator("#set-exact-extend_always").get_by_text("Extend always")).to_be_visible()
    assert tab.locator("#set-exact-extend_always").evaluate("field => field.scrollWidth - field.clientWidth") <= 0
    tab.locator("#set-exact-extend_always input").click()
    tab.get_by_role("option", name="yes").click()
    expect(tab.locator("#set-exact-extend_always input")).to_have_value("yes")
    expect(tab.locator("#estimate")).to_contain_text("There is room")


def test_what_is_unfolded_under_the_question_stays_within_a_low_window(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """The buttons that delete or keep were below the window, where no scrolling reached them."""
    tab.set_viewport_size({"width": 1440, "height": 480})
    visit(tab, server, f"?context={reading['id']}")
    for name in ("How to answer", "Rename, export, delete"):
        tab.get_by_role("button", name=name).click()
    tab.locator("#delete-documents").click()
    expect(tab.locator("#confirm-text")).to_contain_text("cannot be undone")
    assert tab.evaluate("document.querySelector('#composer').getBoundingClientRect().bottom - innerHeight") <= 0
    tab.locator("#confirm-text").hover()
    tab.mouse.wheel(0, 2000)
    expect(tab.locator("#keep")).to_be_in_viewport(ratio=1)


def test_a_page_where_nothing_goes_on_asks_seldom_until_somebody_comes(tab: Page, server: Server) -> None:
    """It asked every five seconds."""
    asked: list[str] = []

    def looks(times: int) -> int:
        asked.clear()
        for _ in range(times):
            tab.clock.fast_forward(10_000)
        return len([each for each in asked if each.endswith("/version")])

    tab.clock.install()
    tab.goto(f"{server.url}/?new=1")
    expect(tab.locator("#new-reading")).to_be_visible()
    tab.on("request", lambda request: asked.append(request.url))
    assert any(2 <= looks(9) <= 4 for _ in range(10)), "what the page asks first may come late"
    tab.mouse.move(300, 300)
    assert looks(2) == 2
