"""Who may come in: loopback alone, or everybody with the name and password."""

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
MOST_WRONG, WITHIN = 10, 60.0  # different wrong passwords from one address, and in how many seconds
MOST_WRONG_OF_ALL = 200  # from all addresses, of which a program on this machine can claim any by X-Forwarded-For
PAUSE_SEC, MOST_WAITING = 0.5, 20  # then one is looked at in so many seconds, and so many may wait for it
COOKIE = "stockpot-known"
MOST_CALLERS = 10_000  # whose wrong passwords are remembered
CLOSED = {
    # Gradio's page writes its scripts and styles into itself; nothing comes from, or goes to, anywhere else.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
}
"""Headers of everything that is shown as a page: it is alone, and in no frame of another site's."""
EVERYWHERE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",  # no other site may show a picture of it, or run a script
}

BEFORE_ALL = {
    "description": "A refusal before the request was looked at, in plain text: 400, 401, 403, 413 or 429.",
    "content": {"text/plain": {}},
}
"""What every route may answer, as `/api/openapi.json` has it."""


def is_loopback(host: str) -> bool:
    """Whether an address or name can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def credentials(auth: str | None, host: str) -> tuple[str, str] | None:
    """The name and password that callers must give; None where nobody else can call.

    Raises:
        UsageError: not USER:PASSWORD, or missing although others could call.
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
    """ASGI middleware: name and password where asked for, and no requests made by other sites' pages.

    Without authentication the Host header must name this machine, so that a foreign page cannot reach the server
    under a name of its own (DNS rebinding). A request of a page must be of our own: Gradio would let pages of other
    ports of this machine, and of every site where others can call, read what it answers. No page may frame ours, in
    which people would press what they cannot see.

    Guessing is slow. After ten wrong passwords within a minute from one address, or 200 from all, whatever else comes
    from there waits in one line, of which one is looked at every half second: with what needs not wait, some 320
    guesses a minute at the most, however many ask at once. A right password is let in when its turn comes, so nobody is
    locked out by another's guesses; only while 20 wait is a newcomer told to come again. A browser that was let in
    before does not stand in that line: it has a cookie, which opens nothing without the password, and with which no
    more may be guessed than from one address. A wrong password that came before is refused at once: an answer that is
    known tells nothing.
    """

    def __init__(self, app: ASGIApp, login: tuple[str, str] | None) -> None:
        """login: name and password, or None on loopback."""
        self.app = app
        self.login = login
        self._wrong: dict[str, dict[int, float]] = {}  # by caller: wrong passwords, hashed, and when each came last
        self._all_wrong: dict[int, float] = {}  # the same of all callers together
        self._let_in: set[str] = set()  # callers who have given the right one
        self._key = secrets.token_bytes(32)  # signs what browsers that were let in are known by
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
        """The refusal of a request under another name, or of another site's page."""
        host = headers.get("host", "")
        if "@" in host or (self.login is None and not is_loopback(_split(f"//{host}").hostname or "")):
            return PlainTextResponse("This server answers on this machine only.", 400)
        origin = headers.get("origin")
        loaded = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        if (origin and _split(origin).netloc != host) or (loaded and not followed):  # a link may be followed
            return PlainTextResponse(
                "Requests from other sites are refused. (Is there a proxy in between? It has to pass on Host.)", 403
            )
        return None

    async def _stranger(self, given: str, caller: str) -> PlainTextResponse | None:
        """The refusal of a request without the right password. caller: who gives it."""
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
        """What a browser is known by: a name, at random unless it is given, and our signature."""
        name = name or secrets.token_hex(16)
        return f"{name}.{hmac.digest(self._key, name.encode(), 'sha256').hex()}"

    def _known(self, headers: Headers) -> str:
        """The name under which a browser was let in before; empty if it was not."""
        try:
            sent = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        name = sent.value.partition(".")[0] if sent else ""
        return name if sent and name and hmac.compare_digest(sent.value.encode(), self._signed(name).encode()) else ""

    def _must_wait(self, caller: str) -> bool:
        """Whether so many wrong passwords came, from there or from everywhere, that others wait to be looked at.

        Who was let in before need not wait for what others guess.
        """
        self._all_wrong = _recent(self._all_wrong)
        if recent := _recent(self._wrong.pop(caller, {})):
            self._wrong[caller] = recent
        return len(recent) >= MOST_WRONG or (len(self._all_wrong) >= MOST_WRONG_OF_ALL and caller not in self._let_in)

    def _knows(self, authorization: str) -> bool:
        assert self.login is not None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":  # as clients of OpenAI's API send their key
            given = token.strip().encode("latin-1")  # the bytes that came
        elif scheme.lower() == "basic":
            try:
                given = base64.b64decode(token, validate=True)
            except (binascii.Error, ValueError):
                return False
        else:
            return False
        return hmac.compare_digest(given, ":".join(self.login).encode())


def _recent(wrong: dict[int, float]) -> dict[int, float]:
    """What did not come too long ago to count."""
    since = time.monotonic() - WITHIN
    return {one: at for one, at in wrong.items() if at > since}


def _caller(scope: Scope) -> str:
    """Where a request comes from: an address, or of IPv6 the network, in which one machine may have any."""
    address: str = (scope.get("client") or ("",))[0]
    if ":" not in address or address.startswith("::ffff:"):  # which stands for one of IPv4
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:  # a proxy may say anything
        return address


def _split(address: str) -> SplitResult:
    """The parts of an address; none where it cannot be one."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
