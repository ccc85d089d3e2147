"""Bodies of the HTTP API: what requests send, and how refusals read."""

from typing import Any

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Json

from app.asking.answer_options import AnswerOptions
from app.web.guard import BEFORE_ALL


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
