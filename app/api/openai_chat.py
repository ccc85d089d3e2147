"""OpenAI's chat API, `/v1/...`, over contexts, for programs that speak it.

A context is a model of that API. It is listed by its title, and named by its title, its id, or the beginning of the id.
A message that names a file (`openai_files.py`) is about that file, whatever the model.
Each request carries the whole conversation (`openai_turns.py`), so a client that adds a question continues from the
memory. The answer also carries the session, the sources and warnings, which other clients ignore.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import Field

import sessions
from app.api.bodies import BEFORE_ALL
from app.api.openai_files import add_files
from app.api.openai_responses import add_responses
from app.api.openai_turns import (
    LISTED,
    MOST_TOKENS,
    PREFIX,
    Answering,
    Asked,
    Given,
    Message,
    error_body,
    rested_on,
    schema_of,
    tokens_of,
    was_cut,
)
from app.asking.answer_options import LONGEST, AnswerOptions
from app.errors import NotFound, phrase
from app.jobs.worker import Worker
from app.listing import find_context
from app.service import Service
from sessions import ContextName, ContextRow, StoreError, TurnRow

ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
EFFORTS = {"none": 0, "minimal": 256, "low": 1024, "medium": 4096, "high": 16384, "xhigh": 65536}
"""Most tokens of reasoning by effort."""
UNSTORED = {"Cache-Control": "no-store"}
ASKED = ("ready", "reading")
"""Statuses of contexts that are listed."""


class StreamOptions(Given):
    """Options of a stream. include_usage: whether the token counts come at the end."""

    include_usage: bool = False


class ChatRequest(Asked):
    """A request for an answer. Other fields are ignored.

    reasoning_effort: none, minimal, low, medium, high or xhigh: at most 0, 256, 1,024, 4,096, 16,384 or 65,536 tokens
        of reasoning. By default a model of up to 4B weights answers at once. A larger one has 4,096, or as many as the
        answer may have if that is less.
    temperature, top_p, top_k, min_p, repetition_penalty: by default the model's own.
    """

    messages: list[Message]
    stream_options: StreamOptions = StreamOptions()
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    n: int | None = Field(None, ge=1)
    stop: str | list[str] = Field(default_factory=list)
    logprobs: bool | None = None
    response_format: dict[str, Any] = Field(default_factory=dict)
    reasoning_effort: str | None = None

    def options(self) -> AnswerOptions:
        """Return the options for the answer.

        A seed or top_k below 0 means none, as in other servers; so does a number of tokens below 1.

        Raises:
            UsageError, engine.SettingsError: a value is impossible, or not supported.
        """
        effort = (self.reasoning_effort or "").strip().lower()
        refused = {
            "n above 1": (self.n or 1) > 1,
            "logprobs": self.logprobs,
            f"a reasoning_effort other than {', '.join(EFFORTS)}": effort and effort not in EFFORTS,
        }
        self.refuse(refused)
        most, reasoning = MOST_TOKENS, AnswerOptions.max_reasoning
        given = next((each for each in (self.max_completion_tokens, self.max_tokens) if each and each > 0), None)
        if given is not None:
            most = min(given, LONGEST)
            reasoning = min(reasoning, most)
        return AnswerOptions(
            self.temperature,
            self.top_p,
            most,
            EFFORTS[effort] if effort else reasoning,
            seed=None if self.seed is None or self.seed < 0 else self.seed,
            stop=[self.stop] if isinstance(self.stop, str) else self.stop,
            top_k=None if self.top_k is None else max(0, self.top_k),
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            reason=True if effort else None,
            json_schema=schema_of(self.response_format, "response_format"),
        )


REFUSALS: dict[int | str, dict[str, Any]] = {
    **{
        status: {"description": why, "content": {"application/json": {"example": error_body("Why.", status)}}}
        for status, why in ((400, "It cannot be done."), (404, "It is not there."), (500, "It went wrong."))
    },
    "default": BEFORE_ALL,
}
"""Refusals of every route."""


def router(service: Service, worker: Worker) -> APIRouter:
    """Return all routes over one home and its worker."""
    api = APIRouter(prefix=PREFIX, responses=REFUSALS)
    store, answering = service.store, Answering(service, worker)
    add_responses(api, answering)
    add_files(api, service, worker)

    @api.get("/models")
    def models() -> Response:
        """List the contexts that can be asked, also those that are being read."""
        rows = store.contexts.names()
        return JSONResponse({"object": "list", "data": described([row for row in rows if row.status in ASKED], rows)})

    @api.get("/models/{name:path}")
    def model(name: str) -> dict[str, Any]:
        """Describe one context, by its title or id."""
        [model] = described([find_context(service, name, LISTED)], store.contexts.names())
        return model

    @api.post("/chat/completions", responses={200: {"content": {"text/event-stream": {}}}})
    async def complete(given: ChatRequest, request: Request) -> Response:
        """Answer the last message. A client that disconnects stops the answer."""
        options = given.options()
        turn = await run_in_threadpool(answering.begin, given.model, given.messages, options, given.store)
        head: dict[str, Any] = {"id": turn.id, "created": int(turn.created_at), "model": given.model}
        if given.store:
            head["session"] = turn.session_id
        if given.left_out:
            head["warnings"] = given.left_out
        if given.stream:
            turns = answering.followed(turn, given.store)
            pieces = _pieces(turns, head, given.stream_options.include_usage)
            return StreamingResponse(pieces, media_type="text/event-stream", headers=UNSTORED)
        now = await answering.whole(turn, request, given.store)
        if now.status == "failed":
            return JSONResponse(error_body(now.error or "It could not be answered.", 500), 500)
        message = {"role": "assistant", "content": now.answer.strip()}
        if now.reasoning:
            message["reasoning_content"] = now.reasoning
        choice = {"index": 0, "message": message, "finish_reason": _reason(now)}
        whole = {"object": "chat.completion", "choices": [choice], "usage": _usage(now), **rested_on(now)}
        return JSONResponse({**head, **whole})

    @api.api_route("", methods=ANY_METHOD, include_in_schema=False)
    @api.api_route("/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    def nothing(request: Request) -> None:
        raise NotFound(
            f"There is no {request.method} {request.url.path}: there are POST {PREFIX}/chat/completions, "
            f"POST {PREFIX}/responses, GET {PREFIX}/models, and {PREFIX}/files."
        )

    return api


def described(rows: Sequence[ContextName | ContextRow], among: Sequence[ContextName]) -> list[dict[str, Any]]:
    """Return contexts as models of that API, named by title, or by id if other contexts have that title.

    Args:
        rows: the contexts.
        among: all contexts.
    """
    alike = Counter(each.title.casefold() for each in among)
    return [
        {
            "id": row.title if alike[row.title.casefold()] == 1 and row.title.strip() else row.id,
            "object": "model",
            "created": int(row.created_at),
            "owned_by": "stockpot",
            "context": row.id,
            "title": row.title,
            "method": row.method,
            "status": row.status,
        }
        for row in rows
    ]


async def _pieces(turns: AsyncGenerator[TurnRow], head: dict[str, Any], include_usage: bool) -> AsyncIterator[str]:
    """Yield server-sent events with each new piece of a turn; the last one says why it ended."""
    head = {**head, "object": "chat.completion.chunk"}

    def event(delta: dict[str, str], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _line({**head, "choices": [choice], **more})

    yield event({"role": "assistant", "content": ""})
    thought = told = ""
    try:
        async with aclosing(turns):
            async for now in turns:
                if now.reasoning != thought:
                    yield event({"reasoning_content": now.reasoning[len(thought) :]})
                    thought = now.reasoning
                if len(now.answer) > len(told):  # a repetitive answer was cut
                    yield event({"content": now.answer[len(told) :]})
                    told = now.answer
    except StoreError as error:  # the status was sent long ago
        yield _line(error_body(phrase(error), 404 if isinstance(error, sessions.NotFound) else 500))
        return
    if now.status == "failed":
        yield _line(error_body(now.error or "It could not be answered.", 500))
        return
    yield event({}, _reason(now), **rested_on(now))
    if include_usage:
        yield _line({**head, "choices": [], "usage": _usage(now)})
    yield "data: [DONE]\n\n"


def _line(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def _reason(turn: TurnRow) -> str:
    """Return why an answer ended, in that API's words, which have none for a stop by a person."""
    return "length" if was_cut(turn) else "stop"


def _usage(turn: TurnRow) -> dict[str, Any]:
    """Return the token counts, without the text's, which is not read again."""
    asked, answered, reasoned = tokens_of(turn)
    said = answered + reasoned
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }
