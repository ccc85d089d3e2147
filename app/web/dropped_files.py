"""Dropped files on their way into Gradio's cache; `app/jobs/uploads.py` takes them from there."""

import logging
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import phrase
from app.jobs.uploads import full_or
from sessions import DiskFull, disk_free

DROPPED_AT = "/gradio_api/upload"
"""Path to which the page sends dropped files."""

log = logging.getLogger(__name__)


class DroppedFiles:
    """ASGI middleware that removes files whose upload did not finish, and tells the page why.

    Gradio writes uploads to loose files in its cache, and moves each to a folder when all of them have arrived.
    """

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        """Wrap an app. folder: Gradio's cache."""
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
            while more:  # a browser reads no answer before it has sent everything
                await listen()
            await PlainTextResponse(phrase(refusal), 507)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Exception | None:
        length, free = headers.get("content-length", ""), disk_free(self.folder)
        return DiskFull(self.folder, int(length), free) if length.isdecimal() and int(length) > free else None

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> Exception | None:
        """Let Gradio take an upload; return the reason if it could not be written."""
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
            return full_or(error, self.folder)
        finally:
            self._under_way -= 1
            if not self._under_way and self.folder.exists():
                for each in self.folder.iterdir():
                    if each.is_file():
                        each.unlink(missing_ok=True)
        return None
