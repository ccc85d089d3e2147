"""A server of its own and a browser: read a text through the page, and ask about it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page, sync_playwright

from benchmarks.way_in.questions import Question

START_SEC, READ_MS, ANSWER_MS = 120.0, 4 * 3600 * 1000, 1800 * 1000


@dataclass(frozen=True)
class Reading:
    """A text as it was read. pages: its text, page by page; seconds: from the click to the first question field."""

    tokens: int
    pages: tuple[str, ...]
    seconds: float


@contextmanager
def server(model: str, home: Path, threads: int) -> Iterator[tuple[str, psutil.Process]]:
    """Serve a home with a model; yield the address of the page, and the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "app", "--home", str(home), "--model", model, "--seed", "0", "serve"]
    command += ["--port", str(port), "--no-introductions"]  # they would use the processor between two questions
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with (home.parent / "server.log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
    try:
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browser_page(address: str) -> Iterator[Page]:
    """Open the page in a new browser, once the server answers."""
    until = time.monotonic() + START_SEC
    while True:
        try:
            urllib.request.urlopen(f"{address}/healthz").close()
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900}, locale="en-US")
        page.set_default_timeout(ANSWER_MS)
        page.goto(f"{address}/?new=1")
        page.wait_for_selector("#book .book")
        try:
            yield page
        finally:
            browser.close()


def read(page: Page, address: str, file: Path) -> Reading:
    """Drop in a file, read it, and wait until it can be asked about."""
    page.locator("#files input[type=file]").set_input_files(file)
    page.wait_for_selector("#estimate .expected")
    began = time.monotonic()
    page.locator("#start").click()
    page.locator("#past .welcome").wait_for(timeout=READ_MS)
    seconds = time.monotonic() - began
    [row] = _get(f"{address}/api/contexts")
    [document] = _get(f"{address}/api/documents")
    texts = [
        _text(f"{address}/api/documents/{document['id']}/pages/{number + 1}") for number in range(document["pages"])
    ]
    return Reading(row["tokens"], tuple(text.partition("\n\n")[2] for text in texts), seconds)


def ask(page: Page, questions: Sequence[Question], most: int) -> Iterator[tuple[str, list[str]]]:
    """Ask each question in a new chat; yield the answer, and the passages shown with it in their order.

    most: most tokens of an answer.
    """
    page.get_by_role("button", name="How to answer").click()
    for field, value in (("#max-tokens input[type=number]", str(most)), ("#temperature input", "0")):
        page.locator(field).fill(value)
        page.locator(field).press("Tab")
        page.wait_for_timeout(1500)
        page.locator(field).fill(value)  # for a moment Gradio sets its own value into it
        page.locator(field).press("Tab")
    for number, question in enumerate(questions):
        if number:
            page.locator("#new-session").click()
            page.locator("#past .welcome").wait_for()
        page.locator("#question textarea").fill(question.text)
        page.locator("#question textarea").press("Enter")
        page.locator("#past .turn .measured").wait_for()
        yield page.evaluate(TOLD)


TOLD = """() => {
  const turn = document.querySelector("#past .turn"), said = turn.querySelector(".answer-text")?.cloneNode(true);
  for (const each of said?.querySelectorAll(".cite") ?? []) each.remove();
  const passages = [...turn.querySelectorAll(".sources blockquote")];
  return [said?.textContent.trim() ?? "", passages.map((each) => each.textContent)];
}"""


def _get(address: str) -> Any:
    return json.loads(_text(address))


def _text(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return str(answer.read().decode("utf-8"))
