"""A server over a home, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.trust.common import MODEL

START_SEC = 300
FIRST_PORT, PORTS = 7920, 20


@contextmanager
def served(home: Path) -> Iterator[tuple[str, int]]:
    """Serve a home; yield the address and the number of the process."""
    port = next(each for each in range(FIRST_PORT, FIRST_PORT + PORTS) if _is_free(each))
    command = [sys.executable, "-m", "app", "--home", str(home), "--model", MODEL, "serve", "--port", str(port)]
    with (home.parent / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--no-introductions"], stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def _wait(address: str) -> None:
    deadline = time.monotonic() + START_SEC
    while True:
        try:
            httpx.get(f"{address}/healthz")
            return
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _is_free(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) != 0
