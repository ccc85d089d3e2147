"""Uploads: moved out of Gradio's cache into the home, where the worker takes them from."""

import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import AppError, phrase
from app.words import byte_size
from sessions import DiskFull, disk_free, is_disk_full

UPLOADS = "uploads"
MOST_BYTES = 1 << 30
DROPPED_AT = "/gradio_api/upload"
"""Where the page sends what is dropped in."""

log = logging.getLogger(__name__)


def cache(home: Path) -> Path:
    """Gradio's cache, of this process alone: what is under way in it is known."""
    return home / UPLOADS / f"incoming-{os.getpid()}"


class Incoming:
    """ASGI middleware: nothing stays of a file that was not dropped in to its end, and the page is told why not.

    Gradio writes what comes to loose files in its cache, and gives each a folder there when all of them have come.
    """

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        """folder: Gradio's cache."""
        self.app, self.folder = app, folder
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let Gradio take an upload, or refuse it before it fills the disk."""
        if scope["type"] != "http" or scope["path"] != DROPPED_AT:
            await self.app(scope, receive, send)
            return
        more = True

        async def listen() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        refusal = self._refusal(Headers(scope=scope)) or await self._take(scope, listen, send)
        if refusal is not None:
            while more:  # a browser hears nothing before it has said everything
                await listen()
            await PlainTextResponse(phrase(refusal), 507)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Exception | None:
        length, free = headers.get("content-length", ""), disk_free(self.folder)
        return DiskFull(self.folder, int(length), free) if length.isdecimal() and int(length) > free else None

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> Exception | None:
        """Let Gradio take it; the reason if it could not be written."""
        broken = False

        async def send_unless_broken(message: Message) -> None:
            nonlocal broken
            broken = broken or message.get("status") == 500
            if not broken:
                await send(message)

        self._under_way += 1
        try:
            await self.app(scope, receive, send_unless_broken)
        except ClientDisconnect:
            log.info("an upload was broken off")
        except OSError as error:
            log.info("an upload could not be kept: %s", error)
            return DiskFull(self.folder, None, disk_free(self.folder)) if is_disk_full(error) else error
        finally:
            self._under_way -= 1
            if not self._under_way and self.folder.exists():
                for each in self.folder.iterdir():
                    if each.is_file():
                        each.unlink(missing_ok=True)
        return None


def sweep(home: Path, wanted: Iterable[Path]) -> None:
    """Remove what is left of uploads: Gradio's cache, and copies that no job will come for.

    Args:
        wanted: the files of jobs that are still to be done, or wait for a password.
    """
    kept = {path.parent for path in wanted}
    for folder in (home / UPLOADS).glob("*"):
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def safe_name(name: str) -> str:
    """One harmless path component that a person still recognises."""
    plain = re.sub(r"[^\w .,()'-]", "_", Path(name).name).strip(" .")
    stem, dot, suffix = plain.rpartition(".")
    return f"{stem[:100]}{dot}{suffix[:10]}" if stem else plain[:100] or "document"


def _folder(home: Path) -> Path:
    folder = home / UPLOADS / secrets.token_hex(8)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def move_in(home: Path, cached: Iterable[str]) -> list[Path]:
    """Move files from Gradio's cache to a folder of their own; the cache keeps nothing.

    Raises:
        AppError: the cache has let go of one of them. None is moved.
    """
    sources = [Path(each) for each in cached]
    if not all(source.is_file() for source in sources):
        raise AppError("The files were dropped in too long ago: drop them in again.")
    folder, moved = _folder(home), []
    for number, source in enumerate(sources):
        target = folder / safe_name(source.name)
        if target.exists():
            target = folder / f"{number} {target.name}"
        shutil.move(source, target)
        if not any(source.parent.iterdir()):
            source.parent.rmdir()
        moved.append(target)
    return moved


def copy_in(home: Path, files: Sequence[tuple[str, BinaryIO]]) -> list[Path]:
    """Copy files that came over HTTP, by name and open stream, to a folder of their own.

    Raises:
        AppError: one is too large. sessions.DiskFull: there is no room. Nothing is kept.
    """
    folder, copied = _folder(home), []
    try:
        for number, (name, stream) in enumerate(files):
            target = folder / safe_name(name)
            if target.exists():
                target = folder / f"{number} {target.name}"
            with target.open("wb") as handle:
                while block := stream.read(1 << 20):
                    if handle.tell() + len(block) > MOST_BYTES:
                        raise AppError(f"{target.name} is larger than {byte_size(MOST_BYTES)}: split it.")
                    handle.write(block)
            copied.append(target)
    except BaseException as error:
        shutil.rmtree(folder)
        if is_disk_full(error):
            needed = sum(stream.seek(0, os.SEEK_END) for _, stream in files)
            raise DiskFull(home, needed, disk_free(home)) from error
        raise
    return copied
