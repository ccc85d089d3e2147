"""Access: from this machine alone, or for everybody with the name and password."""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import UsageError

OPEN_PATHS = ("/healthz",)
MOST_WRONG, WITHIN = 10, 60.0  # different wrong passwords from one address, and seconds
MOST_WRONG_OF_ALL = 200  # from all addresses; a program on this machine can claim any by X-Forwarded-For
PAUSE_SEC, MOST_WAITING = 0.5, 20  # seconds between two checks then, and most callers that wait
COOKIE = "stockpot-known"
MOST_CALLERS = 10_000  # callers whose wrong passwords are remembered
CLOSED = {
    # Gradio's page has inline scripts and styles; nothing comes from, or goes to, another site.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
}
"""Headers of every page: nothing from other sites, and no frame around it."""
EVERYWHERE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",  # no other site may embed a picture or a script
}


def is_loopback(host: str) -> bool:
    """Return whether an address or name can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def credentials(auth: str | None, host: str) -> tuple[str, str] | None:
    """Return the name and password that callers must give; None if only this machine can call.

    Raises:
        UsageError: the text is not USER:PASSWORD, or missing although others can call.
    """
    if auth is None:
        if is_loopback(host):
            return None
        raise UsageError(
            f"{host} can be reached by others, so a name and password are needed: --auth USER:PASSWORD, "
            "or leave out --host to stay on this machine."
        )
    user, colon, password = auth.partition(":")
    if not (user and colon and password):
        raise UsageError("--auth takes USER:PASSWORD, both not empty.")
    return user, password


class Guard:
    """ASGI middleware that checks name and password, and refuses requests made by other sites' pages.

    Without a password, the Host header must name this machine, so that a foreign page cannot reach the server under a
    name of its own (DNS rebinding). Requests from pages must come from our own: Gradio would answer pages on other
    ports of this machine, and on any site if others can call. No page may frame ours, because people would press
    buttons that they cannot see.

    Guessing is slow. After ten wrong passwords within a minute from one address, or 200 from all, further requests from
    there wait in one line, and one is checked every half second. That allows about 320 guesses a minute, however many
    ask at once. A right password is accepted in its turn, so nobody is locked out by another's guesses; only while 20
    wait is a newcomer told to come again. A browser that was accepted before skips the line: it has a cookie, which
    opens nothing without the password, and allows no more guesses than one address. A repeated wrong password is
    refused at once, because that tells nothing new.
    """

    def __init__(self, app: ASGIApp, login: tuple[str, str] | None) -> None:
        """Wrap an app. login: name and password, or None on loopback."""
        self.app = app
        self.login = login
        self._wrong: dict[str, dict[int, float]] = {}  # caller -> hashes of wrong passwords with their last time
        self._all_wrong: dict[int, float] = {}  # the same for all callers together
        self._let_in: set[str] = set()  # callers with the right password
        self._key = secrets.token_bytes(32)  # signs the cookies
        self._line, self._waiting = asyncio.Lock(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 400, 401, 403 or 429."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                shown = headers.get("content-type", "").startswith("text/html")
                headers.update({**EVERYWHERE, **(CLOSED if shown else {})})
                if new_to_us:
                    headers.append("Set-Cookie", f"{COOKIE}={self._signed()}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._foreign(headers)
        new_to_us = False
        if refusal is None and self.login is not None and scope["path"] not in OPEN_PATHS:
            if known := self._known(headers):
                self._let_in.add(known)
            refusal = await self._stranger(headers.get("authorization", ""), known or _caller(scope))
            new_to_us = refusal is None and not known
        await (refusal or self.app)(scope, receive, send_guarded)

    def _foreign(self, headers: Headers) -> PlainTextResponse | None:
        """Return the refusal of a request under another name, or from another site's page; None if it is ours."""
        host = headers.get("host", "")
        if "@" in host or (self.login is None and not is_loopback(_split(f"//{host}").hostname or "")):
            return PlainTextResponse("This server answers on this machine only.", 400)
        origin = headers.get("origin")
        loaded = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        if (origin and _split(origin).netloc != host) or (
            loaded and not followed
        ):  # links from other sites may be followed
            return PlainTextResponse(
                "Requests from other sites are refused. (Is there a proxy in between? It has to pass on Host.)", 403
            )
        return None

    async def _stranger(self, given: str, caller: str) -> PlainTextResponse | None:
        """Return the refusal of a request without the right password; None if it may pass. caller: address of the
        client.
        """
        if given and hash(given) not in self._all_wrong and self._must_wait(caller):
            if self._waiting >= MOST_WAITING:
                text = f"Too many wrong passwords came: wait {WITHIN:.0f} seconds."
                return PlainTextResponse(text, 429, {"Retry-After": f"{WITHIN:.0f}"})
            self._waiting += 1
            try:
                async with self._line:
                    await asyncio.sleep(PAUSE_SEC)
            finally:
                self._waiting -= 1
        if self._knows(given):
            self._let_in.add(caller)
            return None
        if given:
            if len(self._wrong) >= MOST_CALLERS:
                del self._wrong[next(iter(self._wrong))]
            self._wrong.setdefault(caller, {})[hash(given)] = self._all_wrong[hash(given)] = time.monotonic()
        return PlainTextResponse(
            "A name and password are needed.", 401, {"WWW-Authenticate": 'Basic realm="Stockpot", charset="UTF-8"'}
        )

    def _signed(self, name: str = "") -> str:
        """Return a name with our signature, for a cookie; a random name unless one is given."""
        name = name or secrets.token_hex(16)
        return f"{name}.{hmac.digest(self._key, name.encode(), 'sha256').hex()}"

    def _known(self, headers: Headers) -> str:
        """Return the signed name in a browser's cookie; empty if there is none."""
        try:
            sent = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        name = sent.value.partition(".")[0] if sent else ""
        return name if sent and name and hmac.compare_digest(sent.value.encode(), self._signed(name).encode()) else ""

    def _must_wait(self, caller: str) -> bool:
        """Return whether there were so many wrong passwords, from there or in all, that a caller must wait.

        A browser that was accepted before does not wait because of others.
        """
        self._all_wrong = _recent(self._all_wrong)
        if recent := _recent(self._wrong.pop(caller, {})):
            self._wrong[caller] = recent
        return len(recent) >= MOST_WRONG or (len(self._all_wrong) >= MOST_WRONG_OF_ALL and caller not in self._let_in)

    def _knows(self, authorization: str) -> bool:
        assert self.login is not None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":  # clients of OpenAI's API send their key so
            given = token.strip().encode("latin-1")  # the bytes as they came
        elif scheme.lower() == "basic":
            try:
                given = base64.b64decode(token, validate=True)
            except (binascii.Error, ValueError):
                return False
        else:
            return False
        return hmac.compare_digest(given, ":".join(self.login).encode())


def _recent(wrong: dict[int, float]) -> dict[int, float]:
    """Return the entries that are recent enough to count."""
    since = time.monotonic() - WITHIN
    return {one: at for one, at in wrong.items() if at > since}


def _caller(scope: Scope) -> str:
    """Return the address of a client; for IPv6 its network, in which one machine may have any address."""
    address: str = (scope.get("client") or ("",))[0]
    if ":" not in address or address.startswith("::ffff:"):  # an IPv4 address in IPv6
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:  # a proxy may send any text
        return address


def _split(address: str) -> SplitResult:
    """Return the parts of an address; empty parts if it is malformed."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
