"""The offer of a better model than the one that ships: fetched by one click, found here, or none without a network."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.machine.gguf_names import split_tag
from app.machine.recommended import QWEN35_4B
from tests.app.helpers import Server, book_text
from tests.app.hub_server import Hub
from tests.app.package_index import let_pip_ask
from tests.browser.helpers import drawn, visit
from tests.engine.gguf_files import tiny_network, write_gguf

pytestmark = pytest.mark.browser
NOWHERE = "http://127.0.0.1:9"  # nobody listens there
OFFER = "#offer-line"
FILE = "Qwen3.5-4B-Q4_K_M.gguf"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a person with no models and no network, whose page starts with the model that ships."""
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME", "STOCKPOT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    person = tmp_path / "person"
    person.mkdir()
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    let_pip_ask(NOWHERE, monkeypatch)
    return person


@contextmanager
def page_of(browser: Browser, folder: Path, model: str = "pocket") -> Iterator[tuple[Page, Server]]:
    """Open the page of a new server, as a person does who has just installed it."""
    server = Server(folder / "home", model, "tests.app.little_machine").start()
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        tab = context.new_page()
        visit(tab, server)
        tab.get_by_role("button", name="New document").click()
        yield tab, server
    finally:
        context.close()
        server.stop()
        print((folder / "server.log").read_text()[-4000:])


def drop(tab: Page, folder: Path) -> None:
    """Drop a book into the form."""
    book = folder / "The Keeper.txt"
    book.write_text(book_text(12), encoding="utf-8")
    tab.locator("#files input[type=file]").set_input_files(book)
    expect(tab.get_by_role("row", name="The Keeper.txt").get_by_role("link")).to_be_visible()


def test_a_better_model_is_offered_and_one_click_fetches_it_and_reads(
    browser: Browser, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = tmp_path / "published"
    published.mkdir()
    write_gguf(published / FILE, tiny_network("llama"), "llama")
    hub = Hub(split_tag(QWEN35_4B.name)[0], published)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    try:
        with page_of(browser, tmp_path) as (tab, server):
            line = tab.locator(OFFER)
            expect(line).to_contain_text(
                re.compile(r"Qwen3\.5 4B answers better · 2\.7 GB to fetch · .* · a novel in ")
            )
            expect(tab.locator("#take-offer")).to_have_text("Get it")
            assert hub.asked == [], "nothing is fetched unasked"
            drop(tab, tmp_path)
            expect(tab.locator("#take-offer")).to_have_text("Get it and read")
            tab.locator("#take-offer").click()
            expect(tab.locator("#context-head")).to_contain_text("The Keeper")
            assert set(hub.fetched) == {FILE}
            [context] = server.get("/api/contexts")
            assert context["model"].endswith(FILE)
            tab.get_by_role("button", name="New document").click()
            expect(tab.locator("#model input")).to_have_value(re.compile(r"Qwen3\.5 4B"))
            expect(line).to_be_hidden()
            tab.reload()
            drawn(tab)
            tab.get_by_role("button", name="New document").click()
            expect(tab.locator("#model input")).to_have_value(re.compile(r"Qwen3\.5 4B"))
            expect(line).to_be_hidden()
    finally:
        hub.close()
    assert (tmp_path / "home" / "chosen-model").read_text().endswith(FILE), "the next start takes it too"


def test_a_model_of_another_program_is_taken_without_a_download(
    browser: Browser, machine: Path, tmp_path: Path
) -> None:
    folder = machine / ".lmstudio" / "models" / "somebody" / "Tale"
    folder.mkdir(parents=True)
    write_gguf(folder / "Tale-4B.gguf", tiny_network("llama"), "llama")
    with page_of(browser, tmp_path) as (tab, server):
        expect(tab.locator(OFFER)).to_contain_text("Tale-4B is on this computer (LM Studio) and answers better")
        tab.get_by_role("button", name="Use it", exact=True).click()
        expect(tab.locator("#model input")).to_have_value(re.compile("^Tale-4B · "))
        expect(tab.locator(OFFER)).to_be_hidden()
        drop(tab, tmp_path)
        tab.locator("#start").click()
        expect(tab.locator("#context-head")).to_contain_text("The Keeper")
        assert server.get("/api/contexts")[0]["model"] == str(folder / "Tale-4B.gguf")
    assert os.environ["HF_ENDPOINT"] == NOWHERE, "no network was needed"


def test_without_a_network_it_says_so_and_how_to_bring_a_model(browser: Browser, machine: Path, tmp_path: Path) -> None:
    with page_of(browser, tmp_path) as (tab, _):
        said = tab.locator(OFFER)
        expect(said).to_contain_text("There is no network, so no better model can be fetched.")
        expect(said).to_contain_text(f"put a .gguf file from another computer into {tmp_path / 'home' / 'models'}")
        expect(tab.locator("#take-offer")).to_be_hidden()
        drop(tab, tmp_path)
        expect(tab.locator("#estimate .expected")).to_contain_text("it fits")  # the model that ships reads as ever
