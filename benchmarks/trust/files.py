"""Paths outside the home, sent to every HTTP route in every place that takes text: no secret comes back.

The secret lies in a file beside the home. Its path is sent absolute, relative, encoded, as a file: address, and as a
file that Gradio's protocol names. The routes come from the app's own table.
"""

from __future__ import annotations

import itertools
import re
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from app.service import Service
from app.web.server import make_app
from benchmarks.trust.common import MODEL, Tally, begin, read_whole, text_of
from benchmarks.trust.routes import Route, paths, requests, routes_of
from benchmarks.trust.server import served

MOST_BYTES = 1 << 20  # of an answer


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Send each path to each route `trials` times."""
    home, secret, tally = folder / "home", secrets.token_hex(16), Tally()
    outside = folder / "outside.txt"
    outside.write_text(f"The secret is {secret}. " * 40)
    book = folder / "book.txt"
    book.write_text(text_of(seed, 20))
    with closing(Service(home, MODEL, "cpu")) as service:
        row = begin(service, book, "exact")
        read_whole(service, row.id)
        app = make_app(service, None, introduces=False)
        routes = routes_of(app)
        known = [row.id, *row.document_ids, service.store.sessions.add(row.id).id]
    before = {path: path.read_bytes() for path in (outside, book)}
    with served(home) as (address, _), httpx.Client(base_url=address, timeout=3) as client:
        for _ in range(trials):
            for route, path in itertools.product(routes, paths(outside, home)):
                for line, sent in requests(app, route, path, known):
                    _send(client, route, line, sent, secret, tally)
        documents = client.get("/api/documents").json()
        texts = [client.get(f"/api/documents/{each['id']}/pages/1").text for each in documents]
        tally.add("documents made of it", "given out" if any(secret in text for text in texts) else "same")
    same = all(path.read_bytes() == data for path, data in before.items())
    tally.add("files outside the home", "same" if same else "changed")
    return tally


def _send(client: httpx.Client, route: Route, line: str, sent: dict[str, Any], secret: str, tally: Tally) -> None:
    """Send one request, and count what came of it."""
    try:
        with client.stream(route.method, line, **sent) as answer:
            text = next(answer.iter_bytes(MOST_BYTES), b"").decode(errors="replace")
            status = answer.status_code
    except httpx.ReadTimeout:  # a stream of events without an event
        text, status = "", 0
    except (httpx.InvalidURL, httpx.LocalProtocolError, ValueError):  # it cannot be sent
        return
    told = secret in text or re.search(r"^root:.*:0:0:", text, re.MULTILINE)
    explained = '"error":"' in text and "unexpected" not in text
    outcome = "given out" if told else "refused" if status < 500 or explained else "failed inside"
    tally.add(
        f"{route.method} /{route.path.split('/')[1].split('{')[0]}", outcome, f"{line} {sent}: {status} {text}"[:400]
    )
