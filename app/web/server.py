"""The server: page, API and worker over one home."""

import asyncio
import errno
import logging
import os
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import AppError, UsageError, phrase
from app.home import ASSETS, home_folder
from app.machine.model_names import check_model, default_model, named_model
from app.quantities import bytes_of
from app.web.guard import Guard, credentials, is_loopback

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI, Request, Response

    from app.service import Service


def serve(arguments: Namespace) -> int:
    """Serve the page and the API until stopped.

    Raises:
        UsageError: others can reach the address and there is no name and password, or a size is malformed.
        AppError: there is no such model.
        sessions.StoreError: the home cannot be used, or its disk is full.
    """
    login = credentials(arguments.auth or os.environ.get("STOCKPOT_AUTH") or None, arguments.host)
    home, memory = home_folder(arguments.home), bytes_of(arguments.memory)
    _check_port(arguments.host, arguments.port)
    _keep_private(home)
    name = named_model(arguments.model, arguments.quantize, home)
    check_model(name or default_model(home), home)
    import uvicorn

    from app.jobs.uploads import uploads
    from app.service import Service
    from sessions import DiskFull, disk_free

    logging.getLogger("uvicorn.error").addFilter(_not_a_goodbye)
    service = Service(home, name, arguments.device, arguments.seed, memory)
    if service.store.database.alone:
        raise DiskFull(home, None, disk_free(home))
    tempfile.tempdir = str(uploads(home))  # files that come over HTTP are written while they arrive
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(service, login, introduces=arguments.introduce),
            host=arguments.host,
            port=arguments.port,
            log_level="info" if arguments.verbose else "warning",
            timeout_graceful_shutdown=2,
        )
    )
    shown = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    address = f"http://{shown}:{arguments.port}"
    if arguments.open:
        threading.Thread(target=_open_page, args=(server, address), daemon=True).start()
    announce(arguments.host, address, home)
    server.run()
    return 0 if server.started else 1


def announce(host: str, address: str, home: Path) -> None:
    """Print the address, and what others can see and change there."""
    said = [f"Stockpot opens at {address} and keeps everything in {home}. Ctrl-C stops it."]
    if not is_loopback(host):
        said.append(
            "Others can reach it, and what they send and see, the password too, is not encrypted: use it in networks "
            "that you trust, or behind a proxy that speaks HTTPS."
        )
    if home.is_dir() and home.stat().st_mode & 0o022:
        said.append(f"Other accounts of this machine can write in {home}, and change what it keeps: chmod go-w {home}")
    print("\n".join(said), file=sys.stderr, flush=True)


def _open_page(server: "uvicorn.Server", address: str) -> None:
    """Open the browser once the server answers, if there is a browser."""
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.1)
    webbrowser.open(address)


def _check_port(host: str, port: int) -> None:
    """Raise AppError or UsageError if the port cannot be used, before anything heavy is loaded."""
    if not 0 < port < 65536:
        raise UsageError(f"--port takes a number from 1 to 65535, not {port}.")
    if (refused := _refused_by(host, port)) is None:
        return
    if refused.errno == errno.EADDRINUSE:
        free = next(each for each in range(7861, 65536) if not _refused_by(host, each))
        raise AppError(
            f"Port {port} is in use, perhaps by another Stockpot. Stop that program, or type `make run PORT={free}` or "
            f"`stockpot serve --port {free}`."
        ) from refused
    raise AppError(
        f"Nothing can listen on {host}, port {port} ({refused.strerror}): choose others with --host and --port."
    ) from refused


def _refused_by(host: str, port: int) -> OSError | None:
    """Return why nothing can listen on a port; None if something can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def _not_a_goodbye(record: logging.LogRecord) -> bool:
    """Return False for tracebacks of tabs that were connected when the server stopped, so that they are not logged."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "graceful shutdown exceeded" not in record.getMessage()


def _keep_private(home: Path) -> None:
    """Keep Gradio's temporary files in the home, and turn its telemetry off. Call it before Gradio is imported."""
    from app.jobs.uploads import cache

    os.environ["GRADIO_TEMP_DIR"] = str(cache(home))
    os.environ["GRADIO_EXAMPLES_CACHE"] = str(
        cache(home)
    )  # Gradio serves it; the default is a folder where the program was started
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


async def _nowhere(request: "Request", error: Exception) -> "Response":
    """Return the answer for an unknown path: a page for browsers, JSON for others."""
    from fastapi.responses import HTMLResponse, JSONResponse
    from starlette.exceptions import HTTPException

    from app.web.views.document_page import no_page

    assert isinstance(error, HTTPException)
    if error.detail != "Not Found":  # Gradio has answered its own page
        return JSONResponse({"detail": error.detail}, 404)
    sentence = f"There is no {request.url.path}: the page is at /, and /api/openapi.json describes the API."
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(no_page(sentence), 404)
    return JSONResponse({"error": sentence}, 404)


def make_app(service: "Service", login: tuple[str, str] | None, *, introduces: bool = False) -> "FastAPI":
    """Return the whole application. Its worker lives as long as it does.

    Args:
        service: the home in use.
        login: name and password that everybody must give; None for none.
        introduces: whether each context is introduced when it has been read.
    """
    from app.jobs.uploads import MOST_BYTES, cache, sweep, uploads

    uploads(service.home)  # before Gradio makes it readable for everybody
    import gradio as gr
    from fastapi import FastAPI, Request
    from fastapi.responses import HTMLResponse, PlainTextResponse
    from starlette.routing import Mount

    from app.api import openai_chat
    from app.api.error_handlers import MOST_BODY, add_error_handlers, status_of
    from app.api.routes import UNKEPT, router
    from app.jobs.worker import Worker
    from app.language import language_of, speaking
    from app.notes import notes_of, quoted_pdfs
    from app.reading.pages import page_of
    from app.web.dropped_files import DroppedFiles
    from app.web.gradio_routes import GradioRoutes
    from app.web.page import build_page
    from app.web.page_language import PageLanguage
    from app.web.static_texts import translate
    from app.web.theme import make_head, make_theme
    from app.web.views.document_page import both_pages, document_page, no_page, page_beside
    from app.web.views.markup import told_html
    from app.web.views.notes_page import notes_beside, notes_page
    from sessions import StoreError

    worker = Worker(service, introduces=introduces)
    if not any(other.alive for other in service.store.workers.all()):  # the files may belong to another server
        sweep(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker.start()
        try:
            async with agents:
                yield
        finally:
            worker.stop()
            service.close()

    app = FastAPI(title="Stockpot", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json", lifespan=lifespan)

    @app.get("/healthz")
    def health() -> dict[str, str]:
        return {"status": "ok" if worker.is_alive() else "no worker"}

    @app.get("/version", include_in_schema=False)
    async def version() -> PlainTextResponse:
        """Return what changes soon after the store was written to; `page.js` asks for it."""
        return PlainTextResponse(worker.version, headers=UNKEPT)

    @app.get("/documents/{id}/pages/{number}", include_in_schema=False)
    def page_of_document(request: Request, id: str, number: int, start: int = 0, end: int = 0) -> HTMLResponse:
        """Show a page of a document. start, end: characters of its text to mark."""
        with speaking(language_of(request.headers.get("accept-language", ""))):
            try:
                return HTMLResponse(document_page(page_of(service, id, number), start, end), headers=UNKEPT)
            except (AppError, StoreError) as error:
                return HTMLResponse(no_page(phrase(error)), status_of(error), headers=UNKEPT)

    @app.get("/documents/{id}/pages/{number}/beside", include_in_schema=False)
    def page_beside_answer(request: Request, id: str, number: int, start: int = 0, end: int = 0) -> HTMLResponse:
        """Return the part of the page that shows a page of a document. start, end: characters of its text to mark."""
        with speaking(language_of(request.headers.get("accept-language", ""))):
            try:
                return HTMLResponse(page_beside(page_of(service, id, number), start, end), headers=UNKEPT)
            except (AppError, StoreError) as error:
                sentence = f'<p class="note failed" role="alert">{told_html(phrase(error))}</p>'
                return HTMLResponse(sentence, status_of(error), headers=UNKEPT)

    @app.get("/side-by-side/{id}/{number}/{other}/{page}", include_in_schema=False)
    def pages_side_by_side(
        request: Request,
        id: str,
        number: int,
        other: str,
        page: int,
        start: int = 0,
        end: int = 0,
        other_start: int = 0,
        other_end: int = 0,
    ) -> HTMLResponse:
        """Show pages of two documents side by side. start, end and the others: characters to mark."""
        with speaking(language_of(request.headers.get("accept-language", ""))):
            try:
                both = page_of(service, id, number), page_of(service, other, page)
                return HTMLResponse(both_pages(*both, (start, end), (other_start, other_end)), headers=UNKEPT)
            except (AppError, StoreError) as error:
                return HTMLResponse(no_page(phrase(error)), status_of(error), headers=UNKEPT)

    @app.get("/sessions/{id}/notes", include_in_schema=False)
    @app.get("/sessions/{id}/notes/beside", include_in_schema=False)
    def notes_of_session(request: Request, id: str) -> HTMLResponse:
        """Show the notes of a session, as a page or as the part of one."""
        with speaking(language_of(request.headers.get("accept-language", ""))):
            try:
                shown = notes_beside if request.url.path.endswith("/beside") else notes_page
                title, notes = service.store.sessions.get(id).title, notes_of(service, id)
                return HTMLResponse(shown(id, title, notes, quoted_pdfs(service, id)), headers=UNKEPT)
            except (AppError, StoreError) as error:
                return HTMLResponse(no_page(phrase(error)), status_of(error), headers=UNKEPT)

    app.include_router(router(service, worker), max_body_size=MOST_BODY)
    app.include_router(openai_chat.router(service, worker), max_body_size=MOST_BODY)
    agents: AbstractAsyncContextManager[None] = nullcontext()
    if find_spec("mcp"):  # an extra
        from app.api.mcp_route import add_mcp

        agents = add_mcp(app, service, worker)
    add_error_handlers(app)
    page = build_page(service, worker)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=make_theme(),
        css_paths=[ASSETS / "style.css"],
        head=make_head(ASSETS),
        i18n=translate(page),
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        show_error=True,
        max_file_size=MOST_BYTES,
        allowed_paths=[],
        enable_monitoring=False,
    )
    mounts = (route.app for route in app.routes if isinstance(route, Mount))
    (gradios,) = (each for each in mounts if isinstance(each, FastAPI))  # it takes all other paths
    gradios.add_exception_handler(404, _nowhere)
    app.add_middleware(DroppedFiles, folder=cache(service.home))
    app.add_middleware(PageLanguage)
    app.add_middleware(GradioRoutes, most_body=MOST_BODY)
    app.add_middleware(Guard, login=login)
    return app
