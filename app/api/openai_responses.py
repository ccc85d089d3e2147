"""OpenAI's responses API, `/v1/responses`, over contexts.

A response is a turn: it has the turn's id, and `previous_response_id` continues it. Input and output are text; a stream
has the events that clients need to show it as it grows.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import Field

from app.api.openai_turns import (
    MOST_TOKENS,
    Answering,
    Asked,
    Message,
    error_body,
    rested_on,
    schema_of,
    tokens_of,
    was_cut,
)
from app.asking.answer_options import LONGEST, AnswerOptions
from app.asking.turns import said_in
from app.errors import NotFound
from app.listing import find_context
from sessions import TurnRow


class ResponseRequest(Asked):
    """A request for a response. Other fields are ignored.

    input: the question, or messages that end with the user's.
    instructions: text to put before the question.
    previous_response_id: the turn to continue.
    """

    input: str | list[Message] = ""
    instructions: str = ""
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    text: dict[str, Any] = Field(default_factory=dict)
    background: bool = False

    def options(self) -> AnswerOptions:
        """Return the options for the answer.

        Raises:
            UsageError, engine.SettingsError: a value is impossible, or not supported.
        """
        self.refuse({"background": self.background})
        usual, most = AnswerOptions(), MOST_TOKENS
        if self.max_output_tokens and self.max_output_tokens > 0:  # below 1 means none, as in other servers
            most = min(self.max_output_tokens, LONGEST)
        return AnswerOptions(
            self.temperature,
            self.top_p,
            most,
            min(usual.max_reasoning, most),
            json_schema=schema_of(self.text.get("format") or {}, "text.format"),
        )


def add_responses(api: APIRouter, answering: Answering) -> None:
    """Add `POST /responses` to the routes."""
    store = answering.service.store

    def messages_of(given: ResponseRequest) -> list[Message]:
        """Return the whole conversation, with the turns up to the previous response."""
        said: list[Message] = []
        if given.previous_response_id:
            last = store.turns.get(given.previous_response_id)
            turns = [each for each in store.turns.all(last.session_id) if each.position <= last.position]
            for question, answer in said_in([each for each in turns if each.status == "done"]):
                said += [Message(role="user", content=question), Message(role="assistant", content=answer)]
        rules = [Message(role="system", content=given.instructions)] if given.instructions.strip() else []
        asked = [Message(role="user", content=given.input)] if isinstance(given.input, str) else given.input
        return [*rules, *said, *asked]

    def begin(given: ResponseRequest) -> TurnRow:
        return answering.begin(model_of(given), messages_of(given), given.options(), given.store)

    def model_of(given: ResponseRequest) -> str:
        """Return the context that is asked: the given one, or that of the previous response if none has this name."""
        if given.previous_response_id:
            try:
                find_context(answering.service, given.model)
            except NotFound:
                return store.sessions.get(store.turns.get(given.previous_response_id).session_id).context_id
        return given.model

    @api.post("/responses", responses={200: {"content": {"text/event-stream": {}}}})
    async def respond(given: ResponseRequest, request: Request) -> Response:
        """Answer the last message. A client that disconnects stops the answer."""
        turn = await run_in_threadpool(begin, given)
        if given.stream:
            events = _events(answering.followed(turn, given.store), turn, given)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        now = await answering.whole(turn, request, given.store)
        if now.status == "failed":
            return JSONResponse(error_body(now.error or "It could not be answered.", 500), 500)
        return JSONResponse(_response(now, given))


def _response(turn: TurnRow, given: ResponseRequest) -> dict[str, Any]:
    """Return a turn as a response object."""
    answering = turn.status == "answering"
    cut = was_cut(turn)
    ended = "failed" if turn.status == "failed" else "incomplete" if cut else "completed"
    state = "in_progress" if answering else ended
    reason = {"reason": "max_output_tokens"} if state == "incomplete" else None
    whole = {
        "id": turn.id,
        "object": "response",
        "created_at": int(turn.created_at),
        "status": state,
        "error": {"code": "server_error", "message": turn.error} if state == "failed" else None,
        "incomplete_details": reason,
        "instructions": given.instructions or None,
        "model": given.model,
        "output": [] if answering or state == "failed" else [_item(turn, "incomplete" if cut else "completed")],
        "parallel_tool_calls": False,
        "previous_response_id": given.previous_response_id,
        "store": given.store,
        "temperature": given.temperature,
        "tool_choice": "none",
        "tools": [],
        "top_p": given.top_p,
        "usage": None if answering else _usage(turn),
        "warnings": given.left_out,
    }
    return whole if answering else {**whole, **rested_on(turn)}


def _item(turn: TurnRow, status: str) -> dict[str, Any]:
    """Return the answer as an output message."""
    part = {"type": "output_text", "text": turn.answer.strip(), "annotations": []}
    return {"id": f"msg_{turn.id}", "type": "message", "role": "assistant", "status": status, "content": [part]}


def _usage(turn: TurnRow) -> dict[str, Any]:
    """Return the token counts, without the text's, which is not read again."""
    asked, answered, reasoned = tokens_of(turn)
    return {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answered + reasoned,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": asked + answered + reasoned,
    }


async def _events(turns: AsyncGenerator[TurnRow], turn: TurnRow, given: ResponseRequest) -> AsyncIterator[str]:
    """Yield server-sent events: the text as it grows, and the whole response at the end."""
    number, told, now = 0, "", turn
    place = {"item_id": f"msg_{turn.id}", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}

    def event(kind: str, **more: Any) -> str:
        nonlocal number
        body = {"type": kind, "sequence_number": number, **more}
        number += 1
        return f"event: {kind}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n"

    for kind in ("response.created", "response.in_progress"):
        yield event(kind, response=_response(turn, given))
    item = {**_item(turn, "in_progress"), "content": []}
    yield event("response.output_item.added", output_index=0, item=item)
    yield event("response.content_part.added", **place, part=empty)
    async with aclosing(turns):
        async for now in turns:
            text = now.answer.lstrip()
            if now.status == "done":
                text = text.rstrip()
            if len(text) > len(told):
                yield event("response.output_text.delta", **place, delta=text[len(told) :], logprobs=[])
                told = text
    if now.status == "failed":
        yield event("response.failed", response=_response(now, given))
        return
    response = _response(now, given)
    [item] = response["output"]
    yield event("response.output_text.done", **place, text=item["content"][0]["text"], logprobs=[])
    yield event("response.content_part.done", **place, part=item["content"][0])
    yield event("response.output_item.done", output_index=0, item=item)
    yield event(f"response.{response['status']}", response=response)
