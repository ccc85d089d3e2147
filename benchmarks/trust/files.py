"""Paths outside the home, sent to every HTTP route in every place that takes text: no secret comes back.

The secret lies in a file beside the home. Its path is sent absolute, relative, encoded, as a file: address, and as a
file that Gradio's protocol names.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from app.service import Service
from app.web.server import make_app
from benchmarks.trust.common import MODEL, Tally, begin, read_whole, text_of
from benchmarks.trust.server import served

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MOST_BYTES = 1 << 20  # of an answer
FORMS = ("files", "file", "path", "url", "document", "model", "source", "title", "question", "input")


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
        routes = _routes(service)
        known = [row.id, *row.document_ids, service.store.sessions.add(row.id).id]
    before = {path: path.read_bytes() for path in (outside, book)}
    with served(home) as (address, _), httpx.Client(base_url=address, timeout=3) as client:
        for _ in range(trials):
            for group, route, sent in _requests(routes, outside, home, known):
                try:
                    with client.stream(*route.split(" ", 1), **sent) as answer:
                        text = next(answer.iter_bytes(MOST_BYTES), b"").decode(errors="replace")
                        status = answer.status_code
                except httpx.ReadTimeout:  # a stream of events without an event
                    text, status = "", 0
                except (httpx.InvalidURL, httpx.LocalProtocolError):  # it cannot be sent
                    continue
                told = secret in text or re.search(r"^root:.*:0:0:", text, re.MULTILINE)
                explained = '"error":"' in text and "unexpected" not in text
                outcome = "given out" if told else "refused" if status < 500 or explained else "failed inside"
                tally.add(group, outcome, f"{route} {str(sent)[:150]}: {status} {text[:100]}")
        documents = client.get("/api/documents").json()
        texts = [client.get(f"/api/documents/{each['id']}/pages/1").text for each in documents]
        tally.add("documents made of it", "given out" if any(secret in text for text in texts) else "same")
    same = all(path.read_bytes() == data for path, data in before.items())
    tally.add("files outside the home", "same" if same else "changed")
    return tally


def _paths(outside: Path, home: Path) -> list[str]:
    relative = f"../{outside.name}"
    plain = [
        str(outside),
        relative,
        f"../../{relative}",
        f"{home}/../{outside.name}",
        "/etc/passwd",
        "../../etc/passwd",
    ]
    coded = [quote(each, safe="") for each in plain[:3]] + [quote(quote(str(outside), safe=""), safe="")]
    return [
        *plain,
        *coded,
        f"file://{outside}",
        relative.replace("/", "\\"),
        f"{relative}\x00.png",
        "....//outside.txt",
    ]


def _routes(service: Service) -> list[tuple[str, str]]:
    """Return method and address of every route of the server, and of Gradio's protocol."""
    found = []
    waiting = [("", make_app(service, None, introduces=False).routes)]
    while waiting:
        before, routes = waiting.pop()
        for each in routes:
            path = before + getattr(each, "path", "")
            found += [(method, path) for method in getattr(each, "methods", None) or () if method in METHODS]
            if inside := getattr(each, "routes", None):
                waiting.append((path, inside))
    return [*found, ("GET", "/gradio_api/file={path}"), ("GET", "/file={path}"), ("GET", "/{path}")]


def _requests(
    routes: list[tuple[str, str]], outside: Path, home: Path, known: list[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the first word of a route, the request line and the body: each path in each place of each route."""
    for path in _paths(outside, home):
        file = {"path": path, "url": path, "orig_name": "x.txt", "meta": {"_type": "gradio.FileData"}}
        for method, route in routes:
            holes = re.findall(r"\{[^}]+\}", route)
            for hole in range(max(1, len(holes))):
                filled = route
                for number, each in enumerate(holes):
                    named = next((id for id in known if id[0] == each.strip("{}")[0]), known[0])
                    filled = filled.replace(each, path if number == hole else named, 1)
                group, line = f"{method} /{route.split('/')[1].split('{')[0]}", f"{method} {filled}"
                yield group, line, {"params": {"path": path, "file": path, "url": path}}
                if method == "GET":
                    continue
                yield (
                    group,
                    line,
                    {"json": dict.fromkeys(FORMS, path) | {"messages": [{"role": "user", "content": path}]}},
                )
                yield group, line, {"data": dict.fromkeys(FORMS, path)}
                data = [file] * 8
                yield (
                    group,
                    line,
                    {"json": {"data": data, "fn_index": 14, "session_hash": "q", "files": [file], "file": file}},
                )
                yield (
                    group,
                    line,
                    {"files": {"files": (path.replace("\x00", ""), b"Words. " * 30)}, "data": {"model": path}},
                )
