"""Dropped files whose upload breaks off: nothing of them stays, and the page says why."""

import errno
import socket
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.errors import AppError
from app.jobs.uploads import copy_in, uploads
from app.web import dropped_files
from app.web.dropped_files import DROPPED_AT, DroppedFiles
from sessions import DiskFull
from tests.app.helpers import Server, wait_for

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("incoming") / "home", str(tiny)).start()
    yield server
    server.stop()


def loose(home: Path) -> list[Path]:
    return [each for each in home.glob("uploads/*/*") if each.is_file()]


def test_an_upload_that_is_broken_off_leaves_nothing(server: Server) -> None:
    """Half a file stayed until the server was restarted, and the log had a traceback."""
    part = b'--e\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n' + b"words " * 50_000
    head = (
        f"POST {DROPPED_AT} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 9000000\r\n"
        "Content-Type: multipart/form-data; boundary=e\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as browser:
        browser.sendall(head.encode() + part)
        wait_for(lambda: bool(loose(server.home)), "the upload to begin")
    wait_for(lambda: not loose(server.home), "what came of it to go")
    assert "Traceback" not in (server.home.parent / "server.log").read_text()


def page(folder: Path, error: Exception | None) -> TestClient:
    """Return an app that writes half of an upload as Gradio does, and then fails like this."""

    async def take(request: Request) -> PlainTextResponse:
        folder.mkdir(exist_ok=True)
        (folder / "tmphalf").write_bytes(await request.body())
        if error is not None:
            raise error
        return PlainTextResponse("kept")

    app = Starlette(routes=[Route(DROPPED_AT, take, methods=["POST"])])
    app.add_middleware(DroppedFiles, folder=folder)
    return TestClient(app)


def test_a_full_disk_is_told_to_the_page_and_is_as_full_as_before(tmp_path: Path) -> None:
    """The page said "Internal Server Error", and half a file kept the disk full."""
    folder = tmp_path / "incoming"
    refused = page(folder, FULL).post(DROPPED_AT, content=b"words")
    assert (refused.status_code, "No room on the disk" in refused.text) == (507, True)
    assert not list(folder.iterdir())
    assert page(folder, None).post(DROPPED_AT, content=b"words").text == "kept"


def test_an_upload_for_which_there_is_no_room_is_refused_before_it_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "incoming"
    monkeypatch.setattr(dropped_files, "disk_free", lambda path: 4)
    refused = page(folder, None).post(DROPPED_AT, content=b"words")
    assert (refused.status_code, "5 bytes are needed and 4 are free" in refused.text) == (507, True)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("reported", "raised", "words"),
    [(OSError(errno.EROFS, "Read-only file system"), AppError, "choose another home"), (FULL, DiskFull, "No room")],
)
def test_a_home_without_room_for_uploads_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reported: OSError, raised: type[Exception], words: str
) -> None:
    """Regression: with a read-only home, the server only repeated the system's error."""

    def fail(*_: object, **__: object) -> None:
        raise reported

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(raised, match=words):
        uploads(tmp_path)


def test_a_copy_that_the_disk_has_no_room_for_leaves_nothing(tmp_path: Path) -> None:
    """The copy stayed until the server was restarted."""

    class Halfway(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise FULL
            return super().read(3)

    with pytest.raises(DiskFull, match="8 bytes are needed"):
        copy_in(tmp_path, [("a.txt", BytesIO(b"one")), ("b.txt", Halfway(b"words"))])
    assert not list((tmp_path / "uploads").iterdir())
