"""Bodies of the HTTP API: fields of requests, and refusals."""

from typing import Any

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Json

from app.asking.answer_options import AnswerOptions


class NewContext(BaseModel):
    """A form with files, or the ids of kept documents, which are read before the files.

    add_to: id of a context to continue, with its model, method and settings (give none of these).
    settings: settings of the method, as a JSON object such as {"preset": "wide", "store": "int8"}.
    ocr: whether to recognise text in pictures; by default where it is needed and installed.
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
    """Another title. An empty one names a context after its documents."""

    title: str


class NewSession(Given):
    """A session over a context. Without a title it is named after its first question."""

    context: str
    title: str | None = None


class NewRecap(Given):
    """A recap of chapters. up_to: the last page that is known; "" for the whole text."""

    up_to: str = ""


class NewBranch(Given):
    """A branch of a session.

    turns: number of the session's first turns to keep.
    context: another context that begins with the same documents.
    """

    turns: int
    context: str | None = None


class Kept(Given):
    """Parts of a turn to keep as notes, and parts to drop: 0 is its answer, n its n-th source."""

    keep: list[int] = []
    drop: list[int] = []


class NewTurn(Given):
    """A question, options for the answer, and pages to answer from alone.

    temperature, top_p, top_k, min_p, repetition_penalty: null for the model's own.
    max_reasoning: most tokens of the reasoning before the answer; 0 turns it off. Without it, a model of up
        to 4B weights answers at once.
    pages: for example "12-14, iii, 15 of the file"; numbers are as printed. "+ 12" keeps page 12 in view. See `stockpot
        ask --help`.
    json_schema: a JSON schema that the answer is to fit.
    documents: ids, numbers or titles of the documents to answer from, where several were read; empty for all.
    up_to: the last page that is known to the answer, instead of pages or documents; "" for the whole text.
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
    json_schema: dict[str, Any] | None = None
    read_again: bool = AnswerOptions.read_again
    pages: str = ""
    documents: list[str] = []
    up_to: str = ""


class NewSweep(Given):
    """A question for a list or a count to a whole context; or documents and columns for a table; or two documents to
    compare; or a context and the number of cards of a self-test.

    documents: ids of documents that were read; empty for all, in a table.
    columns: for example "author", or "n: How many took part?"; see `stockpot ask --each`.
    """

    context: str = ""
    question: str = ""
    documents: list[str] = []
    columns: list[str] = []
    compare: bool = False
    cards: int = 0


class Refused(BaseModel):
    """A sentence that says why something was not done, with the next step if it is known."""

    error: str


BEFORE_ALL = {
    "description": "A refusal before the request was looked at, in plain text: 400, 401, 403, 413 or 429.",
    "content": {"text/plain": {}},
}
"""Refusals of `web/guard.py`, as `/api/openapi.json` has them."""
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "It cannot be done, or was not asked for as is described here."},
    404: {"model": Refused, "description": "It is not there."},
    409: {"model": Refused, "description": "It is in use, or done already."},
    500: {"model": Refused, "description": "A fault of the program, of the machine, or of what is on the disk."},
    507: {"model": Refused, "description": "There is no room on the disk."},
    "default": BEFORE_ALL,
}
"""Refusals of every route."""
