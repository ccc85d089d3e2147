"""A page of a document as printed, beside an answer and in a tab of its own."""

from pathlib import Path

import pymupdf
import pytest
from playwright.sync_api import Page, expect

from tests.app.helpers import Server
from tests.browser.helpers import visit
from tests.ingest import makers

pytestmark = pytest.mark.browser
PRINT = [[(50.0, 100.0, "The keeper of the lamp was Orla Quent.")], [(50.0, 300.0, "It was lit.")]]


def test_a_passage_is_shown_on_the_printed_page(tab: Page, server: Server, tmp_path: Path) -> None:
    file = makers.pdf(tmp_path / "lamp.pdf", PRINT)
    reading = server.read(("lamp.pdf", file.read_bytes()), method="exact", budget="320")
    visit(tab, server, f"?context={reading['id']}")
    tab.get_by_label("Search in the text of what was read").fill("keeper")
    tab.locator("#found a").click()
    tab.wait_for_function("document.querySelector('#beside img')?.naturalWidth > 500")
    expect(tab.locator("#beside h2")).to_be_focused()
    with tab.expect_popup() as opened:
        tab.locator("#beside").get_by_role("link", name="Own tab").click()
    page = opened.value
    drawn = "document.querySelector('#printed img').naturalWidth > 500"
    page.wait_for_function(drawn)
    expect(page.locator("mark")).to_have_count(1)
    beside = "Next" if page.url.partition("?")[0].endswith("/1") else "Previous"
    page.get_by_role("link", name=beside).click()
    page.wait_for_function(drawn)
    expect(page.get_by_role("link", name=beside)).to_have_count(0)


def test_why_a_page_cannot_be_shown_is_said(tab: Page, server: Server, tmp_path: Path) -> None:
    locked = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "user_pw": "swordfish"}
    file = makers.pdf(tmp_path / "secret.pdf", PRINT, **locked)
    reading = server.read(("secret.pdf", file.read_bytes()), method="exact", budget="320", password="swordfish")
    [document] = reading["documents"]
    asked_for: list[str] = []
    tab.on("request", lambda request: asked_for.append(request.url) if "/picture" in request.url else None)
    tab.goto(f"{server.url}/documents/{document['id']}/pages/1")
    expect(tab.locator("#text")).to_have_text("The keeper of the lamp was Orla Quent.")
    expect(tab.locator("#printed")).to_contain_text("is encrypted")
    assert len(asked_for) == 1  # the reason came from a second request, and some pages take a minute


def test_a_title_of_one_long_word_is_as_wide_as_the_page(tab: Page, server: Server) -> None:
    """It made the page of a document as wide as itself."""
    reading = server.read((f"{'longest' * 20}.txt", b"It is lit. " * 90), method="exact", budget="320")
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto(f"{server.url}/documents/{reading['document_ids'][0]}/pages/1")
    expect(tab.locator("header")).to_contain_text("longest" * 20)
    assert tab.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
