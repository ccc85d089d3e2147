"""Errors of the HTTP API: a sentence with a fitting status."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.api import openai_turns
from app.errors import AppError, phrase
from app.errors import NotFound as NoSuchThing
from app.formatting import byte_size
from app.jobs.uploads import full_or
from ingest import IngestError
from sessions import (
    AlreadyRead,
    DiskFull,
    InUse,
    NotFound,
    StoreCorrupt,
    StoreError,
    StoreFailing,
)

MOST_BODY, MOST_FILES = 16 << 20, 16 << 30
"""Most bytes of a request without files, and of one with files."""
WITH_FILES = ("/api/contexts", "/v1/files")
"""Paths of requests with files."""
SIMPLE_TYPES = ("str", "int", "float", "bool")
"""Names that pydantic puts into the place of a fault if a field takes several types."""


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error."""
    from engine import OutOfMemory

    statuses: dict[int, tuple[type[Exception], ...]] = {
        404: (NotFound, NoSuchThing),
        409: (InUse, AlreadyRead),
        507: (DiskFull,),
        500: (StoreCorrupt, StoreFailing, OSError, MemoryError, OutOfMemory),
    }
    return next((status for status, kinds in statuses.items() if isinstance(error, kinds)), 400)


def _found_wrong(errors: Sequence[Any]) -> list[str]:
    """Return what is wrong in a request, as "messages.0.role: ...".

    If a field takes several types, pydantic reports a fault for each. The names of the types are left out, and only the
    fault deepest within the value is told.
    """
    found: dict[tuple[Any, ...], tuple[int, str]] = {}
    for each in errors:
        types = [number for number, part in enumerate(each["loc"]) if part in SIMPLE_TYPES or "[" in str(part)]
        fields = [str(part) for number, part in enumerate(each["loc"][1:], 1) if number not in types]
        about = each["loc"][: types[0]] if types else each["loc"]
        told = len(each["loc"]), f"{'.'.join(fields) or each['loc'][-1]}: {each['msg']}"
        found[about] = max(found.get(about, told), told, key=lambda known: known[0])
    return [sentence for _, sentence in found.values()]


def add_error_handlers(app: FastAPI) -> None:
    """Answer errors with a sentence and a fitting status."""
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
        if isinstance(error.body, bytes) and error.body:  # not parsed as JSON
            return say(request, f"Send the JSON as Content-Type: application/json, not {kind!r}.", 400)
        wrong = "; ".join(_found_wrong(error.errors())) or "nothing came"
        return say(request, f"The request is not as /api/openapi.json describes it: {wrong}.", 400)

    def unreadable(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, OSError):  # files are written while they arrive
            return answer(request, full_or(error.__cause__, Path(tempfile.gettempdir())))
        if error.status_code == 413:
            most = MOST_FILES if request.url.path in WITH_FILES else MOST_BODY
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
