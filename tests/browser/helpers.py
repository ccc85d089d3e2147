"""Helpers of the page's tests: open it, and ask through it or beside it."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.app.helpers import Server

EVIL = "<img src=x onerror=brokenInto()><svg onload=brokenInto()>\"'><script>brokenInto()</script>"
"""Words that run a script where they are taken for HTML."""


def visit(tab: Page, server: Server, query: str = "") -> None:
    tab.goto(server.url + "/" + query)
    drawn(tab)


def drawn(tab: Page) -> None:
    """Wait until the page is drawn."""
    tab.wait_for_selector("#book .book")


def requests_of(tab: Page, element: str, event: str) -> list[str]:
    """Return text that tells the requests of an event of a component, one for each listener, in order."""
    found: list[str] = tab.evaluate(
        "([element, event]) => {"
        "  const { components, dependencies } = window.gradio_config;"
        "  const { id } = components.find(each => each.props.elem_id === element);"
        "  const listens = each => each.targets.some(([of, name]) => of === id && name === event);"
        '  return dependencies.filter(listens).map(each => `"fn_index":${each.id},`);'
        "}",
        [element, event],
    )
    return found


def side(tab: Page, name: str) -> None:
    """Unfold a fold of the right side."""
    tab.locator("#side").get_by_role("button", name=name).click()


def fill(field: Locator, text: str) -> None:
    """Fill in a control that was just unfolded; for a moment Gradio still sets its own value into it."""
    for _ in range(5):
        field.fill(text)
        field.press("Tab")
        field.page.wait_for_timeout(1000)
        if field.input_value() == text:
            break
    expect(field).to_have_value(text)


def ask(tab: Page, question: str, tokens: int) -> None:
    """Ask through the page, for an answer of so many tokens."""
    if not tab.locator("#max-tokens input").is_visible():
        tab.get_by_role("button", name="How to answer").click()
    fill(tab.locator("#max-tokens input"), str(tokens))
    tab.locator("#question textarea").fill(question)
    tab.locator("#question textarea").press("Enter")


def asked(server: Server, reading: dict[str, Any], *questions: str, tokens: int = 4) -> str:
    """Ask these questions in a new session, with answers of so many tokens, and return its id."""
    session: str = server.send("/api/sessions", {"context": reading["id"]})["id"]
    for question in questions:
        turn = server.send(f"/api/sessions/{session}/turns", {"question": question, "max_tokens": tokens})
        server.answered(turn["id"])
    return session
