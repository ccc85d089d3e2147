"""OpenAI's chat API, `/v1/...`, over contexts: whatever speaks it can talk with what was read.

A context is a model of that API, named by its id, the beginning of it, or its title. Each request carries the whole
conversation: a session that says just that goes on; one that begins so is branched; else the turns are kept in a new
session, and read from their text. So a client that adds a question to what was said continues where the memory stands.
Beside the answer come the session and the sources, which clients that do not know them leave alone. Where a client asks
to store nothing, a session of its own is deleted once the answer has come.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal

from anyio import CancelScope
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, model_validator

import sessions
from app import shelf
from app.answer_options import LONGEST, AnswerOptions
from app.errors import NotFound, UsageError, phrase
from app.service import Service
from app.shelf import find_context
from app.turns import branch, checked_question, keep_question, new_session, said_in
from app.web.guard import BEFORE_ALL
from app.words import shorten
from app.worker import Worker
from sessions import SHOWN_TITLE, ContextRow, SessionRow, StoreError, TurnRow

PREFIX = "/v1"
LISTED = f"GET {PREFIX}/models"
"""Where a client finds the contexts that it can ask."""
ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
POLL_SEC = 0.05
"""The store is asked this often for more of an answer."""
EFFORTS = {"none": 0, "minimal": 256, "low": 1024, "medium": 4096, "high": 16384, "xhigh": 65536}
"""Tokens of reasoning."""
MOST_TOKENS = 4000
"""Of an answer, where a client does not say."""
Said = Sequence[tuple[str, str]]
"""Questions and their answers."""


class Given(BaseModel):
    """An object of a request, in which null says as much as leaving a field away."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {key: each for key, each in given.items() if each is not None} if isinstance(given, dict) else given


class TextPart(Given):
    """A piece of a message."""

    type: str
    text: str = ""


class Message(Given):
    """What somebody said."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] = ""

    @property
    def text(self) -> str:
        """Its words.

        Raises:
            UsageError: it holds something else.
        """
        if isinstance(self.content, str):
            return self.content
        if other := next((part.type for part in self.content if part.type != "text"), None):
            raise UsageError(f"A message holds text, not {other}: what is to be read is read with `stockpot ingest`.")
        return "".join(part.text for part in self.content)


class StreamOptions(Given):
    """include_usage: whether the numbers of tokens come at the end."""

    include_usage: bool = False


class ChatRequest(Given):
    """What a client asks for; of other fields nothing is promised, and nothing needed.

    reasoning_effort: none, minimal, low, medium, high or xhigh, of a model that reasons first: tokens that it may take
    for it, 0, 256, 1,024, 4,096, 16,384 or 65,536; without it 4,096, or as many as the answer may have if that is less.
    temperature, top_p, top_k, min_p, repetition_penalty: without them the model's own.
    store: whether the turn is kept once it is answered, or the client has gone away.
    """

    model: str
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] = []
    tools: list[Any] | None = None
    logprobs: bool | None = None
    response_format: dict[str, Any] = {"type": "text"}
    reasoning_effort: str | None = None
    store: bool = True

    def options(self) -> AnswerOptions:
        """How to answer. A number of tokens below 1, and a seed or top_k below 0, mean none: so other servers take -1.

        Raises:
            UsageError: as cannot be, or as Stockpot cannot.
        """
        effort = (self.reasoning_effort or "").strip().lower()
        refused = {
            "n above 1": (self.n or 1) > 1,
            "tools": self.tools,
            "logprobs": self.logprobs,
            "a response_format other than text": self.response_format.get("type") != "text",
            f"a reasoning_effort other than {', '.join(EFFORTS)}": effort and effort not in EFFORTS,
        }
        if wrong := next((name for name, asked in refused.items() if asked), None):
            raise UsageError(f"Stockpot does not support {wrong}: leave it out.")
        most, reasoning = MOST_TOKENS, AnswerOptions.max_reasoning
        if (given := self.max_completion_tokens or self.max_tokens or 0) > 0:
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
        )


def turns_of(messages: Sequence[Message]) -> tuple[list[tuple[str, str]], str]:
    """What was said before, and the question. What the system says stands before the first question.

    Raises:
        UsageError: they do not take turns, the last is not the user's, or a question is empty or too long.
    """
    system = "\n\n".join(each.text for each in messages if each.role in ("system", "developer"))
    spoken = [each for each in messages if each.role in ("user", "assistant")]
    roles = ["user", "assistant"] * (len(spoken) // 2) + ["user"]
    if [each.role for each in spoken] != roles:
        raise UsageError("Messages of user and assistant take turns, and the last is the user's.")
    texts = [each.text.strip() for each in spoken]
    if system.strip():
        texts[0] = f"{system.strip()}\n\n{texts[0]}"
    *before, question = map(checked_question, texts[::2])
    return list(zip(before, texts[1::2], strict=True)), question


def session_saying(service: Service, context_id: str, said: Said, title: str | None, anew: bool = False) -> SessionRow:
    """A session over a context in which just that has been said: one that is there, a branch of one, or a new one.

    anew: none that is there.
    """
    store, begins = service.store, None
    for row in store.sessions(context_id, said[0][0]) if said else ():
        turns = store.turns(row.id)
        done = [turn for turn in turns if turn.status == "done"]
        if said_in(done[: len(said)]) != list(said):
            continue
        if not anew and len(done) == len(said) and all(turn.status != "answering" for turn in turns):
            return row
        begins = begins or (row.id, done[len(said) - 1].position + 1)
    if begins is not None:
        return branch(service, *begins)
    session = new_session(service, context_id, title)
    for question, answer in said:
        turn = keep_question(service, session.id, question)
        store.finish_turn(turn.id, answer=answer)
    return session


def error_body(sentence: str, status: int) -> dict[str, Any]:
    """An error as clients of that API expect it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}


REFUSALS: dict[int | str, dict[str, Any]] = {
    **{
        status: {"description": why, "content": {"application/json": {"example": error_body("Why.", status)}}}
        for status, why in ((400, "It cannot be done."), (404, "It is not there."), (500, "It went wrong."))
    },
    "default": BEFORE_ALL,
}
"""What every route may answer instead."""


def router(service: Service, worker: Worker) -> APIRouter:
    """All routes, over one home and its worker."""
    api = APIRouter(prefix=PREFIX, responses=REFUSALS)
    store = service.store

    def described(row: ContextRow) -> dict[str, Any]:
        created = int(row.created_at)
        known = {"title": row.title, "method": row.method}
        return {"id": row.id, "object": "model", "created": created, "owned_by": "stockpot", **known}

    def begin(given: ChatRequest) -> tuple[str, TurnRow]:
        """Keep the question and queue it; also the context's id."""
        said, question = turns_of(given.messages)
        options = given.options()
        context = find_context(service, given.model, LISTED)
        plain = next(each.text.strip() for each in given.messages if each.role == "user")
        first = said[0][0] if said else question
        title = None if first == plain else shorten(plain, SHOWN_TITLE)  # not what the system says before it
        anew = not given.store
        turn = worker.ask(lambda: session_saying(service, context.id, said, title, anew).id, question, options)
        return context.id, turn

    async def end(turn: TurnRow, store_it: bool) -> None:
        """Stop an answer that is not over. store_it: whether it is kept, with its session."""
        # Whoever has gone away took what waited for the answer along; the turn may be deleted.
        with CancelScope(shield=True), suppress(sessions.NotFound):
            if turn.status == "answering":
                await run_in_threadpool(worker.stop_answer, turn.id)
            if store_it:
                return
            while await run_in_threadpool(store.work_on, turn.id):
                await asyncio.sleep(POLL_SEC)
            await run_in_threadpool(shelf.delete, service, "session", store.session(turn.session_id))

    @api.get("/models")
    def models() -> dict[str, Any]:
        """The contexts that can be asked."""
        return {"object": "list", "data": [described(row) for row in store.contexts() if row.status == "ready"]}

    @api.get("/models/{id}")
    def model(id: str) -> dict[str, Any]:
        return described(find_context(service, id, LISTED))

    @api.post("/chat/completions", responses={200: {"content": {"text/event-stream": {}}}})
    async def complete(given: ChatRequest, request: Request) -> Response:
        """Answer the last message. Going away stops the answer."""
        context_id, turn = await run_in_threadpool(begin, given)
        head = {"id": turn.id, "created": int(turn.created_at), "model": context_id}
        if given.store:
            head["session"] = turn.session_id

        async def followed() -> AsyncGenerator[TurnRow]:
            """The turn as it grows, to its end."""
            now = turn
            try:
                while now.status == "answering":
                    await asyncio.sleep(POLL_SEC)
                    now = await run_in_threadpool(store.turn, turn.id)
                    yield now
            finally:
                await end(now, given.store)

        if given.stream:
            pieces = _pieces(followed(), head, given.stream_options.include_usage)
            return StreamingResponse(pieces, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        now = turn
        async with aclosing(followed()) as turns:
            async for grown in turns:
                now = grown
                if await request.is_disconnected():
                    break
        if now.status == "failed":
            return JSONResponse(error_body(now.error or "It could not be answered.", 500), 500)
        message = {"role": "assistant", "content": now.answer.strip()}
        if now.reasoning:
            message["reasoning_content"] = now.reasoning
        choice = {"index": 0, "message": message, "finish_reason": _reason(now)}
        whole = {"object": "chat.completion", "choices": [choice], "usage": _usage(now), **_rested_on(now)}
        return JSONResponse({**head, **whole})

    @api.api_route("", methods=ANY_METHOD, include_in_schema=False)
    @api.api_route("/{path:path}", methods=ANY_METHOD, include_in_schema=False)
    def nothing(request: Request) -> None:
        raise NotFound(
            f"There is no {request.method} {request.url.path}: there are POST {PREFIX}/chat/completions and "
            f"GET {PREFIX}/models."
        )

    return api


async def _pieces(turns: AsyncGenerator[TurnRow], head: dict[str, Any], include_usage: bool) -> AsyncIterator[str]:
    """Server-sent events: what has come of a turn since the one before; the last says why it ended."""
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
                if len(now.answer) > len(told):  # one that came to repeat itself has been cut
                    yield event({"content": now.answer[len(told) :]})
                    told = now.answer
    except StoreError as error:  # too late for a status
        yield _line(error_body(phrase(error), 404 if isinstance(error, sessions.NotFound) else 500))
        return
    if now.status == "failed":
        yield _line(error_body(now.error or "It could not be answered.", 500))
        return
    yield event({}, _reason(now), **_rested_on(now))
    if include_usage:
        yield _line({**head, "choices": [], "usage": _usage(now)})
    yield "data: [DONE]\n\n"


def _rested_on(turn: TurnRow) -> dict[str, Any]:
    """What is told beside an answer, which that API knows nothing of."""
    return {"sources": turn.sources, "citations": turn.measurements.get("citations", [])}


def _line(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def _reason(turn: TurnRow) -> str:
    """Why an answer ended, in that API's words, which know nobody who stopped it."""
    cut = turn.status == "cancelled" or turn.measurements.get("finish_reason") in ("length", "repetition")
    return "length" if cut else "stop"


def _usage(turn: TurnRow) -> dict[str, Any]:
    """Tokens, without those of the text, which are not read again."""
    names = ("prompt_tokens", "answer_tokens", "reasoning_tokens")
    asked, answered, reasoned = (int(turn.measurements.get(name, 0)) for name in names)
    said = answered + reasoned
    return {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }
