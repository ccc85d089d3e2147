"""Readings on the page: settings, stopping, files that cannot be read, passwords."""

import re
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from playwright.sync_api import Page, expect

from sessions import Store
from tests.app.helpers import Server, book_text
from tests.app.slow import FULL
from tests.browser.helpers import ask, asked, visit

pytestmark = pytest.mark.browser


def test_a_reading_is_stopped_and_taken_up_again(tab: Page, server: Server, tmp_path: Path) -> None:
    book = tmp_path / "Long.txt"
    book.write_text(book_text(30), encoding="utf-8")
    visit(tab, server, "?new=1")
    tab.locator("#files input[type=file]").set_input_files([book])
    expect(tab.get_by_role("row", name="Long.txt").get_by_role("link")).to_be_visible()  # uploaded
    with server.held_back():
        tab.locator("#start").click()
        expect(tab.locator("#reading-card")).to_contain_text("tokens/s")
        expect(tab).to_have_title(re.compile(r"^\d+% · Long$"))
        tab.locator("#cancel").click()
        expect(tab.locator("#reading-card")).to_contain_text("goes on from there")
        expect(tab.locator("#contexts label.selected")).to_contain_text("stopped at")
        tab.locator("#resume").click()
        expect(tab.locator("#contexts label.selected")).to_contain_text("reading")
        tab.locator("#cancel").click()
        expect(tab.locator("#contexts label.selected")).to_contain_text("stopped at")
    tab.locator("#discard").click()
    expect(tab.locator("#reading-confirm-text")).to_contain_text("Delete the context “Long”?")
    tab.locator("#reading-keep").click()
    expect(tab.locator("#reading-confirm-text")).to_be_hidden()
    expect(tab.locator("#contexts label.selected")).to_contain_text("stopped at")
    tab.locator("#discard-documents").click()
    expect(tab.locator("#reading-confirm-text")).to_contain_text("and the document “Long”?")
    tab.locator("#reading-confirm").click()
    expect(tab.locator("#new-view")).to_be_visible()
    expect(tab).to_have_title("Stockpot")
    expect(tab.locator("#contexts")).not_to_contain_text("Long")
    assert "Long" not in {row["title"] for row in server.get("/api/documents")}


def test_where_memory_ends_the_reading_says_so_and_the_server_goes_on(tab: Page, server: Server) -> None:
    with server.held_back(FULL):
        job = server.upload(("Long.txt", book_text(31).encode()), method="exact", budget="320")
        context = server.context_of(job["id"], "stopped", "failed")
        visit(tab, server, f"?context={context['id']}")
        expect(tab.locator("#reading-card")).to_contain_text("memory")
        expect(tab.locator("#reading-card")).not_to_contain_text("unexpected")
    tab.locator("#resume").click()
    expect(tab.locator("#context-head h1")).to_have_text("Long")
    expect(tab.locator("#question textarea")).to_be_visible()


def test_a_preset_fills_in_settings_that_can_still_be_changed(tab: Page, server: Server, tmp_path: Path) -> None:
    book = tmp_path / "Short.txt"
    book.write_text(book_text(11), encoding="utf-8")
    visit(tab, server, "?new=1")
    tab.locator("#files input[type=file]").set_input_files([book])
    tab.get_by_role("button", name="For experts").click()
    tab.locator("#method").get_by_text("infllm").click()
    expect(tab.locator("#budget input")).to_have_value("1024")
    expect(tab.locator("#memory label.selected")).to_have_count(0)  # neither of the two in plain words
    tab.locator("#preset-infllm input").click()
    tab.get_by_role("option", name="mistral-12k").click()
    expect(tab.locator("#budget input")).to_have_value("13054")
    expect(tab.locator("#set-infllm-block input")).to_have_value("128")
    units = tab.locator("#set-infllm-units input")
    expect(units).to_have_value("64")  # not its value before, because fields are filled in one after the other
    units.fill("8")
    tab.locator("#preset-infllm input").focus()
    tab.locator("#preset-infllm input").press("Tab")  # to leave the field is not to choose again
    tab.locator("#start").click()
    expect(tab.locator("#question textarea")).to_be_visible()
    [context] = [row for row in server.get("/api/contexts") if row["method"] == "infllm"]
    assert [context["settings"][key] for key in ("budget", "block", "units")] == [13054, 128, 8]


def test_a_file_that_cannot_be_read_says_why(tab: Page, server: Server, tmp_path: Path) -> None:
    broken, letter = tmp_path / "torn.pdf", tmp_path / "letter.pdf"
    broken.write_bytes(b"%PDF-1.4 nonsense")
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent, who was born in Tarvel.")
        pdf.save(letter)
    visit(tab, server, "?new=1")
    tab.locator("#start").click()
    expect(tab.get_by_text("Drop in one or more files first")).to_be_visible()
    tab.locator("#files input[type=file]").set_input_files([broken])
    expect(tab.locator("#estimate")).to_contain_text("torn.pdf cannot be opened as PDF")
    expect(tab.locator("#start")).to_be_disabled()
    tab.get_by_role("button", name="Clear").click()
    expect(tab.locator("#start")).to_be_enabled()
    tab.locator("#files input[type=file]").set_input_files([letter])
    expect(tab.get_by_role("row", name="letter.pdf").get_by_role("link")).to_be_visible()  # uploaded
    expect(tab.locator("#estimate")).to_contain_text("it fits")
    [cached] = (server.home / "uploads").glob("incoming-*/**/letter.pdf")
    cached.rename(tmp_path / "kept.pdf")  # as it is a day later
    tab.locator("#start").click()
    expect(tab.locator("#trouble [role=alert]")).to_contain_text("dropped in too long ago")
    (tmp_path / "kept.pdf").rename(cached)
    tab.get_by_role("button", name="For experts").click()
    tab.locator("#budget input").fill("0")
    expect(tab.locator("#estimate .note")).to_contain_text("A budget of 0")
    tab.locator("#start").click()
    expect(tab.locator("#trouble [role=alert]")).to_contain_text("A budget of 0")
    tab.locator("#budget input").fill("512")
    cached.write_bytes(b"%PDF-1.4 nonsense")  # since it was looked at
    tab.locator("#start").click()
    expect(tab.locator("#reading-card [role=alert]")).to_contain_text("letter.pdf")
    tab.locator("#discard").click()
    expect(tab.locator("#contexts")).not_to_contain_text("letter")


def test_an_encrypted_file_asks_for_its_password(tab: Page, server: Server, tmp_path: Path) -> None:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent, who was born in Tarvel.")
        pdf.save(tmp_path / "Locked.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="swordfish")
    visit(tab, server, "?new=1")
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
        visit(tab, server, "?new=1")
        tab.locator("#files input[type=file]").set_input_files(files)
        expect(tab.get_by_role("row", name="Locked.pdf").get_by_role("link")).to_be_visible()  # uploaded
        tab.locator("#start").click()
        expect(tab.locator("#reading-card [role=alert]")).to_contain_text("Locked.pdf is encrypted")
        expect(tab.locator("#contexts label.selected")).to_contain_text("needs a password")
        if way == "#leave-out":
            expect(tab.locator("#reading-card")).to_contain_text(
                "1 other file is ready and kept here. What is left out can be added later."
            )
            tab.locator(way).click()
            expect(tab.locator("#context-head")).to_contain_text("1 file was left out")
        else:
            tab.locator(way).fill("swordfish")
            tab.locator(way).press("Enter")
            expect(tab.locator("#context-head")).to_contain_text("Open and Locked")
            expect(tab.locator("#context-head")).not_to_contain_text("left out")


def test_what_has_been_read_so_far_can_be_asked(tab: Page, server: Server) -> None:
    with server.held_back():
        job = server.upload(("Long.txt", book_text(59).encode()), method="exact", budget="320")
        context = server.context_of(job["id"], "reading")
        visit(tab, server, f"?context={context['id']}")
        tab.get_by_role("button", name="Ask what it has read so far").click()
        expect(tab.locator("#context-head .so-far")).to_contain_text("of it has been read, and it goes on")
        ask(tab, "Who kept the lamp?", 8)
        early = tab.locator("#past .note").filter(has_text="it knew nothing of the rest")
        expect(early).to_have_count(1)
        tab.get_by_role("link", name="Show the reading").click()
        expect(tab.locator("#reading-card .percent")).to_be_visible()
        tab.locator("#sessions label").first.click()
        expect(tab.locator("#past .question")).to_have_text(["Who kept the lamp?"])
    expect(tab.locator("#context-head .so-far")).to_have_count(0)  # read to its end meanwhile
    expect(tab).to_have_title(tab.locator("#context-head h1").inner_text())
    ask(tab, "Where is it?", 8)
    expect(tab.locator("#past .question")).to_have_text(["Who kept the lamp?", "Where is it?"])
    expect(tab.locator("#past .turn").nth(1).locator(".measured")).to_contain_text("to the first word")
    expect(early).to_have_count(1)


def test_documents_are_added_and_the_conversation_goes_along(
    tab: Page, server: Server, reading: dict[str, Any], tmp_path: Path
) -> None:
    letter = tmp_path / "A letter.txt"
    letter.write_text(book_text(6), encoding="utf-8")
    session = asked(server, reading, "Who kept the lamp?")
    visit(tab, server, f"?session={session}")
    tab.get_by_role("button", name="Add documents").click()
    expect(tab.locator("#add-to input")).to_have_value(re.compile(rf"^{reading['title']} · "))
    expect(tab.locator("#memory")).to_be_hidden()
    tab.locator("#files input[type=file]").set_input_files([letter])
    expect(tab.get_by_role("row", name="A letter.txt").get_by_role("link")).to_be_visible()  # uploaded
    tab.locator("#start").click()
    expect(tab.locator("#context-head")).to_contain_text("A letter")
    expect(tab.locator("#past")).to_contain_text("Who kept the lamp?")
    ask(tab, "And who wrote?", 8)
    expect(tab.locator("#past .turn")).to_have_count(2)
    [both] = [row for row in server.get("/api/contexts") if "A letter" in row["title"]]
    assert both["document_ids"][:1] == reading["document_ids"]
    assert both["settings"] == reading["settings"]

    tab.get_by_role("button", name="New document").click()
    expect(tab.locator("#add-to input")).to_have_value("No, start a new one")
    expect(tab.locator("#memory")).to_be_visible()
    tab.locator("#add-to input").click()
    tab.get_by_role("option", name="A letter").click()
    expect(tab.locator("#memory")).to_be_hidden()
    assert server.send(f"/api/contexts/{both['id']}", method="DELETE") == {"deleted": both["id"]}
    expect(tab.locator("#memory")).to_be_visible()


def test_a_suggested_question_is_asked_with_one_click(tab: Page, server: Server) -> None:
    context = server.read(("Harbour.txt", book_text(9).encode()), method="exact", budget="320")
    made = {
        "summary": "A keeper of a lamp.",
        "questions": ["Who kept the lamp?"],
        "tried": 1,
        "unasked": 0,
        "done": True,
    }
    with Store(server.home) as store:
        store.measurements.add("introduction", context["id"], made)
    visit(tab, server, f"?context={context['id']}")
    expect(tab.locator(".welcome")).to_contain_text("About 1 page in 1 section.")
    expect(tab.locator(".welcome .summary")).to_contain_text("A keeper of a lamp.")
    tab.locator("#question textarea").fill("Something that is not asked")
    tab.get_by_role("button", name="Who kept the lamp?").click()
    expect(tab.locator("#past .question")).to_have_text(["Who kept the lamp?"])
    expect(tab.locator(".welcome")).to_have_count(0)
    expect(tab.locator("#question textarea")).to_have_value("Something that is not asked")  # it is not lost
