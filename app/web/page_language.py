"""Scripts that run before Gradio's: one language for all of the page, that of the server, and no needless frames."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.language import language_of

SCRIPT = (
    "<script>for (const [name, value] of [['language', '{0}'], ['languages', ['{0}']]]) "
    "Object.defineProperty(navigator, name, {{ value }});</script>"
)
"""Sets the browser's language before Gradio asks for it: Gradio has languages that the page lacks."""
FRAMES = (
    "<script>{ const frame = window.requestAnimationFrame.bind(window); window.requestAnimationFrame = "
    r"(call) => /performance\.now\(\)-.*\/1e3/.test(call) ? 0 : frame(call); }</script>"
)
"""Ends Gradio's count of the seconds that loading takes, which is known by its text. It goes on unseen at every frame
after the page was loaded, and costs a few per cent of a core in each tab."""


class PageLanguage:
    """ASGI middleware that puts scripts at the top of the page's HTML."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an app."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the scripts if it is for the page."""
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("GET", "/"):
            await self.app(scope, receive, send)
            return
        script = SCRIPT.format(language_of(Headers(scope=scope).get("accept-language", ""))).encode()
        begun: Message = {}
        body = b""

        async def keep(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start":
                begun = message
                return
            body += message.get("body", b"")
            if message.get("more_body", False):
                return
            whole = body.replace(b"<head>", b"<head>" + FRAMES.encode() + script, 1)
            MutableHeaders(raw=begun["headers"])["content-length"] = str(len(whole))
            await send(begun)
            await send({"type": "http.response.body", "body": whole})

        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]  # never compressed
        await self.app({**scope, "headers": plain}, receive, keep)
