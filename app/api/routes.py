"""The HTTP API, `/api/...`: the same functions as the page, for programs on this machine.

Things are named by their whole ids. Errors are `{"error": sentence}` with status 400 (impossible or malformed), 404
(not there), 409 (in use, or done already), 500 (a fault of the program, the machine or the disk) or 507 (no room on the
disk). A body that is too large gets 413 in plain text if its headers say so.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Form, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from app import deletion, listing
from app.api.bodies import REFUSALS, Kept, NewBranch, NewContext, NewRecap, NewSession, NewSweep, NewTitle, NewTurn
from app.api.error_handlers import MOST_FILES
from app.api.openai_chat import ANY_METHOD
from app.asking.answer_options import AnswerOptions
from app.asking.recap import Part, known_recap
from app.asking.table_text import written
from app.asking.turns import branch, new_session, with_documents
from app.errors import NotFound as NoSuchThing
from app.errors import UsageError
from app.jobs.linked_folders import linked, unlink
from app.jobs.sweeps import SWEEP, comparison_request, list_request, quiz_request, result_of, table_request
from app.jobs.uploads import copy_in
from app.jobs.worker import Worker
from app.machine.local_models import local_models
from app.machine.model_names import canonical_model
from app.notes import exported, highlighted_pdf
from app.reading.documents import IngestOptions
from app.reading.methods import method_for, methods_table
from app.reading.pages import page_of, pdf_of, picture_of_page
from app.reading.preparing import base_for
from app.search import search_everything
from app.service import Service
from sessions import (
    ContextRow,
    DocumentRow,
    JobRow,
    SessionRow,
    TurnRow,
)

MOST_DRAWN = 2
"""Pages that are drawn at a time, each in a process of its own that may take half of the memory."""
UNKEPT = {"Cache-Control": "no-store"}
"""Headers of responses that show a document, so that no browser keeps a copy."""
MEDIA = {
    "md": "text/markdown; charset=utf-8",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "csv": "text/csv; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "json": "application/json",
}


def _of_type(*media: str) -> dict[str, Any]:
    """Return the arguments of a route that answers with a file of one of these types instead of JSON."""
    return {"response_class": Response, "responses": {200: {"content": {each: {} for each in media}}}}


def router(service: Service, worker: Worker) -> APIRouter:
    """Return all routes over one home and its worker."""
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
        return store.documents.all()

    @api.get("/contexts")
    def contexts() -> list[dict[str, Any]]:
        return listing.list_rows(service, "contexts")

    @api.get("/sessions")
    def sessions() -> list[SessionRow]:
        return store.sessions.all()

    def add_routes(kind: str, find: Callable[[str], listing.Row], row: type[listing.Titled]) -> None:
        """Add the routes of one kind of thing. find: returns the row with an id."""

        @api.get(f"/{kind}s/{{id}}")
        def show(id: str) -> dict[str, Any]:
            return listing.details(service, kind, find(id))

        @api.delete(f"/{kind}s/{{id}}")
        def delete(id: str) -> dict[str, str]:
            deletion.delete(service, kind, find(id))
            return {"deleted": id}

        @api.patch(f"/{kind}s/{{id}}", response_model=row)
        def rename(id: str, given: NewTitle) -> listing.Titled:
            return listing.rename(service, kind, find(id), given.title)

    add_routes("document", store.documents.get, DocumentRow)
    add_routes("context", store.contexts.get, ContextRow)
    add_routes("session", store.sessions.get, SessionRow)

    @api.get("/documents/{id}/file", **_of_type("application/pdf"))
    def original(id: str) -> Response:
        path = pdf_of(service, id)
        if path is None:
            return JSONResponse({"error": "There is no PDF kept for this document."}, 404)
        return FileResponse(path, headers=UNKEPT, media_type="application/pdf", content_disposition_type="inline")

    @api.get("/documents/{id}/pages/{number}", **_of_type("text/plain"))
    def page_text(id: str, number: int) -> Response:
        """Return the text of a page. number: as the file counts, and as in sources."""
        page = page_of(service, id, number).page
        return PlainTextResponse(f"{page.label}\n\n{page.text}\n")

    drawing = CapacityLimiter(MOST_DRAWN)  # threads of their own, so that everything else is still answered

    @api.get("/documents/{id}/pages/{number}/picture", **_of_type("image/png"))
    async def page_picture(id: str, number: int, start: int = 0, end: int = 0) -> Response:
        """Return a page of a PDF as printed, as a PNG. start, end: characters to mark, as in sources."""

        def draw() -> bytes:
            return picture_of_page(page_of(service, id, number), start, end)

        return Response(await run_sync(draw, limiter=drawing), headers=UNKEPT, media_type="image/png")

    @api.post("/contexts", status_code=202, max_body_size=MOST_FILES)
    def read(given: Annotated[NewContext, Form()]) -> JobRow:
        """Turn files into documents, and read these and kept documents into a context: returns the job to follow.

        When it is done, its progress names the context and, as "reading", the job that reads it, if there is anything
        to read. The context's details name that job too; cancel it there. When it has failed, its progress names the
        documents that were made of the files, which can be read in another way.
        """
        import engine

        if not given.files and not given.documents:
            raise UsageError("Send files, or as documents the ids of some that are kept: there is nothing to read.")
        kept = [store.documents.get(id).id for id in given.documents]
        settings = {**given.settings, **({} if given.budget is None else {"budget": given.budget})}
        sent = [(each.filename or "document", each.file) for each in given.files]
        options = IngestOptions(given.title, given.password, given.ocr)
        if given.add_to is not None:
            if settings or given.method or given.model:
                raise UsageError("What is added to a context is read with its model, method and settings: give none.")
            queue = partial(worker.add, context_id=base_for(service, given.add_to, [] if sent else kept).id)
        else:
            method = given.method or engine.DEFAULT_METHOD
            model = canonical_model(given.model or service.models.default, service.home)
            method_for(model, method, settings)
            queue = partial(worker.ingest, method=method, settings=settings, model=model)
        copies = copy_in(service.home, sent) if sent else []
        return queue(copies, options=options, documents=kept)

    @api.get("/jobs/{id}")
    def job(id: str) -> JobRow:
        return store.jobs.get(id)

    @api.post("/jobs/{id}/cancel")
    def cancel(id: str) -> JobRow:
        return worker.cancel(id)

    @api.post("/contexts/{id}/resume", status_code=202)
    def resume(id: str) -> JobRow:
        """Resume a reading that was stopped or failed: returns the job to follow."""
        return worker.read(store.contexts.get(id).id)

    @api.post("/contexts/{id}/introduction", status_code=202)
    def introduce(id: str) -> dict[str, Any]:
        """Have a summary and questions made in the background, unless they are: the context's details have them.

        Returns the job, or null where there is nothing to do: it is made, not read yet, or its model cannot do it.
        """
        return {"job": worker.introduce(id)}

    @api.post("/contexts/{id}/recap", status_code=202)
    def begin_recap(id: str, given: NewRecap) -> dict[str, Any]:
        """Have the chapters summed up in the background: returns the job, or null where the model cannot do it."""
        return {"job": worker.recap(id, given.up_to)}

    @api.get("/contexts/{id}/recap")
    def show_recap(id: str, up_to: str = "") -> list[Part]:
        """Return the chapters up to a page, with the sentences that are known; null for those that are not yet."""
        return known_recap(service, store.contexts.get(id), up_to)

    @api.post("/sessions", status_code=201)
    def begin_session(given: NewSession) -> SessionRow:
        return new_session(service, given.context, given.title)

    @api.post("/sessions/{id}/branch", status_code=201)
    def begin_branch(id: str, given: NewBranch) -> SessionRow:
        """Begin a session with the first turns of this one, to ask another question from there, or to ask again.

        This session stays as it is. Turns that were stopped or failed count, but are not copied.
        """
        return branch(service, id, given.turns, given.context)

    @api.post("/sessions/{id}/turns", status_code=202)
    def ask(id: str, given: NewTurn) -> TurnRow:
        """Queue a question: returns the turn, to be followed at /api/turns/ID."""
        named = given.model_dump(exclude={"question", "pages", "documents", "up_to"})
        options = AnswerOptions(**named, reason="max_reasoning" in given.model_fields_set or None)
        context = store.contexts.get(store.sessions.get(id).context_id)
        pages = with_documents(service, context, given.pages, given.documents, given.up_to)
        return worker.ask(lambda: store.sessions.get(id).id, given.question, options, pages)

    @api.get("/sessions/{id}/turns")
    def turns(id: str) -> list[TurnRow]:
        return store.turns.all(id)

    @api.get("/turns/{id}")
    def turn(id: str) -> TurnRow:
        return store.turns.get(id)

    @api.patch("/turns/{id}")
    def keep(id: str, given: Kept) -> TurnRow:
        return store.turns.keep(id, given.keep, given.drop)

    @api.post("/turns/{id}/cancel")
    def stop_answer(id: str) -> TurnRow:
        """Stop an answer. The answer so far is kept, and the conversation goes on as if it had not been asked."""
        worker.stop_answer(id)
        return store.turns.get(id)

    @api.get("/folders")
    def folders() -> list[dict[str, Any]]:
        """Return the linked folders, with the state of each file: read, reading, waiting, refused or gone.

        A folder is linked by a command, `stockpot link`, as no path that comes over HTTP is read.
        """
        return linked(service)

    @api.delete("/folders")
    def unlink_folder(folder: str) -> dict[str, str]:
        """Unlink a folder. Its documents stay."""
        return {"unlinked": unlink(service, folder)}

    @api.post("/sweeps", status_code=202)
    def begin_sweep(given: NewSweep) -> JobRow:
        """Search a whole context for all that a question asks for, ask each of several documents, compare two, or test
        what is known of a context.

        Returns the job, to be followed and cancelled at /api/jobs/ID. One that was stopped goes on when it is asked
        for again, behind the findings that it has.
        """
        if sum(map(bool, (given.question, given.columns, given.compare, given.cards))) != 1:
            raise UsageError(
                "Send context and question for a list, documents and columns for a table, two documents and compare, "
                "or context and cards for a self-test."
            )
        if given.cards:
            return worker.sweep(*quiz_request(service, given.context, given.cards))
        if given.compare:
            return worker.sweep(*comparison_request(service, given.documents))
        if given.question:
            return worker.sweep(*list_request(service, store.contexts.get(given.context).id, given.question))
        return worker.sweep(*table_request(service, given.documents, given.columns))

    @api.get("/sweeps/{id}", **_of_type("application/json", "text/csv", "text/markdown", MEDIA["tsv"]))
    def swept(id: str, format: Literal["json", "csv", "md", "tsv"] = "json") -> Response:
        """Return the findings of a sweep so far, joined."""
        job = store.jobs.get(id)
        told = result_of(service, job) if job.kind == SWEEP else None
        if told is None:
            raise NoSuchThing(f"{id} has found nothing yet: follow it at /api/jobs/{id}.")
        if format == "json":
            return JSONResponse(told)
        headers = {"Content-Disposition": f'attachment; filename="stockpot-{id}.{format}"'}
        return Response(written(told, format), media_type=MEDIA[format], headers=headers)

    @api.get("/search")
    def search(query: str, limit: int = 20, document: str | None = None) -> list[dict[str, Any]]:
        """Return contexts with a matching title, sessions with one, matching turns, and passages of documents.

        A passage has its document, page, place and characters; `pages` names it for a question to `context`.
        document: id of the only document to search.
        """
        only = None if document is None else store.documents.get(document).id
        return [each.to_json() for each in search_everything(service, query, limit, only)]

    @api.get("/sessions/{id}/export", **_of_type("text/markdown", MEDIA["docx"], MEDIA["json"]))
    def export(id: str, format: Literal["md", "docx", "json"] = "md", notes: bool = False) -> Response:
        """Return a session as a file. notes: only the parts that are kept as notes."""
        name = f"stockpot-{store.sessions.get(id).id}{'-notes' * notes}.{format}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(exported(service, id, format, notes), media_type=MEDIA[format], headers=headers)

    @api.get("/sessions/{id}/highlights/{document}", **_of_type("application/pdf"))
    def highlights(id: str, document: str) -> Response:
        """Return a copy of a PDF with the passages highlighted that the notes of a session quote."""
        copy = highlighted_pdf(service, store.sessions.get(id).id, store.documents.get(document).id)
        headers = {**UNKEPT, "Content-Disposition": f'attachment; filename="stockpot-{document}.pdf"'}
        return Response(copy, media_type="application/pdf", headers=headers)

    @api.api_route("", methods=ANY_METHOD, include_in_schema=False)
    @api.api_route("/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    def nothing(request: Request) -> None:
        asked = f"{request.method} {request.url.path}"
        raise NoSuchThing(f"There is no {asked}: /api/openapi.json describes what there is.")

    return api
