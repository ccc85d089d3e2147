"""Gradio's routes: those that the page uses are open, with a limit on bodies; all others are closed."""

import re

from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.web.dropped_files import DROPPED_AT

PREFIX = "/gradio_api/"
OPEN = {
    "GET": r"app_id|file=/.*|heartbeat/[^/]+|info/?|login_check/?|startup-events|theme\.css"
    r"|token/?|upload_progress|user/?",
    "POST": r"cancel|reset/?|run/[^/]+/?|upload",
}
"""Open paths after the prefix, by method. HEAD follows GET."""


class GradioRoutes:
    """ASGI middleware that closes every route of Gradio that the page does not need.

    Gradio also fetches addresses for any caller, stores state at a GET, runs programs on uploaded recordings, and has
    routes for its own development.
    """

    def __init__(self, app: ASGIApp, most_body: int) -> None:
        """Wrap an app. most_body: most bytes of a request that is no file."""
        self.app = app
        self.bounded = RequestBodyLimitMiddleware(app, most_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 404 or 413; 400 where an event is refused, as Gradio says 500."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if not re.fullmatch(OPEN.get(method, ""), scope["path"].removeprefix(PREFIX), re.DOTALL):
            sentence = f"There is no {scope['method']} {scope['path']}: the page is at /, and the API at /api."
            await JSONResponse({"error": sentence}, 404)(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and state.get("refused"):
                message = {**message, "status": 400}
            await send(message)

        await (self.app if scope["path"] == DROPPED_AT else self.bounded)(scope, receive, answer)
