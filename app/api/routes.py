"""The HTTP API, `/api/...`: the same functions as the page, for programs on this machine.

Things are named by their whole ids. Errors are `{"error": sentence}` with status 400 (cannot be done, or not asked for
properly), 404 (not there), 409 (in use, or done already), 500 (a fault of the program, of the machine, or of what is on
the disk) or 507 (no room on the disk). A body that says beforehand that it is too large gets 413 in plain text.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Json
from starlette.exceptions import HTTPException

from app import listing
from app.api import openai_turns
from app.api.openai_chat import ANY_METHOD
from app.asking.answer_options import AnswerOptions
from app.asking.turns import branch, new_session
from app.errors import AppError, UsageError, phrase
from app.errors import NotFound as NoSuchThing
from app.formatting import byte_size
from app.home import canonical_model
from app.jobs.uploads import copy_in
from app.jobs.worker import Worker
from app.machine.local_models import local_models
from app.reading.documents import IngestOptions
from app.reading.methods import method_for, methods_table
from app.reading.pages import page_of, pdf_of, picture_of_page
from app.reading.preparing import base_for
from app.service import Service
from app.web.dropped_files import full_or
from app.web.guard import BEFORE_ALL
from ingest import IngestError
from sessions import (
    AlreadyRead,
    ContextRow,
    DiskFull,
    DocumentRow,
    InUse,
    JobRow,
    NotFound,
    SessionRow,
    StoreCorrupt,
    StoreError,
    StoreFailing,
    TurnRow,
)

MOST_BODY, MOST_FILES = 16 << 20, 16 << 30
"""Bytes of a request without files, and of one with files."""
MOST_DRAWN = 2
"""Pages that are drawn at a time, each in a process of its own that may take half of the memory."""
UNKEPT = {"Cache-Control": "no-store"}
"""Of what shows a document: when that is deleted here, no browser has a copy."""
MEDIA = {"md": "text/markdown; charset=utf-8", "json": "application/json"}


class NewContext(BaseModel):
    """The form that files come with, or the ids of documents that are kept, which are read before them.

    add_to: id of a context behind whose end they are to be read, in a context of its own, with its model, method and
    settings, which are then not given; settings: of the method, as a JSON object, such as {"preset": "wide", "store":
    "int8"}; ocr: whether pages that are pictures are recognised, by default where that is needed and installed.
    """

    model_config = ConfigDict(extra="forbid")
    files: list[UploadFile] = []
    documents: list[str] = []
    add_to: str | None = None
    method: str | None = None
    budget: str | None = None
    settings: Json[dict[str, Any]] = {}
    model: str | None = None
    title: str | None = None
    password: str | None = None
    ocr: bool | None = None


class Given(BaseModel):
    """A JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class NewTitle(Given):
    """Another title; an empty one calls a context after its documents again."""

    title: str


class NewSession(Given):
    """A session over a context; without a title it is called after its first question."""

    context: str
    title: str | None = None


class NewBranch(Given):
    """turns: how many of the session's first turns to begin with; context: another that began with its documents."""

    turns: int
    context: str | None = None


class NewTurn(Given):
    """A question, how to answer it, and the pages to be turned to before.

    temperature, top_p, top_k, min_p, repetition_penalty: null for the model's own.
    max_reasoning: tokens that a model which reasons first may take for it; 0: it answers at once.
    pages: such as "12-14, iii, 15 of the file", the first as they are printed; `stockpot ask --help` says more.
    """

    question: str
    max_tokens: int = AnswerOptions.max_tokens
    temperature: float | None = AnswerOptions.temperature
    top_p: float | None = AnswerOptions.top_p
    top_k: int | None = AnswerOptions.top_k
    min_p: float | None = AnswerOptions.min_p
    repetition_penalty: float | None = AnswerOptions.repetition_penalty
    max_reasoning: int = AnswerOptions.max_reasoning
    seed: int | None = AnswerOptions.seed
    stop: list[str] = []
    read_again: bool = AnswerOptions.read_again
    pages: str = ""


class Refused(BaseModel):
    """Why something was not done, in a sentence, with what to do next where that is known."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "It cannot be done, or was not asked for as is described here."},
    404: {"model": Refused, "description": "It is not there."},
    409: {"model": Refused, "description": "It is in use, or done already."},
    500: {"model": Refused, "description": "A fault of the program, of the machine, or of what is on the disk."},
    507: {"model": Refused, "description": "There is no room on the disk."},
    "default": BEFORE_ALL,
}
"""What every route may answer instead."""


def _of_type(*media: str) -> dict[str, Any]:
    """A route that answers with a file of one of these types, and not with JSON."""
    return {"response_class": Response, "responses": {200: {"content": {each: {} for each in media}}}}


def router(service: Service, worker: Worker) -> APIRouter:
    """All routes, over one home and its worker."""
    api = APIRouter(prefix="/api", responses=REFUSALS)
    store = service.store

    @api.get("/methods")
    def methods() -> list[dict[str, Any]]:
        return methods_table(service.models.default)

    @api.get("/models")
    def models() -> list[dict[str, Any]]:
        return [each.to_json() for each in local_models(service.home)]

    @api.get("/documents")
    def documents() -> list[DocumentRow]:
        return store.documents()

    @api.get("/contexts")
    def contexts() -> list[dict[str, Any]]:
        return listing.list_rows(service, "contexts")

    @api.get("/sessions")
    def sessions() -> list[SessionRow]:
        return store.sessions()

    def add_routes(kind: str, find: Callable[[str], listing.Row], row: type[listing.Titled]) -> None:
        """What can be done with one thing. find: its row, by its id and nothing else."""

        @api.get(f"/{kind}s/{{id}}")
        def show(id: str) -> dict[str, Any]:
            return listing.details(service, kind, find(id))

        @api.delete(f"/{kind}s/{{id}}")
        def delete(id: str) -> dict[str, str]:
            listing.delete(service, kind, find(id))
            return {"deleted": id}

        @api.patch(f"/{kind}s/{{id}}", response_model=row)
        def rename(id: str, given: NewTitle) -> listing.Titled:
            return listing.rename(service, kind, find(id), given.title)

    add_routes("document", store.document, DocumentRow)
    add_routes("context", store.context, ContextRow)
    add_routes("session", store.session, SessionRow)

    @api.get("/documents/{id}/file", **_of_type("application/pdf"))
    def original(id: str) -> Response:
        path = pdf_of(service, id)
        if path is None:
            return JSONResponse({"error": "There is no PDF kept for this document."}, 404)
        return FileResponse(path, headers=UNKEPT, media_type="application/pdf", content_disposition_type="inline")

    @api.get("/documents/{id}/pages/{number}", **_of_type("text/plain"))
    def page_text(id: str, number: int) -> Response:
        """A page as it was read. number: as the file counts, and as a source has it."""
        page = page_of(service, id, number).page
        return PlainTextResponse(f"{page.label}\n\n{page.text}\n")

    drawing = CapacityLimiter(MOST_DRAWN)  # apart from the threads that answer everything else

    @api.get("/documents/{id}/pages/{number}/picture", **_of_type("image/png"))
    async def page_picture(id: str, number: int, start: int = 0, end: int = 0) -> Response:
        """A page of a PDF as it is printed, a PNG. start, end: as a source has them; what they say is marked."""

        def draw() -> bytes:
            return picture_of_page(page_of(service, id, number), start, end)

        return Response(await run_sync(draw, limiter=drawing), headers=UNKEPT, media_type="image/png")

    @api.post("/contexts", status_code=202, max_body_size=MOST_FILES)
    def read(given: Annotated[NewContext, Form()]) -> JobRow:
        """Files become documents, and these and others that are kept a context: returns the job to follow.

        When it is done, its progress names the context and, as "reading", the job that reads it, if anything is to be
        read. That job is also in the context's details while it goes on: cancel it there. When it has failed, its
        progress names the documents that were made of the files, to be read in another way.
        """
        import engine

        if not given.files and not given.documents:
            raise UsageError("Send files, or as documents the ids of some that are kept: there is nothing to read.")
        kept = [store.document(id).id for id in given.documents]
        settings = {**given.settings, **({} if given.budget is None else {"budget": given.budget})}
        sent = [(each.filename or "document", each.file) for each in given.files]
        options = IngestOptions(given.title, given.password, given.ocr)
        if given.add_to is not None:
            if settings or given.method or given.model:
                raise UsageError("What is added to a context is read with its model, method and settings: give none.")
            queue = partial(worker.add, context_id=base_for(service, given.add_to, [] if sent else kept).id)
        else:
            method = given.method or engine.DEFAULT_METHOD
            model = canonical_model(given.model or service.models.default)
            method_for(model, method, settings)
            queue = partial(worker.ingest, method=method, settings=settings, model=model)
        copies = copy_in(service.home, sent) if sent else []
        return queue(copies, options=options, documents=kept)

    @api.get("/jobs/{id}")
    def job(id: str) -> JobRow:
        return store.job(id)

    @api.post("/jobs/{id}/cancel")
    def cancel(id: str) -> JobRow:
        return worker.cancel(id)

    @api.post("/contexts/{id}/resume", status_code=202)
    def resume(id: str) -> JobRow:
        """Go on with a reading that was stopped or failed: returns the job to follow."""
        return worker.read(store.context(id).id)

    @api.post("/sessions", status_code=201)
    def begin_session(given: NewSession) -> SessionRow:
        return new_session(service, given.context, given.title)

    @api.post("/sessions/{id}/branch", status_code=201)
    def begin_branch(id: str, given: NewBranch) -> SessionRow:
        """Begin a session with the first turns of this one, to ask another question from there, or one again.

        This one stays as it is. Turns that were stopped or failed count, but are not copied.
        """
        return branch(service, id, given.turns, given.context)

    @api.post("/sessions/{id}/turns", status_code=202)
    def ask(id: str, given: NewTurn) -> TurnRow:
        """Queue a question: returns the turn, to be followed at /api/turns/ID."""
        options = AnswerOptions(**given.model_dump(exclude={"question", "pages"}))
        return worker.ask(lambda: store.session(id).id, given.question, options, given.pages)

    @api.get("/sessions/{id}/turns")
    def turns(id: str) -> list[TurnRow]:
        return store.turns(id)

    @api.get("/turns/{id}")
    def turn(id: str) -> TurnRow:
        return store.turn(id)

    @api.post("/turns/{id}/cancel")
    def stop_answer(id: str) -> TurnRow:
        """Stop an answer: what there is of it is kept, and the conversation goes on as if it had not been asked."""
        worker.stop_answer(id)
        return store.turn(id)

    @api.get("/search")
    def search(query: str, limit: int = 20) -> list[dict[str, Any]]:
        """Turns that say it; before them, without a turn, the contexts that are called so, and the sessions that are
        and do not say it.
        """
        return [each.to_json() for each in listing.search(service, query, limit)]

    @api.get("/sessions/{id}/export", **_of_type("text/markdown", "application/json"))
    def export(id: str, format: Literal["md", "json"] = "md") -> Response:
        headers = {"Content-Disposition": f'attachment; filename="stockpot-{store.session(id).id}.{format}"'}
        return Response(store.export_session(id, format), media_type=MEDIA[format], headers=headers)

    @api.api_route("", methods=ANY_METHOD, include_in_schema=False)
    @api.api_route("/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    def nothing(request: Request) -> None:
        asked = f"{request.method} {request.url.path}"
        raise NoSuchThing(f"There is no {asked}: /api/openapi.json describes what there is.")

    return api


def status_of(error: Exception) -> int:
    """The status that says as much of an error as a status can."""
    from engine import OutOfMemory

    statuses: dict[int, tuple[type[Exception], ...]] = {
        404: (NotFound, NoSuchThing),
        409: (InUse, AlreadyRead),
        507: (DiskFull,),
        500: (StoreCorrupt, StoreFailing, OSError, MemoryError, OutOfMemory),
    }
    return next((status for status, kinds in statuses.items() if isinstance(error, kinds)), 400)


def add_error_handlers(app: FastAPI) -> None:
    """Errors become sentences with a fitting status."""
    from engine import EngineError

    def say(request: Request, sentence: str, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
        theirs = f"{request.url.path}/".startswith(f"{openai_turns.PREFIX}/")
        return JSONResponse(
            openai_turns.error_body(sentence, status) if theirs else {"error": sentence}, status, headers
        )

    def answer(request: Request, error: Exception) -> JSONResponse:
        return say(request, phrase(error), status_of(error))

    def malformed(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        kind = request.headers.get("content-type", "")
        if isinstance(error.body, bytes) and error.body:  # not taken for JSON
            return say(request, f"Send the JSON as Content-Type: application/json, not {kind!r}.", 400)
        wrong = ("; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())) or "nothing came"
        return say(request, f"The request is not as /api/openapi.json describes it: {wrong}.", 400)

    def unreadable(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, OSError):  # files are written as they come
            return answer(request, full_or(error.__cause__, Path(tempfile.gettempdir())))
        if error.status_code == 413:
            most = MOST_FILES if request.url.path == "/api/contexts" else MOST_BODY
            return say(request, f"The request is larger than {byte_size(most)}: send less at once.", 413)
        wrong = f"The request cannot be read ({error.detail}): send JSON in UTF-8, or a form with files."
        return say(request, wrong, error.status_code, error.headers)

    def unexpected(request: Request, error: Exception) -> JSONResponse:
        return say(request, phrase(error), 500)

    for kind in (AppError, StoreError, IngestError, EngineError, OSError, MemoryError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, unreadable)
    app.add_exception_handler(Exception, unexpected)
