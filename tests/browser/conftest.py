"""A real server in a process of its own, and a real browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.app.helpers import Server, book_text
from tests.app.tiny import make_tiny_model
from tests.browser.helpers import EVIL

CHROMIUM = "/usr/bin/chromium"
# The pop-ups of the address bar are pages of their own, which Chromium draws unseen beside every tab. This list takes
# the place of Playwright's own, so those of it are here that keep Chromium from asking servers and from waiting.
LEFT_OUT = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "MediaRouter"),
    *("HttpsFirstBalancedModeAutoEnable", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding"),
)
PATIENCE_MS = 120_000  # a busy machine is slow, not wrong
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        installed = CHROMIUM if Path(CHROMIUM).exists() else shutil.which("chromium-browser")
        quiet = ["--no-sandbox", "--disable-gpu", f"--disable-features={','.join(LEFT_OUT)}"]
        browser = playwright.chromium.launch(executable_path=installed, args=quiet)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder / "home", str(make_tiny_model(folder / "tiny"))).start()
    yield server
    server.stop()


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Page]:
    """Return a tab of its own; fail the test for errors in the page and for requests to other sites."""
    if server.process is None:  # a test that stopped it has failed
        server.start()
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    troubles: list[str] = []
    watch(context, server, troubles)
    yield context.new_page()
    context.close()
    print((server.home.parent / "server.log").read_text()[-4000:])  # shown where the test failed
    assert troubles == []


def watch(context: BrowserContext, server: Server, troubles: list[str]) -> None:
    """Note script errors, requests that leave this machine, and scripts of `helpers.EVIL` that run."""
    context.expose_function("brokenInto", lambda: troubles.append("a script from outside ran"))

    def look(page: Page) -> None:
        page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))

    context.on("page", look)
    context.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((server.url, "data:", "blob:"))
            else troubles.append(f"a request to {request.url}")
        ),
    )


@pytest.fixture(scope="module")
def reading(server: Server) -> dict[str, Any]:
    """Return a short text that has been read."""
    text = f"{book_text(30)}\n\n{EVIL}"
    return server.read(("<b>A bold name</b>.txt", text.encode()), method="exact", budget="320")
