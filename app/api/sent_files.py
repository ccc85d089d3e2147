"""Files as OpenAI's files API has them: uploads with a purpose, and what was read of them.

A file has the id of the job that took it in. It is there as long as what was read of it, or while its upload goes on or
has failed lately.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import sessions
from app.errors import AppError, NotFound, UsageError
from app.jobs.uploads import INGEST, is_listed
from app.service import Service
from sessions import ContextRow, InUse, JobRow

PURPOSE, NAME, BYTES = "purpose", "name", "bytes"
"""Fields in the payload of a file's job."""


def sent_files(service: Service) -> list[JobRow]:
    """Return the uploads of all files, the oldest first."""
    return [job for job in service.store.jobs.all(kind=INGEST) if _is_file(service, job)]


def job_of(service: Service, id: str) -> JobRow:
    """Return the upload of a file.

    Raises:
        NotFound: there is no such file.
    """
    with suppress(sessions.NotFound):
        job = service.store.jobs.get(id)
        if _is_file(service, job):
            return job
    raise NotFound(f"There is no file {id!r}: GET /v1/files lists all.")


def read_of(service: Service, job: JobRow) -> ContextRow | None:
    """Return what was read of a file; None before its reading begins, or if that was deleted."""
    with suppress(sessions.NotFound):
        return service.store.contexts.get(job.progress["context"]) if "context" in job.progress else None
    return None


def context_of(service: Service, ids: Sequence[str]) -> ContextRow:
    """Return what was read of the files that a message names.

    Raises:
        NotFound: there is no such file.
        AppError: it could not be read, or the files were not read together.
        sessions.InUse: it is not read yet.
    """
    found: dict[str, ContextRow] = {}
    for id in dict.fromkeys(ids):
        job = job_of(service, id)
        name, context = job.payload[NAME], read_of(service, job)
        require_not_failed(job, context)
        if context is None or context.status != "ready":
            raise InUse(f"{name} is still being read: ask again when the status of {id} is processed.")
        found[context.id] = context
    if len(found) > 1:
        raise UsageError("These files were not read together: ask about one of them, or read them with /api/contexts.")
    return next(iter(found.values()))


def require_not_failed(job: JobRow, context: ContextRow | None) -> None:
    """Check that reading a file has not failed.

    Raises:
        AppError: it has; with the reason.
    """
    if _status(job, context) == "error":
        raise AppError(f"{job.payload[NAME]} could not be read: {_why(job, context)}")


def described(service: Service, job: JobRow) -> dict[str, Any]:
    """Return a file as that API describes it. model: id of the context that can be asked about it."""
    context = read_of(service, job)
    status = _status(job, context)
    return {
        "id": job.id,
        "object": "file",
        "bytes": job.payload[BYTES],
        "created_at": int(job.created_at),
        "filename": job.payload[NAME],
        "purpose": job.payload[PURPOSE],
        "status": status,
        "status_details": _why(job, context) if status == "error" else None,
        "model": context.id if context is not None else None,
    }


def _is_file(service: Service, job: JobRow) -> bool:
    if job.kind != INGEST or PURPOSE not in job.payload or job.progress.get("dismissed"):
        return False
    return read_of(service, job) is not None if "context" in job.progress else is_listed(service, job)


def _status(job: JobRow, context: ContextRow | None) -> str:
    """Return how far a file is, in that API's words."""
    if context is None:
        return "error" if job.status in ("failed", "cancelled") else "uploaded"
    return {"ready": "processed", "reading": "uploaded"}.get(context.status, "error")


def _why(job: JobRow, context: ContextRow | None) -> str:
    """Return why a file could not be read."""
    reason = job.error if context is None else context.error
    return reason or "Its reading was stopped: go on with it on the page, or upload the file again."
