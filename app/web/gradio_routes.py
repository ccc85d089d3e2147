"""Gradio's routes: those that the page uses are open, for bodies of a bounded size, and all others are shut."""

import re

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.web.dropped_files import DROPPED_AT

PREFIX = "/gradio_api/"
OPEN = {
    "GET": r"app_id|file=/.*|heartbeat/[^/]+|info/?|login_check/?|queue/(data|status)|startup-events|theme\.css"
    r"|token/?|upload_progress|user/?",
    "POST": r"cancel|queue/join|reset/?|run/[^/]+/?|upload",
}
"""What follows the prefix, by method. HEAD goes where GET does."""


class GradioRoutes:
    """ASGI middleware: what the page does not need of Gradio is not there.

    Gradio also fetches addresses for whoever asks, keeps what a tab shows at a GET, runs programs on recordings that
    are sent, and has routes for its own development.
    """

    def __init__(self, app: ASGIApp, most_body: int) -> None:
        """most_body: bytes of a request that is no file."""
        self.app = app
        self.bounded = RequestBodyLimitMiddleware(app, most_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 404 or 413."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if not re.fullmatch(OPEN.get(method, ""), scope["path"].removeprefix(PREFIX), re.DOTALL):
            sentence = f"There is no {scope['method']} {scope['path']}: the page is at /, and the API at /api."
            await JSONResponse({"error": sentence}, 404)(scope, receive, send)
            return
        await (self.app if scope["path"] == DROPPED_AT else self.bounded)(scope, receive, send)
