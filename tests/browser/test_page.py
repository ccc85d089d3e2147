"""The page as a person uses it: upload, watch, ask, reload in the middle, come back later, export, delete."""

import json
import re
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app.helpers import Server, book_text
from tests.app.tiny import make_tiny_model

pytestmark = pytest.mark.browser


def visit(tab: Page, server: Server, query: str = "") -> None:
    tab.goto(server.url + "/" + query)
    tab.wait_for_selector("#panel .live")


def ask(tab: Page, question: str, tokens: int) -> None:
    """Ask through the page, for an answer of so many tokens."""
    if not tab.locator("#max-tokens input[type=number]").is_visible():
        tab.get_by_role("button", name="How to answer").click()
    field = tab.locator("#max-tokens input[type=number]")
    for _ in range(5):  # the page may still be setting its own value into a control that has just appeared
        field.fill(str(tokens))
        field.press("Tab")
        tab.wait_for_timeout(300)
        if field.input_value() == str(tokens):
            break
    expect(field).to_have_value(str(tokens))
    tab.locator("#question textarea").fill(question)
    tab.locator("#question textarea").press("Enter")


def asked(server: Server, reading: dict[str, Any], *questions: str, tokens: int = 4) -> str:
    """The id of a session in which these questions were asked, with answers of so many tokens."""
    session: str = server.send("/api/sessions", {"context": reading["id"]})["id"]
    for question in questions:
        turn = server.send(f"/api/sessions/{session}/turns", {"question": question, "max_tokens": tokens})
        server.answered(turn["id"])
    return session


@pytest.fixture(scope="module")
def reading(server: Server) -> dict[str, Any]:
    """A short text that has been read."""
    text = book_text(30) + "\n\n<img src=x onerror=\"document.title='broken into'\">"
    return server.read(("<b>A bold name</b>.txt", text.encode()), method="exact", budget="320")


def test_a_book_is_dropped_in_watched_asked_and_nothing_is_lost_on_the_way(
    tab: Page, server: Server, tmp_path: Path
) -> None:
    book, notes = tmp_path / "The Keeper.txt", tmp_path / "Notes.md"
    book.write_text(book_text(3000), encoding="utf-8")  # some seconds, so that it can be watched
    notes.write_text("# Notes\n\nThe keeper liked tea.", encoding="utf-8")
    visit(tab, server)
    tab.get_by_role("button", name="New reading").click()
    tab.locator("#files input[type=file]").set_input_files([book, notes])
    expect(tab.get_by_role("row", name="Notes.md").get_by_role("link")).to_be_visible()  # uploaded
    tab.locator("#method").get_by_text("infinipot").click()
    expect(tab.locator("#budget input")).to_have_value("2048")  # the method's own
    tab.locator("#budget input").fill("3")
    expect(tab.locator("#estimate .note")).to_contain_text("budget of 128 or more")
    tab.locator("#budget input").fill("512")
    tab.locator("#budget input").press("Tab")
    expect(tab.locator("#estimate .quiet")).to_contain_text("Fits a text of any length here")
    tab.locator("#start").click()

    # Watching: how far it is, and entries that stay within the budget.
    card = tab.locator("#reading-card")
    expect(card).to_contain_text("The Keeper")
    expect(card).to_contain_text(re.compile(r"[1-9][\d,]* of [\d,]+ tokens"))
    expect(card).to_contain_text("of a budget of 512")
    expect(tab.locator("#kv-entries")).to_be_visible()
    # Closing the tab does not stop it, and coming back finds it.
    address = tab.url
    tab.goto("about:blank")
    tab.goto(address)
    expect(tab.locator("#context-head")).to_contain_text("The Keeper, Notes", timeout=60_000)
    expect(tab.locator("#context-head")).to_contain_text("have text")
    assert int(tab.locator("#kv-entries").inner_text().replace(",", "")) <= 512

    tab.set_viewport_size({"width": 1440, "height": 560})
    ask(tab, "Who kept the lamp?", 1000)  # long enough to be met half-way
    live = tab.locator("#live-turn .answer-text")
    expect(live).not_to_be_empty()
    tab.reload()  # in the middle of the answer
    expect(tab.locator(".question")).to_have_text(["Who kept the lamp?"])
    turn = tab.locator("#past .turn")
    expect(turn).to_have_count(1, timeout=60_000)
    expect(turn.locator(".measured")).to_be_in_viewport()  # and not scrolled away by the sources under it
    expect(turn.locator(".measured")).to_contain_text("to first token")
    expect(turn.locator(".measured")).to_contain_text("1,000 tokens")
    expect(turn.locator(".sources li").first).to_be_visible()
    expect(turn.locator(".sources .place").first).to_contain_text("on the page")
    assert tab.locator("#live-turn .turn").count() == 0
    expect(tab.locator("#panel")).to_contain_text("Answering")
    said = turn.locator(".answer-text").inner_text()
    expect(tab.locator("#teller[aria-live=polite]")).to_have_text(said)  # to those who cannot see it
    turn.get_by_role("button", name="Copy").click()
    expect(turn.get_by_role("button", name=re.compile("Copied|Selected"))).to_be_visible()


def test_an_edited_question_is_asked_in_a_session_of_its_own(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    session = asked(server, reading, "Who kept the lamp?", "When was it built?")
    tab.set_viewport_size({"width": 390, "height": 800})
    visit(tab, server, f"?context={reading['id']}&session={session}")
    first, line, field = tab.locator("#past .turn").first, tab.locator("#edit-line"), tab.locator("#question textarea")
    edit = first.get_by_role("button", name="Edit question 1")
    edit.focus()
    edit.press("Enter")
    expect(line).to_have_text("Goes on from question 1 in a session of its own; this one stays as it is.")
    expect(field).to_have_value("Who kept the lamp?")
    expect(field).to_be_focused()
    assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    field.press("Escape")
    expect(line).to_be_hidden()
    expect(field).to_have_value("")
    edit.click()
    expect(field).to_have_value("Who kept the lamp?")
    field.fill("Who kept the diary?")
    field.press("Enter")
    expect(tab.locator("#past .question")).to_have_text(["Who kept the diary?"], timeout=60_000)
    expect(line).to_be_hidden()
    assert f"session={session}" not in tab.url
    old = server.get(f"/api/sessions/{session}/turns")
    assert [turn["question"] for turn in old] == ["Who kept the lamp?", "When was it built?"]


def test_nothing_that_was_typed_is_lost(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Edit, Never mind, another session and a reload each took what stood in the field."""
    sessions = [asked(server, reading, question) for question in ("Who was Maren Hollis?", "Who slept under a boat?")]
    visit(tab, server, f"?context={reading['id']}&session={sessions[0]}")
    field, edit = tab.locator("#question textarea"), tab.get_by_role("button", name="Edit question 1")
    field.fill("A draft, and")
    edit.click()
    expect(field).to_have_value("Who was Maren Hollis?")
    field.fill("Who was Tobias Renn?")
    tab.locator("#never-mind").click()
    expect(field).to_have_value("A draft, and")
    edit.click()
    expect(field).to_have_value("Who was Tobias Renn?")
    tab.locator("#sessions").get_by_text("Who slept under a boat?").click()
    expect(field).to_have_value("")
    field.fill("Something else")
    tab.reload()
    tab.wait_for_selector("#panel .live")
    expect(field).to_have_value("Something else")
    tab.locator("#sessions").get_by_text("Who was Maren Hollis?").click()
    expect(field).to_have_value("A draft, and")

    # What is typed while a question is on its way, and while its answer comes.
    ask(tab, "Tell me everything.", 400)
    field.press("End")
    field.type(" And then?")
    then = re.compile(r"^ ?And then\?$")  # the blank stays if the question had arrived already
    expect(tab.locator("#live-turn .question")).to_have_text("Tell me everything.")
    expect(field).to_have_value(then)
    field.press("Enter")  # refused as long as the other is being answered
    expect(tab.locator("#notice [role=alert]")).to_contain_text("still being answered")
    expect(field).to_have_value(then)
    tab.locator("#stop").click()
    expect(tab.locator("#past .turn.cancelled")).to_be_visible()
    expect(field).to_have_value(then)
    field.press("Enter")
    expect(field).to_have_value("")
    expect(tab.locator(".question").last).to_have_text("And then?")
    tab.locator("#stop").click()


def test_a_question_that_is_too_long_is_refused_and_stays(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """It was cut without a word, and the rest was answered."""
    session = asked(server, reading)
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field = tab.locator("#question textarea")
    field.fill("why " * 6000)
    field.press("Enter")
    expect(tab.locator("#notice [role=alert]")).to_contain_text("at most 20,000 can be asked")
    expect(field).to_have_value("why " * 6000)
    assert server.get(f"/api/sessions/{session}/turns") == []


@pytest.mark.parametrize("again", ["Enter", "Ask"])
def test_what_is_typed_after_a_question_stays_even_if_it_is_sent_too_early(
    tab: Page, server: Server, reading: dict[str, Any], again: str
) -> None:
    """Enter before the first question had arrived made the tab forget where that question ended."""
    session = asked(server, reading, "Who was Maren Hollis?")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    field, held = tab.locator("#question textarea"), []
    tab.route("**/run/**", lambda route: held.append(route))  # nothing reaches the server
    field.fill("Tell me everything.")
    field.press("Enter")
    field.press("End")
    field.type(" And then?")
    if again == "Enter":
        field.press("Enter")
    else:
        tab.locator("#ask").click()
    tab.wait_for_timeout(300)
    for route in held:  # in the order in which they were sent, which connections of their own do not keep
        route.continue_()
        tab.wait_for_timeout(200)
    tab.unroute("**/run/**")  # and what was held meanwhile goes on too
    expect(tab.locator(".question").last).to_have_text("Tell me everything.")
    expect(field).to_have_value("And then?")
    tab.reload()
    tab.wait_for_selector("#panel .live")
    expect(field).to_have_value("And then?")
    field.fill("")
    expect(tab.locator("#past .turn")).to_have_count(2)
    assert [turn["question"] for turn in server.get(f"/api/sessions/{session}/turns")][1:] == ["Tell me everything."]


@pytest.mark.parametrize("width", [390, 1440])
def test_an_answer_is_followed_unless_the_reader_has_gone_up(
    tab: Page, server: Server, reading: dict[str, Any], width: int
) -> None:
    """On a phone the whole page scrolls, and stayed where it was."""
    session = asked(server, reading, "Who kept the lamp?", tokens=64)
    tab.context.set_default_timeout(90_000)
    tab.set_viewport_size({"width": width, "height": 520})
    visit(tab, server, f"?context={reading['id']}&session={session}")
    question = {"question": "Tell me everything.", "max_tokens": 20_000}  # until it is stopped
    turn = server.send(f"/api/sessions/{session}/turns", question)
    shown = """() => {
        const end = document.querySelector("#live-turn .answer-text")?.getBoundingClientRect().bottom;
        const room = innerHeight - document.querySelector("#composer").offsetHeight;
        return end && end <= room + 4 && end > room - 120;  // it has come to the end of the room, and not beyond
    }"""

    def grown(letters: int) -> None:
        said = len(tab.locator("#live-turn .answer-text").inner_text())
        tab.wait_for_function(
            f"document.querySelector('#live-turn .answer-text').textContent.length > {said + letters}"
        )

    try:
        tab.wait_for_function(shown)
        grown(150)
        tab.wait_for_function(shown)
        tab.mouse.move(width / 2, 200)
        tab.mouse.wheel(0, -300)
        tab.wait_for_timeout(600)
        top = "document.querySelector('#past .turn').getBoundingClientRect().top"
        before = tab.evaluate(top)
        grown(100)
        assert tab.evaluate(top) == before
        for _ in range(60):  # and back to the end, no further
            if tab.evaluate("document.querySelector('#conversation').dataset.follow") == "yes":
                break
            tab.mouse.wheel(0, 60)
            tab.wait_for_timeout(50)
        tab.wait_for_function(shown)
        grown(100)
        tab.wait_for_function(shown)
    finally:
        tab.locator("#stop").click()
        server.answered(turn["id"])


def test_two_tabs_show_the_same_answer_and_one_can_stop_it(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = server.send("/api/sessions", {"context": reading["id"]})["id"]
    other = tab.context.new_page()
    for each in (tab, other):
        visit(each, server, f"?context={reading['id']}&session={session}")
    ask(tab, "Tell me everything.", 1000)
    expect(other.locator("#live-turn .answer-text")).not_to_be_empty()
    other.locator("#stop").click()
    for each in (tab, other):
        expect(each.locator("#past .turn.cancelled")).to_be_visible()
        expect(each.locator("#past")).to_contain_text("Stopped.")
        expect(each.locator("#ask")).to_be_visible()
    assert [turn["status"] for turn in server.get(f"/api/sessions/{session}/turns")] == ["cancelled"]
    other.close()


def test_text_of_documents_and_names_is_never_markup(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "<b id=evil>Who?</b>")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    expect(tab.locator(".question")).to_have_text(["<b id=evil>Who?</b>"])
    expect(tab.locator("#sessions label").first).to_contain_text("<b id=evil>")
    assert tab.locator("#evil").count() == 0
    assert tab.locator("#main img").count() == 0
    assert tab.title() == "Stockpot"


def test_a_reading_is_stopped_and_taken_up_again(tab: Page, server: Server, tmp_path: Path) -> None:
    book = tmp_path / "Long.txt"
    book.write_text(book_text(4000), encoding="utf-8")  # longer than a fast machine takes to be told to stop, twice
    visit(tab, server)
    tab.get_by_role("button", name="New reading").click()
    tab.locator("#files input[type=file]").set_input_files([book])
    expect(tab.get_by_role("row", name="Long.txt").get_by_role("link")).to_be_visible()  # uploaded
    tab.locator("#start").click()
    expect(tab.locator("#reading-card")).to_contain_text("tokens/s")
    tab.locator("#cancel").click()
    expect(tab.locator("#reading-card")).to_contain_text("goes on from there")
    expect(tab.locator("#contexts label.selected")).to_contain_text("stopped at")
    tab.locator("#resume").click()
    expect(tab.locator("#contexts label.selected")).to_contain_text("reading")
    tab.locator("#cancel").click()
    expect(tab.locator("#contexts label.selected")).to_contain_text("stopped at")
    tab.locator("#discard").click()
    expect(tab.locator("#new-view")).to_be_visible()
    expect(tab.locator("#contexts")).not_to_contain_text("Long")


def test_a_preset_fills_in_settings_that_can_still_be_changed(tab: Page, server: Server, tmp_path: Path) -> None:
    book = tmp_path / "Short.txt"
    book.write_text(book_text(11), encoding="utf-8")
    visit(tab, server)
    tab.get_by_role("button", name="New reading").click()
    tab.locator("#files input[type=file]").set_input_files([book])
    tab.locator("#method").get_by_text("infllm").click()
    expect(tab.locator("#budget input")).to_have_value("1024")
    tab.get_by_role("button", name="More settings").click()
    tab.locator("#preset-infllm input").click()
    tab.get_by_role("option", name="llama-3").click()
    expect(tab.locator("#budget input")).to_have_value("6910")
    expect(tab.locator("#set-infllm-block input")).to_have_value("128")
    tab.locator("#set-infllm-units input").fill("8")
    tab.locator("#set-infllm-units input").press("Tab")
    tab.locator("#start").click()
    expect(tab.locator("#question textarea")).to_be_visible()
    [context] = [row for row in server.get("/api/contexts") if row["method"] == "infllm"]
    assert [context["settings"][key] for key in ("budget", "block", "units")] == [6910, 128, 8]


def test_a_file_that_cannot_be_read_says_why(tab: Page, server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "torn.pdf"
    broken.write_bytes(b"%PDF-1.4 nonsense")
    visit(tab, server)
    tab.get_by_role("button", name="New reading").click()
    tab.locator("#start").click()
    expect(tab.get_by_text("Drop in one or more files first")).to_be_visible()
    tab.locator("#files input[type=file]").set_input_files([broken])
    expect(tab.get_by_role("row", name="torn.pdf").get_by_role("link")).to_be_visible()  # uploaded
    [cached] = (server.home / "uploads" / "incoming").rglob("torn.pdf")
    cached.rename(tmp_path / "kept.pdf")  # as it is a day later
    tab.locator("#start").click()
    expect(tab.locator("#notice [role=alert]")).to_contain_text("dropped in too long ago")
    (tmp_path / "kept.pdf").rename(cached)
    tab.locator("#budget input").fill("0")
    expect(tab.locator("#estimate .note")).to_contain_text("A budget of 0")
    tab.locator("#start").click()
    expect(tab.locator("#notice [role=alert]")).to_contain_text("A budget of 0")
    tab.locator("#budget input").fill("512")
    tab.locator("#start").click()
    expect(tab.locator("#reading-card [role=alert]")).to_contain_text("torn.pdf")
    tab.locator("#discard").click()
    expect(tab.locator("#contexts")).not_to_contain_text("torn")


def test_an_encrypted_file_asks_for_its_password(tab: Page, server: Server, tmp_path: Path) -> None:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent, who was born in Tarvel.")
        pdf.save(tmp_path / "Locked.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="swordfish")
    visit(tab, server)
    tab.get_by_role("button", name="New reading").click()
    tab.locator("#files input[type=file]").set_input_files(tmp_path / "Locked.pdf")
    expect(tab.get_by_role("row", name="Locked.pdf").get_by_role("link")).to_be_visible()  # uploaded
    tab.locator("#start").click()
    expect(tab.locator("#reading-card [role=alert]")).to_contain_text("encrypted")
    tab.locator("#unlock-password input").fill("swordfish")
    tab.locator("#unlock-password input").press("Enter")
    expect(tab.locator("#context-head")).to_contain_text("1 of 1 page has text")


def test_one_encrypted_file_of_several_asks_for_its_password_and_keeps_the_others(
    tab: Page, server: Server, tmp_path: Path
) -> None:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent, who was born in Tarvel.")
        pdf.save(tmp_path / "Locked.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="swordfish")
    (tmp_path / "Open.txt").write_text(book_text(12), encoding="utf-8")
    files = [tmp_path / "Open.txt", tmp_path / "Locked.pdf"]
    for way in ("#leave-out", "#unlock-password input"):
        visit(tab, server)
        tab.get_by_role("button", name="New reading").click()
        tab.locator("#files input[type=file]").set_input_files(files)
        expect(tab.get_by_role("row", name="Locked.pdf").get_by_role("link")).to_be_visible()  # uploaded
        tab.locator("#start").click()
        expect(tab.locator("#reading-card [role=alert]")).to_contain_text("Locked.pdf is encrypted")
        expect(tab.locator("#contexts label.selected")).to_contain_text("needs a password")
        if way == "#leave-out":
            expect(tab.locator("#reading-card")).to_contain_text("1 other file is ready and kept here.")
            tab.locator(way).click()
            expect(tab.locator("#context-head")).to_contain_text("1 file was left out")
        else:
            tab.locator(way).fill("swordfish")
            tab.locator(way).press("Enter")
            expect(tab.locator("#context-head")).to_contain_text("Open, Locked", timeout=60_000)
            expect(tab.locator("#context-head")).not_to_contain_text("left out")


def test_going_back_leads_to_what_was_shown_before(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}")
    expect(tab.locator("#context-head .how")).to_be_visible()
    tab.get_by_role("button", name="New reading").click()
    expect(tab.locator("#new-view")).to_be_visible()
    tab.go_back()
    expect(tab.locator("#context-head .how")).to_be_visible()


def test_sessions_are_renamed_found_exported_and_deleted(
    tab: Page, server: Server, reading: dict[str, Any], tmp_path: Path
) -> None:
    session = asked(server, reading, "Which zeppelin?")
    visit(tab, server, f"?session={session}")
    tab.get_by_role("button", name="Rename, export, delete").click()
    tab.locator("#session-title input, #session-title textarea").first.fill("About airships")
    tab.locator("#rename").click()
    expect(tab.locator("#sessions label.selected")).to_contain_text("About airships")

    tab.locator("#search input, #search textarea").first.fill("zeppelin")
    expect(tab.locator("#hits label")).to_contain_text("About airships")
    for _ in range(2):  # and the second time as well
        tab.locator("#new-session").click()
        expect(tab.locator("#sessions label.selected")).not_to_contain_text("About airships")
        tab.locator("#hits label").click()
        expect(tab.locator("#sessions label.selected")).to_contain_text("About airships")

    for suffix in ("md", "json"):
        with tab.expect_download() as download:
            tab.locator(f"#export-{suffix}").click()
        saved = tmp_path / f"session.{suffix}"
        download.value.save_as(saved)
        assert "Which zeppelin?" in saved.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "session.json").read_text(encoding="utf-8"))["session"]["title"] == "About airships"

    tab.locator("#delete-session").click()
    expect(tab.locator("#confirm-text")).to_contain_text("About airships")
    tab.keyboard.press("Escape")
    expect(tab.locator("#confirm-text")).to_be_hidden()
    tab.locator("#delete-session").click()
    tab.locator("#keep").click()
    expect(tab.locator("#confirm-text")).to_be_hidden()
    tab.locator("#delete-session").click()
    tab.locator("#confirm").click()
    expect(tab.locator("#sessions")).not_to_contain_text("About airships")
    assert session not in {row["id"] for row in server.get("/api/sessions")}


def test_after_a_restart_everything_is_as_it_was(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "Who was it?", tokens=12)
    before = server.get(f"/api/sessions/{session}/turns")
    visit(tab, server, f"?session={session}")
    server.stop()
    with tab.expect_event("framenavigated", timeout=60_000):  # the tab that stayed open comes back by itself
        server.start()
    expect(tab.locator("#past .turn")).to_have_count(1)
    ask(tab, "And when?", 12)
    expect(tab.locator("#past .turn")).to_have_count(2, timeout=60_000)
    visit(tab, server, f"?session={session}")
    expect(tab.locator("#past .turn")).to_have_count(2)
    turns = server.get(f"/api/sessions/{session}/turns")
    assert turns[0]["answer"] == before[0]["answer"]
    assert turns[1]["status"] == "done"
    assert server.get(f"/api/contexts/{reading['id']}")["updated_at"] == reading["updated_at"]  # nothing was read again


def test_a_document_is_deleted_with_everything_derived_from_it(tab: Page, server: Server) -> None:
    context = server.read(("Short-lived.txt", book_text(8).encode()), method="streaming", budget="256")
    visit(tab, server, f"?context={context['id']}")
    tab.get_by_role("button", name="Rename, export, delete").click()
    tab.locator("#delete-documents").click()
    expect(tab.locator("#confirm-text")).to_contain_text("Short-lived")
    expect(tab.locator("#confirm-text")).to_contain_text("1 context")
    tab.locator("#confirm").click()
    expect(tab.locator("#new-view")).to_be_visible()
    expect(tab.locator("#contexts")).not_to_contain_text("Short-lived")
    assert "Short-lived" not in {row["title"] for row in server.get("/api/documents")}


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_nothing_is_cut_off_at_any_width_and_the_dark_side_works(
    tab: Page, server: Server, reading: dict[str, Any], width: int
) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    visit(tab, server, f"?context={reading['id']}")
    expect(tab.locator("#question textarea")).to_be_visible()
    assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper)
    tab.get_by_role("button", name="Switch between light and dark").click()
    expect(tab.locator("body")).to_have_class(re.compile("dark"))
    assert tab.evaluate(paper) != light
    tab.reload()
    expect(tab.locator("body")).to_have_class(re.compile("dark"))


def test_reasoning_is_folded_and_stays_unfolded_while_it_grows(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("thinking")
    server = Server(folder / "home", str(make_tiny_model(folder / "thinker", thinking=True))).start()
    context = browser.new_context()
    try:
        tab = context.new_page()
        server.read(("The Keeper.txt", book_text(5).encode()), method="exact", budget="320")
        visit(tab, server)
        tab.locator("#shelf").get_by_text("The Keeper").first.click()
        tab.locator("#question textarea").fill("Who kept the lamp?")
        tab.locator("#question textarea").press("Enter")
        live = tab.locator("#live-turn .reasoning")
        expect(live.locator("summary")).to_contain_text("Reasoning")
        expect(live.locator("p")).to_be_hidden()
        live.locator("summary").click()
        before = len(live.locator("p").inner_text())
        tab.wait_for_function(f"document.querySelector('#live-turn .reasoning p').textContent.length > {before + 200}")
        expect(live.locator("p")).to_be_visible()  # drawn anew many times since
        tab.locator("#stop").click()
        expect(tab.locator("#past .turn .reasoning")).to_have_count(1)
    finally:
        context.close()
        server.stop()
