"""The page in the browser's language."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.app.helpers import Server, book_text
from tests.browser.conftest import PATIENCE_MS, watch
from tests.browser.helpers import fill, visit

pytestmark = pytest.mark.browser


def test_a_german_reads_a_document_and_asks_without_a_word_of_english(browser: Browser, server: Server) -> None:
    context, troubles = browser.new_context(locale="de-DE", viewport={"width": 1440, "height": 900}), list[str]()
    context.set_default_timeout(PATIENCE_MS)
    watch(context, server, troubles)
    tab = context.new_page()
    visit(tab, server, "?new=1")
    expect(tab.locator("html")).to_have_attribute("lang", "de")
    expect(tab.get_by_role("heading", name="Einen langen Text lesen")).to_be_visible()
    expect(tab.locator("#book")).to_contain_text("Legen Sie ein Dokument ab.")
    tab.get_by_role("button", name="Lesen", exact=True).click()
    expect(tab.locator("#trouble")).to_have_text(re.compile("Legen Sie zuerst Dateien ab"))
    book = {"name": "Der Wächter.txt", "mimeType": "text/plain", "buffer": book_text(60).encode()}
    tab.locator("#files input[type=file]").set_input_files([book])
    told = re.compile(r"etwa \d+ Seiten · .* · der Speicher reicht$")
    expect(tab.locator("#estimate .expected")).to_contain_text(told)
    tab.get_by_role("button", name="Lesen", exact=True).click()
    expect(tab.locator(".welcome")).to_contain_text("Es ist gelesen. Fragen Sie nach allem, was darin steht.")
    expect(tab.locator("#context-head")).to_contain_text("1 von 1 Abschnitt hat Text.")
    tab.get_by_role("button", name="Einstellungen der Antwort").click()
    fill(tab.locator("#max-tokens input"), "8")
    tab.get_by_placeholder("Fragen Sie nach dem Gelesenen").fill("Wer?")
    tab.get_by_role("button", name="Fragen", exact=True).click()
    turn = tab.locator("#past .turn")
    expect(turn.locator(".measured")).to_contain_text(re.compile("Kopieren.*Noch einmal fragen", re.DOTALL))
    expect(turn.locator(".place").first).to_contain_text(re.compile(r"Teil 1, Absatz \d"))
    turn.locator(".sources a").first.click()
    expect(tab.get_by_role("button", name="← Zurück zum Dokument")).to_be_visible()
    english = re.compile(r"\b(the|and|of|with|was|read|page|chat|question)\b")
    tab.get_by_role("button", name="Tasten").click()
    expect(tab.locator("#keys")).to_contain_text("zur Frage")
    expect(tab.locator("#shelf")).to_contain_text("Neues Dokument")  # beside titles, which are in any language
    shown = tab.locator("#composer, #find-area, .map, #gauge, .measured, .edit-line, #keys").all_inner_texts()
    assert [each for each in shown if english.search(each)] == []
    context.close()
    assert troubles == []
