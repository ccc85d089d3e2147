"""OpenAI's files API, `/v1/files`: a file that is uploaded is read, and can then be asked about.

It is read as the page reads a file without further choices. OpenAI's other two APIs take what was read as their model,
or the file's id in a message.
"""

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, UploadFile
from fastapi.responses import FileResponse, PlainTextResponse, Response
from pydantic import BaseModel

from app import deletion
from app.api.error_handlers import MOST_FILES
from app.api.sent_files import BYTES, NAME, PURPOSE, described, job_of, read_of, require_not_failed, sent_files
from app.errors import UsageError
from app.formatting import either
from app.jobs.uploads import copy_in, discard
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions
from app.reading.methods import method_for
from app.reading.pages import pdf_of
from app.service import Service
from sessions import UNDER_WAY, InUse, JobRow

UNSTORED = {"Cache-Control": "no-store"}
PURPOSES = ("user_data", "assistants")
"""Purposes that a file can be sent for."""
MOST_LISTED = 10_000
STOP_SEC, POLL_SEC = 30.0, 0.1
"""Time that a deletion waits for a reading to stop, and between two looks."""


class NewFile(BaseModel):
    """A form with a file. Other fields are ignored. purpose: one of PURPOSES; it is kept and given back."""

    file: UploadFile
    purpose: str


def add_files(api: APIRouter, service: Service, worker: Worker) -> None:
    """Add the routes of files."""

    @api.post("/files", max_body_size=MOST_FILES)
    def upload(given: Annotated[NewFile, Form()]) -> dict[str, Any]:
        """Take a file and begin to read it, with the server's model and the usual method."""
        import engine

        if given.purpose not in PURPOSES:
            raise UsageError(f"A file can be sent for the purpose {either(PURPOSES)}, not {given.purpose!r}.")
        method, model = engine.DEFAULT_METHOD, service.models.default
        method_for(model, method, {})
        copies = copy_in(service.home, [(given.file.filename or "document", given.file.file)])
        facts = {PURPOSE: given.purpose, NAME: copies[0].name, BYTES: copies[0].stat().st_size}
        return described(service, worker.ingest(copies, method, {}, IngestOptions(), model, facts=facts))

    @api.get("/files")
    def files(
        purpose: str | None = None,
        limit: int = MOST_LISTED,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
    ) -> dict[str, Any]:
        """List the files. after: id of the last one that is known already."""
        if not 1 <= limit <= MOST_LISTED:
            raise UsageError(f"The limit is a number from 1 to {MOST_LISTED:,}, not {limit}.")
        jobs = sent_files(service) if order == "asc" else sent_files(service)[::-1]
        if after is not None:
            ids = [job.id for job in jobs]
            jobs = jobs[ids.index(job_of(service, after).id) + 1 :]
        jobs = [job for job in jobs if purpose in (None, job.payload[PURPOSE])]
        data = [described(service, job) for job in jobs[:limit]]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return {"object": "list", "data": data, **ends, "has_more": len(jobs) > limit}

    @api.get("/files/{id}")
    def file(id: str) -> dict[str, Any]:
        """Describe a file."""
        return described(service, job_of(service, id))

    @api.get("/files/{id}/content", response_class=Response)
    def content(id: str) -> Response:
        """Return the file if it is a PDF, and the text that was read of any other."""
        job = job_of(service, id)
        context = read_of(service, job)
        made = context.document_ids if context is not None else job.progress.get("documents", [])
        if not made:
            require_not_failed(job, context)
            raise InUse(f"The text of {job.payload[NAME]} is not taken out yet: try again later.")
        path = pdf_of(service, made[0])
        if path is not None:
            return FileResponse(path, headers=UNSTORED, media_type="application/pdf", filename=job.payload[NAME])
        return PlainTextResponse(service.document_cache.document(made[0]).text, headers=UNSTORED)

    @api.delete("/files/{id}")
    def delete(id: str) -> dict[str, Any]:
        """Delete a file, with its reading and chats unless they were there before or belong to another file too.

        A reading that is under way is stopped first.
        """
        _delete(service, worker, job_of(service, id))
        return {"id": id, "object": "file", "deleted": True}


def _delete(service: Service, worker: Worker, job: JobRow) -> None:
    store = service.store
    worker.cancel(job.id)
    _wait_while(lambda: store.jobs.get(job.id).status in UNDER_WAY)
    job = store.jobs.get(job.id)
    context = read_of(service, job)
    if context is None:
        discard(service, job)
        return
    others = [each.id for each in sent_files(service) if each.progress.get("context") == context.id]
    if others != [job.id] or context.created_at < job.created_at:
        store.jobs.update(job.id, progress={"dismissed": True})
        return
    for work in store.jobs.all(subject_id=context.id):
        worker.cancel(work.id)
    _wait_while(lambda: store.jobs.work_on(context.id) is not None)
    documents = deletion.own_documents(service, context)
    deletion.delete(service, "context", context)
    if documents:
        deletion.delete(service, "document", *documents)


def _wait_while(busy: Callable[[], bool]) -> None:
    """Wait until a job has stopped, or the time is over; what is still in use is then refused by the store."""
    until = time.monotonic() + STOP_SEC
    while busy() and time.monotonic() < until:
        time.sleep(POLL_SEC)
