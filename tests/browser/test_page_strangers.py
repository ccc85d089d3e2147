"""Words of documents, models and people are shown as words, wherever they stand."""

import io
import zipfile

import pytest
from playwright.sync_api import Page, expect

from sessions import Store
from tests.app.helpers import Server, book_text
from tests.browser.helpers import EVIL, asked, visit

pytestmark = pytest.mark.browser


def epub() -> bytes:
    """Make a book whose title, chapters and text are hostile."""
    shown = EVIL.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    body = f"<h1>{shown}</h1><p>{book_text(9)}</p><p>{shown}</p>"
    chapter = f"<html><head><title>{shown}</title></head><body>{body}</body></html>"
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{shown}</dc:title></metadata>'
        '<manifest><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="c"/></spine></package>'
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="p.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as files:
        files.writestr("mimetype", "application/epub+zip")
        files.writestr("META-INF/container.xml", container)
        files.writestr("p.opf", package)
        files.writestr("c.xhtml", chapter)
    return made.getvalue()


def test_words_from_outside_stay_words(tab: Page, server: Server) -> None:
    reading = server.read((f"{EVIL.replace('/', '')}.epub", epub()), method="exact", budget="320")
    session = asked(server, reading, f"Who? {EVIL}")
    server.send(f"/api/sessions/{session}", {"title": f"Chat {EVIL}"}, "PATCH")
    with Store(server.home) as store:
        turn = store.turns.add(session, f"And when? {EVIL}")
        place = {"document": reading["documents"][0]["id"], "page": 1, "place": EVIL, "quote": EVIL, "weight": 0.5}
        place |= {"start": 0, "end": 9}
        store.turns.finish(turn.id, answer=f"Then. {EVIL}", reasoning=EVIL, sources=[place])
    visit(tab, server, f"?session={session}")
    expect(tab.locator("#past")).to_contain_text("onerror")
    expect(tab.locator("#sessions label.selected")).to_contain_text("Chat <img")
    expect(tab.locator("#context-head")).to_contain_text("<img")
    tab.locator("#search input, #search textarea").first.fill("onerror")
    expect(tab.locator("#hits label").first).to_contain_text("onerror")
    tab.locator("#hits label").first.click()
    tab.get_by_role("button", name="Rename, export, delete").click()
    tab.locator("#delete-context").click()
    expect(tab.locator("#confirm-text")).to_contain_text("onerror")
    visit(tab, server, f"?context={EVIL}&session={EVIL}&new={EVIL}")
    tab.wait_for_timeout(1000)
