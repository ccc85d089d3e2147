"""No file outside the home is served over HTTP, by any route, path, link or address."""

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api.error_handlers import MOST_BODY
from app.errors import AppError
from app.jobs.uploads import cache, check_dropped, move_in
from app.service import Service
from app.web.server import make_app
from benchmarks.trust.routes import paths, requests, routes_of
from tests.app.helpers import PATIENCE_SEC, Server, book_text, wait_for

SECRET = "The combination is nineteen, four, thirty-one."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("door") / "home", str(tiny)).start()
    yield server
    server.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as client:
        yield client


@pytest.fixture
def secret(server: Server) -> Path:
    """Return a file that any browser could name, and a folder that is no model, outside the home."""
    folder = server.home.parent / "private"
    folder.mkdir(exist_ok=True)
    for name in ("secret.txt", "secret.svg", "config.json"):
        (folder / name).write_text(f"{SECRET}\n" * 40)
    return folder / "secret.txt"


@pytest.fixture
def dropped(server: Server, http: httpx.Client) -> Path:
    """Return a dropped file, and its path."""
    came = http.post("/gradio_api/upload", files={"files": ("mine.txt", b"Words of my own. " * 40)})
    path = Path(came.json()[0])
    wait_for(path.is_file, "the file that was dropped in")
    return path


def forms_of(path: Path, server: Server, dropped: Path) -> list[dict[str, Any]]:
    """Return names of a file: its path in several forms, and addresses."""
    meta = {"_type": "gradio.FileData"}
    link = dropped.parent / "link.txt"
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    pages_around = f"{server.home}/uploads/../../private/{path.name}"
    through = f"{dropped.parent}/../../../../private/{path.name}"
    names = [
        str(path),
        str(path.with_suffix(".svg")),
        pages_around,
        through,
        os.path.relpath(path),
        str(link),
        f"file://{path}",
    ]
    names += [str(server.home / "stockpot.db"), f"{server.url}/api/documents", "\0", "x" * 5000]
    files = [{"path": name, "orig_name": "a.txt", "size": 9, "mime_type": "text/plain", "meta": meta} for name in names]
    files += [{**file, "url": file["path"], "is_stream": stream} for file in files[:1] for stream in (False, True)]
    without = [{"path": str(path)}, {"path": str(path), "meta": {}}, {"path": str(dropped), "url": f"file://{path}"}]
    return [*files, *without]


class Events:
    """Events that a browser can send to the page: any value to any field."""

    def __init__(self, http: httpx.Client) -> None:
        self.http, config = http, http.get("/config").json()
        self.fields, self.all = {each["id"]: each for each in config["components"]}, config["dependencies"]

    def send(self, number: int, value: Any) -> httpx.Response:
        """Send an event with this value in its file field, or in the first field if it has none."""
        event = self.all[number]
        kinds = [self.fields[id]["type"] for id in event["inputs"]]
        data = [self.fields[id]["props"].get("value") for id in event["inputs"]]
        place = kinds.index("file") if "file" in kinds else next(i for i, kind in enumerate(kinds) if kind != "state")
        data[place] = [value] if kinds[place] == "file" else value
        body = {"data": data, "fn_index": number, "session_hash": "door", "trigger_id": event["targets"][0][0]}
        return self.http.post("/gradio_api/run/predict", json=body)

    def with_fields(self) -> Iterator[int]:
        """Return the events with fields that a browser fills in."""
        for number, event in enumerate(self.all):
            if any(self.fields[id]["type"] != "state" for id in event["inputs"]):
                yield number

    def reading(self) -> int:
        """Return the event that reads what was dropped in."""
        (number,) = (
            number
            for number, event in enumerate(self.all)
            if any(self.fields.get(id, {}).get("props", {}).get("elem_id") == "start" for id, _ in event["targets"])
        )
        return number


def everything(http: httpx.Client, server: Server) -> str:
    """Return all that is listed, and all files in the home."""
    found = "".join(http.get(f"/api/{kind}").text for kind in ("documents", "contexts", "sessions"))
    for each in server.home.rglob("*"):
        if each.is_file() and not each.is_symlink():
            with suppress(FileNotFoundError):  # it was renamed or removed since it was listed
                found += each.read_bytes().decode(errors="replace")
    return found


def test_no_field_of_the_page_takes_a_path(http: httpx.Client, server: Server, secret: Path, dropped: Path) -> None:
    """Every field did: the file was copied to a served place, and file fields read it as a document."""
    events, forms = Events(http), forms_of(secret, server, dropped)
    numbers = list(events.with_fields())
    files = [n for n in numbers if any(events.fields[i]["type"] == "file" for i in events.all[n]["inputs"])]
    assert events.reading() in files
    before = http.get("/api/documents").json()
    for number, form in [*((n, forms[0]) for n in numbers), *((n, form) for n in files for form in forms)]:
        answer = events.send(number, form)
        assert SECRET not in answer.text
        if "meta" in form and form["path"] != str(dropped):
            assert "Only files that were dropped in are taken" in answer.text, (number, form)
            assert answer.status_code == 400
    assert http.get("/api/documents").json() == before
    assert SECRET not in everything(http, server)


def test_a_file_that_was_dropped_in_is_read(http: httpx.Client, server: Server) -> None:
    came = http.post("/gradio_api/upload", files={"files": ("kept.txt", book_text(8).encode())}).json()
    wait_for(Path(came[0]).is_file, "the file that was dropped in")
    events = Events(http)
    assert events.send(events.reading(), {"path": came[0], "meta": {"_type": "gradio.FileData"}}).status_code == 200
    wait_for(lambda: "kept" in [each["title"] for each in http.get("/api/documents").json()], "the document")


@pytest.mark.parametrize(
    "route",
    [
        "file={path}",
        "file={link}",
        "file={around}",
        "file/{path}",
        "file={url}",
        "proxy={url}",
        "proxy=file://{path}",
        "stream/{path}/0/1/playlist-file",
        "stream/door/0/1/playlist.m3u8",
        "custom_component/x/client/../{path}",
        "vibe-code",
    ],
)
def test_no_route_gives_a_file_out(http: httpx.Client, server: Server, secret: Path, dropped: Path, route: str) -> None:
    forms_of(secret, server, dropped)
    names = {
        "path": secret,
        "link": dropped.parent / "link.txt",
        "around": f"{dropped.parent}/../../../../private/secret.txt",
        "url": f"{server.url}/healthz",
    }
    answer = http.get(f"/gradio_api/{route.format(**names)}")
    assert answer.status_code >= 400, answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    "asked",
    [
        "GET deep_link?session_hash=door",
        "GET proxy=http://127.0.0.1/",
        "GET file=http://127.0.0.1/",
        "GET dev/reload",
        "GET custom_component/a/client/b/c",
        "GET openapi.json",
        "POST component_server",
        "POST process_recording",
        "POST api/predict",
        "POST call/predict",
        "POST queue/join",
        "GET queue/data?session_hash=door",
        "POST call/v2/predict",
        "POST vibe-code",
        "POST run-history/connect",
        "PUT upload",
    ],
)
def test_what_the_page_does_not_use_is_not_there(http: httpx.Client, server: Server, asked: str) -> None:
    """A GET wrote a tab's state into the home, and another fetched any named address."""
    events = Events(http)
    events.send(next(events.with_fields()), "words")  # so that the server knows the tab
    method, _, route = asked.partition(" ")
    answer = http.request(method, f"/gradio_api/{route}", json={} if method == "POST" else None)
    assert (answer.status_code, "There is no" in answer.json()["error"]) == (404, True)
    assert not list(server.home.rglob("deep_links"))


@pytest.mark.parametrize("route", ["run/predict", "cancel", "reset"])
@pytest.mark.parametrize("said", [True, False])
def test_a_body_of_gradios_is_bounded(http: httpx.Client, route: str, said: bool) -> None:
    """It took 200 MB, and eight times as much memory."""
    body = b'{"data": ["' + b"x" * MOST_BODY + b'"]}'
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    sent = http.post(
        f"/gradio_api/{route}", content=body if said else pieces, headers={"Content-Type": "application/json"}
    )
    assert sent.status_code == 413


def test_no_parameter_of_any_route_takes_a_path(
    tmp_path: Path, http: httpx.Client, server: Server, secret: Path
) -> None:
    """The routes come from the app's own table, so that a new one is covered at once."""

    async def made() -> FastAPI:  # inside a loop, because Gradio would open one of its own
        return make_app(service, None)

    with closing(Service(tmp_path / "table", None, "cpu")) as service:
        app = asyncio.run(made())
    routes = routes_of(app)
    assert {"/api/contexts", "/v1/files", "/gradio_api/upload", "/"} <= {route.path for route in routes}
    before, forms = http.get("/api/documents").json(), itertools.cycle(paths(secret, server.home))
    known = [each["id"] for each in before] or ["d-none"]
    sent = 0
    for route in routes:
        for address, content in requests(app, route, next(forms), known):
            with (
                suppress(httpx.ReadTimeout, httpx.InvalidURL, httpx.LocalProtocolError),
                http.stream(route.method, address, **content, timeout=httpx.Timeout(PATIENCE_SEC, read=1)) as answer,
            ):
                assert SECRET not in next(answer.iter_bytes(1 << 20), b"").decode(errors="replace"), (address, content)
                assert answer.status_code != 500, (address, content)
                sent += 1
    assert sent > 3 * len(routes)
    assert SECRET not in everything(http, server)


@pytest.mark.parametrize("name", ["secret.txt", "../private/secret.txt", "/etc/passwd"])
def test_ids_are_no_paths(http: httpx.Client, secret: Path, name: str) -> None:
    id = name.replace("/", "%2F")
    for route in ("documents/{}", "documents/{}/file", "documents/{}/pages/1", "documents/{}/pages/1/picture"):
        assert http.get(f"/api/{route.format(id)}").status_code == 404
    assert http.get(f"/documents/{id}/pages/1").status_code == 404
    for route in ("contexts/{}", "sessions/{}", "sessions/{}/export", "sessions/{}/turns", "turns/{}", "jobs/{}"):
        assert http.get(f"/api/{route.format(id)}").status_code == 404
    for field in ("documents", "add_to"):
        sent = http.post("/api/contexts", data={field: name})
        assert (sent.status_code, SECRET in sent.text) in ((400, False), (404, False))
    assert http.post("/api/sessions", json={"context": name}).status_code in (400, 404)


def test_a_file_is_no_model(http: httpx.Client, secret: Path) -> None:
    """No error contains its words, and a folder with another config.json reveals nothing of it either."""
    for model in (secret, secret.parent, f"{secret.parent}:nf4", f"file://{secret}"):
        sent = http.post("/api/contexts", data={"model": str(model)}, files={"files": ("a.txt", b"Words. " * 40)})
        assert (sent.status_code, SECRET in sent.text) == (400, False), sent.text
        asked = {"model": str(model), "messages": [{"role": "user", "content": "What?"}]}
        assert SECRET not in http.post("/v1/chat/completions", json=asked).text
    assert SECRET not in http.get("/api/models").text


def test_an_upload_is_its_bytes_whatever_it_is_called(http: httpx.Client, server: Server, secret: Path) -> None:
    sent = http.post("/api/contexts", files={"files": (str(secret), b"Words of an upload. " * 40)})
    wait_for(lambda: http.get(f"/api/jobs/{sent.json()['id']}").json()["status"] == "done", "the upload")
    assert SECRET not in everything(http, server)
    assert secret.read_text().startswith(SECRET)


@pytest.mark.parametrize("place", ["outside", "link", "folder", "beside", "other", "relative", "missing"])
def test_only_what_lies_in_the_cache_is_moved_in(tmp_path: Path, place: str) -> None:
    """Any path was moved into the home, away from its place."""
    folder = cache(tmp_path)
    (folder / "one").mkdir(parents=True)
    other = folder.with_name("incoming-0")
    other.mkdir()
    outside = tmp_path / "outside.txt"
    for each in (outside, other / "a.txt"):
        each.write_text(SECRET)
    (folder / "one" / "link.txt").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    path = {
        "outside": str(outside),
        "link": str(folder / "one" / "link.txt"),
        "folder": str(folder / "linked" / "outside.txt"),
        "beside": f"{folder}/one/../../../outside.txt",
        "other": str(other / "a.txt"),
        "relative": os.path.relpath(outside),
        "missing": str(tmp_path / "nothing.txt"),
    }[place]
    with pytest.raises(AppError, match="Only files that were dropped in are taken"):
        move_in(tmp_path, [path])
    assert outside.read_text() == SECRET
    with pytest.raises(AppError, match="Only files"):
        check_dropped(tmp_path, folder)


def test_uploads_may_lie_on_another_disk(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "large").mkdir()
    (home / "uploads").symlink_to(tmp_path / "large")
    file = cache(home) / "one" / "a.txt"
    file.parent.mkdir(parents=True)
    file.write_text("words")
    (moved,) = move_in(home, [str(file)])
    assert moved.read_text() == "words"
