"""Kept things on the page: going back, coming back, renaming, finding, exporting, deleting."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Response, Route, expect

from app.cli import main
from sessions import Store
from tests.app.helpers import PATIENCE_SEC, Server, book_text
from tests.browser.helpers import EVIL, ask, asked, fill, requests_of, visit

pytestmark = pytest.mark.browser

GONE = "The server does not answer: try again once it does."


def delete(tab: Page, button: str, named: str, place: str = "") -> None:
    """Ask for something to be deleted, keep it, and then delete it. place: prefix of the question's ids."""
    tab.locator(button).click()
    expect(tab.locator(f"#{place}confirm-text")).to_contain_text(named)
    tab.keyboard.press("Escape")
    expect(tab.locator(f"#{place}confirm-text")).to_be_hidden()
    tab.locator(button).click()
    tab.locator(f"#{place}confirm").click()


def test_going_back_and_forward_leads_to_what_was_shown(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    drawn_meanwhile = "addEventListener('popstate', () => document.body.append('drawn meanwhile'))"
    visit(tab, server, f"?context={reading['id']}")
    expect(tab.locator("#context-head .how")).to_be_visible()
    tab.get_by_role("button", name="New document").click()
    expect(tab.locator("#new-view")).to_be_visible()
    tab.evaluate(drawn_meanwhile)
    tab.go_back()
    expect(tab.locator("#context-head .how")).to_be_visible()
    tab.evaluate(drawn_meanwhile)
    tab.go_forward()
    expect(tab.locator("#new-view")).to_be_visible()


def test_sessions_are_renamed_found_exported_and_deleted(
    tab: Page, server: Server, reading: dict[str, Any], tmp_path: Path
) -> None:
    session = asked(server, reading, "Which zeppelin?")
    visit(tab, server, f"?session={session}")
    tab.get_by_role("button", name="Rename, export, delete").click()
    title = tab.locator("#rename-to input, #rename-to textarea").first
    expect(title).to_have_value("Which zeppelin?")
    fill(title, "About airships")
    tab.locator("#rename").click()
    expect(tab.locator("#sessions label.selected")).to_contain_text("About airships")

    tab.locator("#search input, #search textarea").first.fill("zeppelin")
    expect(tab.locator("#hits label")).to_contain_text("About airships")
    for _ in range(2):  # and the second time as well
        tab.locator("#new-session").click()
        expect(tab.locator("#sessions label.selected")).not_to_contain_text("About airships")
        tab.locator("#hits label").click()
        expect(tab.locator("#sessions label.selected")).to_contain_text("About airships")

    tab.get_by_role("button", name="Rename, export, delete").click()  # folded by clicks elsewhere
    for suffix in ("md", "json"):
        with tab.expect_download() as download:
            tab.locator(f"#export-{suffix}").click()
        saved = tmp_path / f"session.{suffix}"
        download.value.save_as(saved)
        assert "Which zeppelin?" in saved.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "session.json").read_text(encoding="utf-8"))["session"]["title"] == "About airships"

    tab.locator("#delete-session").click()
    tab.locator("#keep").click()
    expect(tab.locator("#confirm-text")).to_be_hidden()
    delete(tab, "#delete-session", "About airships")
    expect(tab.locator("#sessions")).not_to_contain_text("About airships")
    assert session not in {row["id"] for row in server.get("/api/sessions")}


def test_an_answer_and_a_passage_are_kept_as_notes(
    tab: Page, server: Server, reading: dict[str, Any], tmp_path: Path
) -> None:
    session = server.send("/api/sessions", {"context": reading["id"], "title": "On the lamp"})["id"]
    place = {"document": reading["document_ids"][0], "page": 1, "start": 3, "end": 9, "weight": 0.4}
    quotes = {"section 1, paragraph 2": "The fox slept.", "section 1, paragraph 4": EVIL}
    with Store(server.home) as store:
        for question in ("Who slept?", "And who kept it?"):
            sources = [{**place, "place": where, "quote": quote} for where, quote in quotes.items()]
            turn = store.turns.finish(store.turns.add(session, question).id, answer=f"To {question}", sources=sources)
    visit(tab, server, f"?session={session}")
    last = tab.locator("#past .turn").last
    last.locator(".sources li").nth(1).locator("summary").click()
    for button in (last.locator(".measured [data-action=keep]"), last.locator(".sources li [data-action=keep]").nth(1)):
        expect(button).to_have_attribute("aria-pressed", "false")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
    assert server.get(f"/api/turns/{turn.id}")["kept"] == [0, 2]
    last.get_by_role("button", name="Notes").click()
    notes = tab.locator("#beside .page-body")
    expect(notes.locator("h3")).to_have_text(["And who kept it?"])
    expect(notes.locator("blockquote")).to_have_count(3)  # two of the answer, and the one by itself
    expect(notes).to_contain_text(EVIL)
    for kind, name in (("md", "Markdown"), ("docx", "Word")):
        with tab.expect_download() as download:
            notes.get_by_role("link", name=name).click()
        download.value.save_as(tmp_path / f"notes.{kind}")
    said = (tmp_path / "notes.md").read_text(encoding="utf-8")
    assert "To And who kept it?" in said
    assert "Who slept?" not in said
    assert (tmp_path / "notes.docx").read_bytes().startswith(b"PK")
    notes.locator("blockquote a").first.click()
    expect(tab.locator("#beside mark")).to_be_visible()
    last.locator(".measured [data-action=keep]").click()
    expect(last.locator(".measured [data-action=keep]")).to_have_attribute("aria-pressed", "false")
    assert server.get(f"/api/turns/{turn.id}")["kept"] == [2]


def test_a_linked_folder_is_kept_in_step(tab: Page, server: Server, tmp_path: Path) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()

    def look() -> None:
        """Have the server look at once."""
        assert main(["--home", str(server.home), "link", str(papers)]) == 0

    visit(tab, server, "?new=1")
    expect(tab.locator("#linked")).to_contain_text("stockpot link FOLDER keeps a folder in step.")
    (papers / "Lighthouse.txt").write_text(book_text(9))
    (papers / "torn.pdf").write_bytes(b"%PDF-1.4 nonsense")
    look()
    line = tab.locator("#linked summary")
    expect(line).to_have_text(f"In step with {papers} · 1 read · 1 refused")
    line.click()
    expect(tab.locator("#linked li")).to_contain_text("torn.pdf: torn.pdf cannot be opened as PDF")
    tab.locator("#contexts label").filter(has_text="Lighthouse").click()
    expect(tab.locator("#context-head h1")).to_have_text("Lighthouse")
    expect(tab.locator(".note", has_text="has changed in its folder")).to_have_count(0)
    older = tab.url
    (papers / "Lighthouse.txt").unlink()
    (papers / "Lighthouse.txt").write_text(book_text(11))
    look()
    expect(tab.locator(".note", has_text="“Lighthouse” has changed in its folder")).to_be_visible()
    tab.get_by_role("link", name="Show the newer one").click()
    expect(tab.locator("#context-head h1")).to_have_text("Lighthouse")
    expect(tab.locator(".note", has_text="has changed in its folder")).to_have_count(0)
    assert tab.url != older
    (papers / "Lighthouse.txt").unlink()
    look()
    expect(tab.locator(".note", has_text="The file of “Lighthouse” is gone from its folder.")).to_be_visible()
    assert server.send(f"/api/folders?folder={papers}", method="DELETE") == {"unlinked": str(papers)}
    assert server.get("/api/folders") == []
    visit(tab, server, "?new=1")
    expect(tab.locator("#linked")).to_contain_text("stockpot link FOLDER keeps a folder in step.")


def test_of_a_long_session_the_end_is_shown_and_more_if_asked_for(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    """All of it was sent and drawn again at every tick, which took seconds."""
    session = server.send("/api/sessions", {"context": reading["id"]})["id"]
    with Store(server.home) as store:
        for number in range(1, 131):
            turn = store.turns.add(session, f"Question {number}?")
            store.turns.finish(turn.id, answer=f"Answer {number}.")
    visit(tab, server, f"?context={reading['id']}&session={session}")
    expect(tab.locator(".turn")).to_have_count(30)
    first, more = tab.get_by_text("Question 101?", exact=True), tab.get_by_role("button", name="Show earlier")
    expect(more).to_have_text("Show earlier questions (100)")
    tab.wait_for_function("document.querySelector('#conversation').scrollTop > 2000")  # on its way to the end, or there
    tab.locator("#conversation").hover()
    for _ in range(20):  # a wheel turned while the page scrolls by itself is lost
        tab.mouse.wheel(0, -100_000)
        tab.wait_for_timeout(100)
        if tab.evaluate("document.querySelector('#conversation').scrollTop") == 0:
            break
    tab.evaluate("document.body.append(document.createElement('i'))")  # something changes on the page, as it often does
    tab.wait_for_timeout(300)
    assert tab.evaluate("document.querySelector('#conversation').scrollTop") == 0, "whoever scrolls up stays there"
    before = first.bounding_box()
    more.click()
    expect(tab.locator(".turn")).to_have_count(130)
    expect(more).to_be_hidden()
    after = first.bounding_box()
    assert before
    assert after
    assert abs(after["y"] - before["y"]) < 80  # the button over it is gone


def test_what_was_found_is_brought_into_sight(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """The session was opened at its end, so the words were often not on the page."""
    session = server.send("/api/sessions", {"context": reading["id"]})["id"]
    with Store(server.home) as store:
        for number in range(1, 91):
            question = "Who flew the balloon?" if number == 21 else f"Question {number}?"
            store.turns.finish(store.turns.add(session, question).id, answer="Nobody. " * 60)
    visit(tab, server, f"?context={reading['id']}&session={session}")
    expect(tab.get_by_text("Question 90?", exact=True)).to_be_in_viewport()
    flown = tab.get_by_text("Who flew the balloon?", exact=True)
    expect(flown).to_have_count(0)
    tab.locator("#search input, #search textarea").first.fill("balloon")
    for _ in range(2):  # and the second time as well
        tab.locator("#hits label").click()
        expect(flown).to_be_in_viewport()
        tab.wait_for_timeout(1200)
        expect(flown).to_be_in_viewport()
        tab.locator("#past .turn").last.scroll_into_view_if_needed()
        expect(flown).not_to_be_in_viewport()
    tab.get_by_role("button", name="New document").click()
    expect(tab).to_have_url(re.compile("new=1"))  # the server has answered
    tab.locator("#search input, #search textarea").first.fill("lamp Orlen")
    here = re.compile(rf"paragraph \d+ · {re.escape(reading['title'])}\b")  # and not where another test said the same
    tab.locator("#hits label").filter(has_text=here).first.click()
    expect(tab.locator("#beside mark")).to_be_in_viewport()  # a passage opens its chat and its page
    expect(tab.locator("#context-head")).to_contain_text(reading["title"])


def test_after_a_restart_everything_is_as_it_was(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "Who was it?", tokens=12)
    before = server.get(f"/api/sessions/{session}/turns")
    visit(tab, server, f"?session={session}")
    server.stop()
    expect(tab.locator("#trouble")).to_contain_text(GONE)
    server.start()
    expect(tab.locator("#trouble")).to_be_empty()
    asked_there = {"question": "And when?", "max_tokens": 12}
    server.answered(server.send(f"/api/sessions/{session}/turns", asked_there)["id"])
    expect(tab.locator("#past .turn")).to_have_count(2)
    server.stop()
    tab.locator("#new-session").click()  # which Gradio notices; it loads the page anew by itself
    expect(tab.locator("#trouble")).to_contain_text(GONE)
    with tab.expect_event("framenavigated", timeout=1000 * 2 * PATIENCE_SEC):
        server.start()
    expect(tab.locator("#past .turn")).to_have_count(2)
    ask(tab, "And where?", 12)
    expect(tab.locator("#past .turn")).to_have_count(3)
    visit(tab, server, f"?session={session}")
    expect(tab.locator("#past .turn")).to_have_count(3)
    turns = server.get(f"/api/sessions/{session}/turns")
    assert turns[0]["answer"] == before[0]["answer"]
    assert [turn["status"] for turn in turns] == ["done"] * 3
    assert server.get(f"/api/contexts/{reading['id']}")["updated_at"] == reading["updated_at"]  # nothing was read again


def test_a_document_that_is_kept_is_read_in_another_way_and_deleted(tab: Page, server: Server) -> None:
    first = server.read(("Keepsake.txt", book_text(27).encode()), method="exact", budget="320")
    visit(tab, server, "?new=1")
    tab.locator("#kept input").click()
    tab.get_by_role("option", name="Keepsake").click()
    tab.locator(".hello h1").click()
    tab.get_by_role("button", name="For experts").click()
    tab.locator("#method").get_by_text("streaming").click()
    tab.locator("#start").click()
    expect(tab.locator("#context-head .how")).to_contain_text("with streaming")
    expect(tab.locator("#context-head h1")).to_have_text("Keepsake")
    tab.get_by_role("button", name="New document").click()
    expect(tab).to_have_url(re.compile("new=1"))  # the server has answered
    expect(tab.locator("#kept .token")).to_have_count(0)
    tab.locator("#kept input").click()
    tab.get_by_role("option", name="Keepsake").click()
    tab.locator(".hello h1").click()
    delete(tab, "#delete-kept", "“Keepsake” with 2 contexts", "kept-")
    expect(tab.locator("#contexts")).not_to_contain_text("Keepsake")
    assert first["document_ids"][0] not in {row["id"] for row in server.get("/api/documents")}


def test_choices_count_in_the_order_in_which_they_are_made(tab: Page, server: Server) -> None:
    """Of two documents chosen quickly on a busy machine one was asked: the server had begun the later choice first."""
    for name in ("One", "Other"):
        server.read((f"{name} of two.txt", f"{name} text of two.".encode()), method="exact", budget="320")
    visit(tab, server, "?new=1")
    [choice] = requests_of(tab, "kept", "input")
    held, answered = list[Route](), list[str]()

    def hold(route: Route) -> None:
        if choice in (route.request.post_data or "") and not held:
            held.append(route)
        else:
            route.continue_()

    def note(answer: Response) -> None:
        if choice in (answer.request.post_data or ""):
            answered.append(answer.url)

    tab.route(re.compile("/run/predict"), hold)
    tab.on("response", note)
    for chosen, name in enumerate(("One", "Other"), 1):
        tab.locator("#kept input").fill(f"{name} of two")
        tab.get_by_role("option", name=f"{name} of two").click()
        expect(tab.locator("#kept .token")).to_have_count(chosen)
    tab.wait_for_timeout(1000)  # time to overtake the first
    held[0].continue_()
    while len(answered) < 2:
        tab.wait_for_timeout(100)
    expect(tab.get_by_role("button", name="Compare")).to_be_visible()


def test_a_document_is_deleted_with_everything_derived_from_it(tab: Page, server: Server) -> None:
    context = server.read(("Short-lived.txt", book_text(28).encode()), method="streaming", budget="256")
    visit(tab, server, f"?context={context['id']}")
    tab.get_by_role("button", name="Rename, export, delete").click()
    tab.locator("#delete-documents").click()
    expect(tab.locator("#confirm-text")).to_contain_text("Short-lived")
    expect(tab.locator("#confirm-text")).to_contain_text("1 context")
    tab.locator("#confirm").click()
    expect(tab.locator("#new-view")).to_be_visible()
    expect(tab.locator("#contexts")).not_to_contain_text("Short-lived")
    assert "Short-lived" not in {row["title"] for row in server.get("/api/documents")}
