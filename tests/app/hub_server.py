"""A hub on this machine, with as much of its protocol as a download needs."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

REVISION = "0123456789abcdef0123456789abcdef01234567"


def point_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub talk to the hub at this address."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)


class Hub:
    """Serves the files of a folder as one model's. Large files (weights) lie in a store at another address.

    cut_at: each response with a large file ends after so many bytes, for `cuts` responses.
    token: token that every request to the hub must carry.
    told: tokens that came to the store.
    busy: requests for large files that are refused, for want of time.
    architecture: architecture of a GGUF file, as the hub lists it.
    page: response to every request, as networks with a login page send it.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.listed = {name: self._described(name, data) for name, data in self.files.items()}
        self.cut_at, self.cuts, self.gated = 0, 0, False
        self.ranged = True
        self.page, self.busy, self.architecture = b"", 0, ""
        self.token: str | None = None
        self.told: list[str | None] = []
        self.asked: list[tuple[str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
        self.url, self._store = (f"http://127.0.0.1:{each.server_port}" for each in self._servers)
        self._threads = [threading.Thread(target=each.serve_forever, args=(0.05,)) for each in self._servers]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def fetched(self) -> list[str]:
        return [name for name, _ in self.asked]

    def _described(self, name: str, data: bytes) -> dict[str, Any]:
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        described: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git}
        if name.endswith((".safetensors", ".gguf")):
            described["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return described

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.split("?")[0]
        if self.page:
            self._send(request, 200, self.page, {})
            return
        if path == f"/api/models/{self.name}":
            listed = {"id": self.name, "sha": REVISION, "siblings": list(self.listed.values())}
            if self.architecture:
                listed["gguf"] = {"architecture": self.architecture}
            self._send(request, 200, json.dumps(listed).encode(), {})
            return
        if path.startswith("/store/") and self.busy:
            self.busy -= 1
            self._send(request, 429, b"", {})
            return
        if path.startswith("/store/"):
            self.told.append(request.headers.get("Authorization"))
            self._file(request, path.removeprefix("/store/"))
            return
        _, _, name = path.partition("/resolve/")
        name = name.partition("/")[2]
        if not path.startswith(f"/{self.name}/resolve/") or name not in self.files:
            code = "EntryNotFound" if f"/{self.name}/" in path else "RepoNotFound"
            self._send(request, 404, b"", {"X-Error-Code": code})
        elif self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            self._send(request, 401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif self.gated:
            self._send(request, 401, b"", {"X-Error-Code": "GatedRepo"})
        elif lfs := self.listed.get(name, {}).get("lfs"):
            linked = {"X-Linked-Etag": f'"{lfs["sha256"]}"', "X-Linked-Size": str(lfs["size"])}
            self._send(
                request, 302, b"", {**linked, "X-Repo-Commit": REVISION, "Location": f"{self._store}/store/{name}"}
            )
        else:
            self._file(request, name)

    def _file(self, request: BaseHTTPRequestHandler, name: str) -> None:
        data, described = self.files[name], self.listed[name]
        etag = described["lfs"]["sha256"] if "lfs" in described else described["blobId"]
        headers = {"X-Repo-Commit": REVISION, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        asked = request.headers.get("Range") if self.ranged else None
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if request.command == "GET":
            self.asked.append((name, request.headers.get("Range")))
        cut = None
        if request.command == "GET" and "lfs" in described and self.cuts:
            self.cuts -= 1
            cut = self.cut_at
        self._send(request, 206 if asked else 200, data[start:], headers, cut)

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str], cut: int | None = None
    ) -> None:
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(data[:cut])
