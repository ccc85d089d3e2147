"""Access to the server: addresses, passwords and other sites."""

import asyncio
import base64
import shutil
import stat
import time
from collections import Counter
from http.cookiejar import DefaultCookiePolicy
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.errors import AppError, UsageError
from app.jobs.uploads import cache, copy_in, move_in, safe_name
from app.web import guard
from app.web.guard import MOST_WAITING, MOST_WRONG, MOST_WRONG_OF_ALL, WITHIN, Guard, credentials, is_loopback
from app.web.server import announce


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_only_loopback_needs_no_password(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if loopback:
        assert credentials(None, host) is None
    else:
        with pytest.raises(UsageError, match="--auth"):
            credentials(None, host)
    assert credentials("me:a:b", host) == ("me", "a:b")


@pytest.mark.parametrize("auth", ["me", "me:", ":secret", ""])
def test_half_a_password_is_refused(auth: str) -> None:
    with pytest.raises(UsageError, match="USER:PASSWORD"):
        credentials(auth, "127.0.0.1")


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_who_serves_others_is_told_that_nothing_is_encrypted(
    capsys: pytest.CaptureFixture[str], host: str, told: bool
) -> None:
    announce(host, f"http://{host}:7860", Path("home"))
    err = capsys.readouterr().err
    assert f"opens at http://{host}:7860" in err
    assert ("is not encrypted" in err) is told


def client(login: tuple[str, str] | None) -> TestClient:
    def home(request: object) -> PlainTextResponse:
        return PlainTextResponse("in")

    def page(request: object) -> HTMLResponse:
        return HTMLResponse("<p>in</p>")

    routes = [Route(path, home, methods=["GET", "POST"]) for path in ("/", "/healthz")]
    app = Starlette(routes=[*routes, Route("/page", page)])
    app.add_middleware(Guard, login=login)
    return forgetful(TestClient(app, base_url="http://127.0.0.1:7860"))


def forgetful(http: TestClient) -> TestClient:
    """Return a client that keeps no cookies, like most programs."""
    http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return http


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send callers away that would have to wait."""
    monkeypatch.setattr(guard, "MOST_WAITING", 0)


def basic(text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


def test_the_password_is_asked_for_everywhere_but_at_healthz() -> None:
    with client(("me", "söcret")) as http:
        assert http.get("/").status_code == 401
        assert "Basic" in http.get("/").headers["www-authenticate"]
        assert http.get("/", headers=basic("me:wrong")).status_code == 401
        assert http.get("/", headers={"Authorization": "Basic ?"}).status_code == 401
        assert http.get("/", headers={"Authorization": "Bearer x"}).status_code == 401
        assert http.get("/", headers=basic("me:söcret")).text == "in"
        assert http.get("/", headers={"Authorization": "Bearer me:söcret".encode()}).text == "in"
        assert http.get("/", headers={"Authorization": "Bearer me:wrong"}).status_code == 401
        assert http.get("/", headers={"Authorization": "Digest me:söcret".encode()}).status_code == 401
        assert http.get("/healthz").text == "in"


def test_passwords_cannot_be_guessed_at_leisure(monkeypatch: pytest.MonkeyPatch, nobody_waits: None) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    right = basic("me:secret")
    with client(("me", "secret")) as http:
        elsewhere = TestClient(http.app, base_url="http://127.0.0.1:7860", client=("192.0.2.7", 50000))
        for _ in range(30):  # a page that was left open while the password was changed guesses nothing
            assert http.get("/", headers=basic("me:old")).status_code == 401
        for number in range(MOST_WRONG - 1):
            assert http.get("/", headers=basic(f"me:{number}")).status_code == 401
            assert number > 0 or http.get("/", headers=right).text == "in"
        refused = http.get("/", headers=right)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        assert "wait 60 seconds" in refused.text
        assert http.get("/").status_code == 401
        assert http.get("/healthz").text == "in"
        assert elsewhere.get("/", headers=right).text == "in"
        now[0] += WITHIN + 1
        assert http.get("/", headers=right).text == "in"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::7", "2001:db8::8:9", True),  # one machine may have both
        ("2001:db8::7", "2001:db8:0:1::7", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
        ("a:b", "a:c", False),  # no address, as a proxy may send it
    ],
)
def test_who_guesses_is_known_by_address(nobody_waits: None, one: str, other: str, same: bool) -> None:
    app = client(("me", "secret")).app
    first, second = (TestClient(app, base_url="http://127.0.0.1:7860", client=(each, 50000)) for each in (one, other))
    for number in range(MOST_WRONG):
        assert first.get("/", headers=basic(f"me:{number}")).status_code == 401
    assert first.get("/", headers=basic("me:secret")).status_code == 429
    assert second.get("/", headers=basic("me:secret")).status_code == (429 if same else 200)


def test_passwords_cannot_be_guessed_under_many_addresses(monkeypatch: pytest.MonkeyPatch, nobody_waits: None) -> None:
    """A program on this machine could name another address with each guess."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    proxied = ProxyHeadersMiddleware(client(("me", "secret")).app, "127.0.0.1")  # as uvicorn does
    http = forgetful(TestClient(proxied, base_url="http://127.0.0.1:7860", client=("127.0.0.1", 50000)))

    def status(password: str, address: str) -> int:
        return http.get("/", headers={**basic(f"me:{password}"), "X-Forwarded-For": address}).status_code

    assert status("secret", "192.0.2.7") == 200
    for number in range(MOST_WRONG_OF_ALL - 1):
        assert status("old", f"2001:db8:1:{number:x}::1") == 401  # many pages may still send it, and it counts once
        assert status(f"{number}", f"2001:db8:2:{number:x}::1") == 401
    assert status("secret", "198.51.100.1") == 429
    for number in range(MOST_WRONG):
        assert status("secret", "192.0.2.7") == 200  # a browser that was let in stays in
        assert status(f"{number}", "192.0.2.7") == 401  # and gets no more guesses
    assert status("secret", "192.0.2.7") == 429
    now[0] += WITHIN + 1
    assert status("secret", "198.51.100.1") == 200


def test_nobody_is_locked_out_by_what_others_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten wrong passwords locked out everybody at the same address, also with the right password."""
    monkeypatch.setattr(guard, "PAUSE_SEC", 0.01)
    app, right = client(("me", "secret")).app, basic("me:secret")

    async def trial() -> None:
        def browser() -> httpx.AsyncClient:
            return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:7860")

        async with browser() as owner, browser() as other, browser() as stranger:
            assert (await owner.get("/", headers=right)).status_code == 200  # and has a cookie from now on
            for number in range(MOST_WRONG):
                assert (await other.get("/", headers=basic(f"me:{number}"))).status_code == 401
            assert (await stranger.get("/", headers=right)).status_code == 200  # when its turn comes
            monkeypatch.setattr(guard, "PAUSE_SEC", 0.2)
            guesses = [other.get("/", headers=basic(f"me:more {number}")) for number in range(2 * MOST_WAITING)]
            line = asyncio.gather(*guesses)
            await asyncio.sleep(0.1)
            assert (await owner.get("/", headers=right)).status_code == 200
            assert (await stranger.get("/", headers=right)).status_code == 200  # known since its turn came
            assert (await other.get("/", headers=right)).status_code == 429
            assert (await other.get("/", headers=basic("me:0"))).status_code == 401  # known to be wrong
            assert not line.done()
            monkeypatch.setattr(guard, "PAUSE_SEC", 0)
            statuses = Counter(answer.status_code for answer in await line)
            assert statuses == {401: MOST_WAITING, 429: MOST_WAITING}

    asyncio.run(trial())


def test_a_cookie_opens_nothing_and_cannot_be_made_up(nobody_waits: None) -> None:
    with client(("me", "secret")) as http:
        cookie = http.get("/", headers=basic("me:secret")).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        known = {"Cookie": cookie.partition(";")[0]}
        assert http.get("/", headers=known).status_code == 401
        for number in range(MOST_WRONG):
            assert http.get("/", headers=basic(f"me:{number}")).status_code == 401
        right = basic("me:secret")
        for forged in ({}, {"Cookie": "stockpot-known=a.b"}, {"Cookie": "stockpot-known=é"}, {"Cookie": "=;;"}):
            assert http.get("/", headers={**right, **{k: v.encode() for k, v in forged.items()}}).status_code == 429
        assert http.get("/", headers={**right, **known}).status_code == 200
        for number in range(MOST_WRONG):
            assert http.get("/", headers={**basic(f"me:with it {number}"), **known}).status_code == 401
        assert http.get("/", headers={**right, **known}).status_code == 429  # and no more may be guessed with it


@pytest.mark.parametrize(
    ("site", "mode", "dest", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403),  # another port of this machine
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),  # a link
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_other_sites_load_nothing(site: str, mode: str, dest: str, status: int) -> None:
    """Any site could load the icon, and so learn that Stockpot runs here."""
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    with client(None) as http:
        answer = http.get("/", headers=headers)
        assert (answer.status_code, answer.headers["cross-origin-resource-policy"]) == (status, "same-origin")


@pytest.mark.parametrize("login", [None, ("me", "secret")])
def test_a_host_with_a_name_before_it_is_refused(login: tuple[str, str] | None) -> None:
    headers = {"Host": "evil.example@127.0.0.1", **basic("me:secret")}
    assert client(login).get("/", headers=headers).status_code == 400


def test_a_home_that_others_may_write_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode, told in ((0o777, True), (0o770, True), (0o755, False), (0o700, False)):
        tmp_path.chmod(mode)
        announce("127.0.0.1", "http://127.0.0.1:7860", tmp_path)
        assert (f"chmod go-w {tmp_path}" in capsys.readouterr().err) is told


def test_other_sites_cannot_use_the_page_of_a_person_at_this_machine() -> None:
    with client(None) as http:
        assert http.get("/").status_code == 200
        assert http.get("/", headers={"Host": "evil.example:7860"}).status_code == 400
        assert http.post("/").status_code == 200
        assert http.post("/", headers={"Origin": "http://127.0.0.1:7860"}).status_code == 200
        assert http.post("/", headers={"Origin": "https://evil.example"}).status_code == 403
        assert http.post("/", headers={"Origin": "null"}).status_code == 403


@pytest.mark.parametrize("login", [None, ("me", "secret")])
def test_other_sites_cannot_read_what_the_page_reads(login: tuple[str, str] | None) -> None:
    """Gradio allows it to pages on other ports of this machine, and to every site if the server is not on loopback."""
    with client(login) as http:
        for origin in ("http://127.0.0.1:8888", "http://localhost:7860", "https://evil.example", "null"):
            headers = {"Origin": origin, **basic("me:secret")}
            assert http.get("/", headers=headers).status_code == 403
            assert http.options("/", headers={**headers, "Access-Control-Request-Method": "POST"}).status_code == 403
        assert http.get("/", headers={"Origin": "http://127.0.0.1:7860", **basic("me:secret")}).status_code == 200


def test_the_page_is_in_no_frame_and_asks_nobody_else() -> None:
    with client(None) as http:
        page, text = http.get("/page").headers, http.get("/").headers
        assert "frame-ancestors 'none'" in page["content-security-policy"]
        assert "default-src 'self'" in page["content-security-policy"]
        assert page["x-frame-options"] == "DENY"
        assert text["x-content-type-options"] == page["x-content-type-options"] == "nosniff"
        assert "content-security-policy" not in text  # browsers' PDF readers would obey it too


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("a\\..\\b.pdf", "a_.._b.pdf"),
        ("Moby Dick (1851).epub", "Moby Dick (1851).epub"),
        ("...", "document"),
        ("", "document"),
        ("a\x00b\n.txt", "a_b_.txt"),
        ("a/..", "document"),
        ("..\\", "_"),
        ("C:\\x.txt", "C__x.txt"),
        ('<a>"b"|c?*:\u202egpj.txt', "_a__b__c____gpj.txt"),
        ("\udcff.txt", "_.txt"),
        ("Tom & Jerry! #1 — “x”.txt", "Tom & Jerry! #1 — “x”.txt"),
        ("हिन्दी पाठ.txt", "हिन्दी पाठ.txt"),
        ("ภาษาไทยที่นี่.pdf", "ภาษาไทยที่นี่.pdf"),
        ("Cafe\u0301 u\u0308ber.txt", "Café über.txt"),
        ("x" * 500 + ".pdf", "x" * 180 + ".pdf"),
        ("y" + "书" * 100 + ".pdf", "y" + "书" * 59 + ".pdf"),
        ("書" * 100, "書" * 60),
        ("Mr. Smith goes to the sea", "Mr. Smith goes to the sea"),
        (".txt", "txt"),
    ],
)
def test_no_path_is_made_from_a_file_name(name: str, kept: str) -> None:
    assert safe_name(name) == kept


def test_files_of_which_one_is_gone_all_stay_where_they_are(tmp_path: Path) -> None:
    """The files before it had been moved to a place where nobody looks for them."""
    cached = [cache(tmp_path) / name / f"{name}.txt" for name in ("one", "two")]
    for each in cached:
        each.parent.mkdir(parents=True)
        each.write_text("words")
    cached[1].unlink()
    with pytest.raises(AppError, match="another tab, or dropped in too long ago: drop them in again"):
        move_in(tmp_path, map(str, cached))
    assert cached[0].exists()
    assert list((tmp_path / "uploads").iterdir()) == [cache(tmp_path)]
    cached[1].write_text("words")
    assert [each.read_text() for each in move_in(tmp_path, map(str, cached))] == ["words", "words"]
    assert not any(each.parent.exists() for each in cached)


def test_a_file_that_was_dropped_in_twice_is_taken_once(tmp_path: Path) -> None:
    """The second time it was gone, and the others were lost with it."""
    twice, other = (cache(tmp_path) / name / f"{name}.txt" for name in ("twice", "other"))
    for each in (twice, other):
        each.parent.mkdir(parents=True)
        each.write_text(each.stem)
    assert [each.read_text() for each in move_in(tmp_path, map(str, (twice, other, twice)))] == ["twice", "other"]


def test_files_of_which_one_cannot_be_moved_all_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files before it were lost in a folder that nobody looks into."""
    cached = [cache(tmp_path) / name / f"{name}.txt" for name in ("one", "two")]
    for each in cached:
        each.parent.mkdir(parents=True)
        each.write_text("words")
    move = shutil.move

    def fails(source: Path, target: Path) -> None:
        if source == cached[1]:
            raise OSError("not now")
        move(source, target)

    monkeypatch.setattr(shutil, "move", fails)
    with pytest.raises(OSError, match="not now"):
        move_in(tmp_path, map(str, cached))
    assert [each.read_text() for each in cached] == ["words", "words"]
    assert list((tmp_path / "uploads").iterdir()) == [cache(tmp_path)]


def test_uploads_of_the_same_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    copies = copy_in(tmp_path, [("a.txt", BytesIO(b"one")), ("../a.txt", BytesIO(b"two"))])
    assert [path.read_bytes() for path in copies] == [b"one", b"two"]
    assert all(path.parent.parent == tmp_path / "uploads" for path in copies)


def test_nobody_else_can_look_into_uploads(tmp_path: Path) -> None:
    """Gradio, which keeps dropped files there, made the folder readable for everybody."""
    (tmp_path / "uploads").mkdir(mode=0o755)
    for _ in range(2):
        copy_in(tmp_path, [("a.txt", BytesIO(b"one"))])
        assert stat.S_IMODE((tmp_path / "uploads").stat().st_mode) == 0o700
        shutil.rmtree(tmp_path / "uploads")


@pytest.mark.parametrize("login", [None, ("me", "secret")])
def test_headers_that_are_no_addresses_are_refused(login: tuple[str, str] | None) -> None:
    page = client(login)
    assert page.get("/", headers={"Host": "["}).status_code == (400 if login is None else 401)
    assert page.post("/", headers={"Origin": "http://[", "Host": "localhost"}).status_code == 403
