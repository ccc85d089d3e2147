"""Conversations as clients of OpenAI's APIs send them, and their answers.

Each request carries the whole conversation. If a session has exactly these turns, it goes on. If one begins with them,
it is branched. Otherwise the turns are kept in a new session and read from their text. If a client asks to store
nothing, a session of its own is deleted after the answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Literal

from anyio import CancelScope
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, model_validator

import sessions
from app import deletion
from app.api.sent_files import context_of
from app.asking.answer_options import AnswerOptions
from app.asking.question_length import require_fits
from app.asking.turns import branch, checked_question, keep_question, new_session, said_in
from app.errors import UsageError
from app.jobs.worker import Worker
from app.listing import find_context
from app.service import Service
from sessions import ContextRow, SessionRow, TurnRow

PREFIX = "/v1"
LISTED = f"GET {PREFIX}/models"
"""Words that say where a client finds the contexts."""
MOST_TOKENS = 4000
"""Default for the most tokens of an answer."""
POLL_SEC = 0.05
"""Time between two looks for more of an answer in the store."""
TEXT_PARTS = ("text", "input_text", "output_text")
"""Kinds of message parts that hold text, in the chat API and the responses API."""
FILE_PARTS = ("file", "input_file")
"""Kinds of message parts that name a file, in both."""
RULES = ("system", "developer")
"""Roles of messages whose text is put before the question."""
Said = Sequence[tuple[str, str]]
"""Questions and their answers."""


class Given(BaseModel):
    """An object of a request. A null means the same as a missing field."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {key: each for key, each in given.items() if each is not None} if isinstance(given, dict) else given


class FileNamed(Given):
    """A file in a part of a message, named by its id. The other fields are known so that they can be refused."""

    file_id: str = ""
    file_data: Any = None
    file_url: Any = None

    @property
    def holds_file(self) -> bool:
        """True if the part holds a file, or an address to fetch one from."""
        return self.file_data is not None or self.file_url is not None


class Part(FileNamed):
    """A part of a message: text, or the name of a file, in the way of the chat API or of the responses API."""

    type: str
    text: str = ""
    file: FileNamed = FileNamed()


class Message(Given):
    """A message of the system, the user, the assistant or a tool.

    In the responses API the result of a tool has a type and an output in place of a role and a content.
    """

    role: Literal["system", "developer", "user", "assistant", "tool", "function"] = "user"
    content: str | list[Part] = ""

    @model_validator(mode="before")
    @classmethod
    def _tool_results(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "role" in given:
            return given
        if given.get("type") == "function_call_output":
            return {"role": "tool", "content": given.get("output") or ""}
        if given.get("type") == "function_call":
            return {"role": "assistant"}
        raise ValueError("a message has a role")

    @property
    def text(self) -> str:
        """Text of the message.

        Raises:
            UsageError: it holds something else than text.
        """
        if isinstance(self.content, str):
            return self.content
        known = (*TEXT_PARTS, *FILE_PARTS)
        if other := next((part.type for part in self.content if part.type not in known), None):
            raise UsageError(f"A message holds text or files, not {other}: send what is to be read to {PREFIX}/files.")
        return "".join(part.text for part in self.content)

    @property
    def files(self) -> list[str]:
        """Return the ids of the files that the message names.

        Raises:
            UsageError: it holds a file itself.
        """
        parts = [part for part in self.content if not isinstance(part, str) and part.type in FILE_PARTS]
        ids = [part.file.file_id or part.file_id for part in parts]
        if not all(ids) or any(part.holds_file or part.file.holds_file for part in parts):
            raise UsageError(
                f"A message names a file by its file_id alone: send the file itself to {PREFIX}/files first, and leave "
                "out file_data and file_url."
            )
        return ids


class Asked(Given):
    """Fields of every request for an answer.

    store: whether to keep the turn after the answer.
    """

    model: str
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    store: bool = True

    @property
    def left_out(self) -> list[str]:
        """Return a sentence for each ignored field that a client may rely on."""
        unused = self.tools and self.tool_choice != "none"
        return ["The tools were left out: no answer calls one."] if unused else []

    def refuse(self, wrong: dict[str, Any]) -> None:
        """Refuse a tool that must be called, and each name in `wrong` whose value is true.

        Raises:
            UsageError: one of them is asked for.
        """
        tool = self.tools and self.tool_choice not in ("auto", "none")
        refused = {"a tool_choice that demands a tool": tool, **wrong}
        if name := next((name for name, asked in refused.items() if asked), None):
            raise UsageError(f"Stockpot does not support {name}: leave it out.")


def schema_of(given: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the JSON schema that an answer is to fit, None for text.

    Args:
        given: a `response_format`, or the `text.format` of the responses API.
        name: of that field.

    Raises:
        UsageError: its type is unknown, or it has no schema.
    """
    kind = given.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    schema = given.get("json_schema", given)
    schema = schema.get("schema") if isinstance(schema, dict) else None
    if kind != "json_schema" or not isinstance(schema, dict):
        raise UsageError(f"{name} has the type text, json_object, or json_schema with a schema, which is an object.")
    return schema


def was_cut(turn: TurnRow) -> bool:
    """Return whether an answer ended before the model ended it."""
    return turn.status == "cancelled" or turn.measurements.get("finish_reason") in ("length", "repetition")


def tokens_of(turn: TurnRow) -> tuple[int, int, int]:
    """Return the tokens of question, answer and reasoning, without the text's, which is not read again."""
    asked, answered, reasoned = (
        int(turn.measurements.get(name, 0)) for name in ("prompt_tokens", "answer_tokens", "reasoning_tokens")
    )
    return asked, answered, reasoned


def rules_of(messages: Sequence[Message]) -> str:
    """Return the text of the system messages, to put before the question."""
    return "\n\n".join(each.text for each in messages if each.role in RULES).strip()


def require_fits_with(service: Service, context: ContextRow, rules: str, question: str) -> None:
    """Refuse a question that is too long with the rules before it, and say which of the two is.

    Raises:
        UsageError: the rules, or both together, have too many characters or tokens.
    """
    from engine import AskOptions

    if not rules:
        return require_fits(service, context, question)
    both = "The system message with the question"
    checked_question(rules, "The system message")
    together = checked_question(AskOptions(rules=rules).ruled(question), both)
    require_fits(service, context, rules, "The system message")
    require_fits(service, context, together, both)


def turns_of(messages: Sequence[Message]) -> tuple[list[tuple[str, str]], str]:
    """Return the earlier turns and the question, without system messages.

    Messages of one role in a row are joined, and results of tools count as the user's. Empty messages, and greetings of
    the assistant before the first question, are left out.

    Raises:
        UsageError: there are no messages, the last is not the user's, or a question is empty or too long.
    """
    if not messages:
        raise UsageError("There are no messages: send the question as the last of them, with the role user.")
    spoken = [(each.role != "assistant", each.text.strip()) for each in messages if each.role not in RULES]
    if not spoken or not spoken[-1][0]:
        raise UsageError("The last message is the user's, or the result of a tool: send the question there.")
    *before, (_, question) = spoken
    joined: list[tuple[bool, str]] = []
    for asks, text in [*(each for each in before if each[1]), (True, checked_question(question))]:
        if joined and joined[-1][0] == asks:
            joined[-1] = asks, f"{joined[-1][1]}\n\n{text}"
        elif joined or asks:
            joined.append((asks, text))
    *earlier, question = [text for _, text in joined[::2]]
    checked = [checked_question(each, f"Question {number}") for number, each in enumerate(earlier, 1)]
    return list(zip(checked, [text for _, text in joined[1::2]], strict=True)), checked_question(question)


def session_saying(service: Service, context_id: str, said: Said, anew: bool = False) -> SessionRow:
    """Return a session over a context with exactly these turns: an existing one, a branch of one, or a new one.

    Args:
        service: the home in use.
        context_id: the context.
        said: the turns.
        anew: whether to leave existing sessions alone.
    """
    store, begins = service.store, None
    for row in store.sessions.all(context_id, said[0][0]) if said else ():
        turns = store.turns.all(row.id)
        done = [turn for turn in turns if turn.status == "done"]
        if said_in(done[: len(said)]) != list(said):
            continue
        if not anew and len(done) == len(said) and all(turn.status != "answering" for turn in turns):
            return row
        begins = begins or (row.id, done[len(said) - 1].position + 1)
    if begins is not None:
        return branch(service, *begins)
    session = new_session(service, context_id)
    for question, answer in said:
        turn = keep_question(service, session.id, question)
        store.turns.finish(turn.id, answer=answer)
    return session


class Answering:
    """Answers over one home and its worker, for every route that asks."""

    def __init__(self, service: Service, worker: Worker) -> None:
        """Keep the home and the worker that answers."""
        self.service = service
        self._store, self._worker = service.store, worker

    def begin(self, model: str, messages: Sequence[Message], options: AnswerOptions, store: bool) -> TurnRow:
        """Keep the question and queue it.

        Args:
            model: title or id of a context; not looked at if a message names a file.
            messages: the whole conversation.
            options: options for the answer.
            store: whether an existing session may be used; otherwise the turn gets a session of its own.

        Raises:
            UsageError, NotFound: it cannot be asked.
        """
        said, question = turns_of(messages)
        files = [id for each in messages for id in each.files]
        context = context_of(self.service, files) if files else find_context(self.service, model, LISTED)
        options = replace(options, rules=rules_of(messages))
        require_fits_with(self.service, context, options.rules, question)
        return self._worker.ask(
            lambda: session_saying(self.service, context.id, said, anew=not store).id, question, options
        )

    async def followed(self, turn: TurnRow, store: bool) -> AsyncGenerator[TurnRow]:
        """Yield the turn as it grows, to its end. A caller that leaves early stops the answer.

        Args:
            turn: the turn.
            store: whether to keep it, with its session.
        """
        now = turn
        try:
            while now.status == "answering":
                await asyncio.sleep(POLL_SEC)
                now = await run_in_threadpool(self._store.turns.get, turn.id)
                yield now
        finally:
            await self._end(now, store)

    async def whole(self, turn: TurnRow, request: Request, store: bool) -> TurnRow:
        """Return the turn at its end, or as far as it came when the client disconnected."""
        now = turn
        async with aclosing(self.followed(turn, store)) as turns:
            async for grown in turns:
                now = grown
                if await request.is_disconnected():
                    break
        return now

    async def _end(self, turn: TurnRow, store: bool) -> None:
        """Stop an unfinished answer, and delete a turn that is not to be stored."""
        # The task of a client that disconnected is cancelled; the turn may be deleted.
        with CancelScope(shield=True), suppress(sessions.NotFound):
            if turn.status == "answering":
                await run_in_threadpool(self._worker.stop_answer, turn.id)
            if store:
                return
            while await run_in_threadpool(self._store.jobs.work_on, turn.id):
                await asyncio.sleep(POLL_SEC)
            await run_in_threadpool(deletion.delete, self.service, "session", self._store.sessions.get(turn.session_id))


def rested_on(turn: TurnRow) -> dict[str, Any]:
    """Return facts beside an answer that those APIs do not define."""
    measured = turn.measurements
    return {
        "found": measured.get("found", True),
        "sure": measured.get("sure"),
        "unsupported": measured.get("unsupported", []),
        "sources": turn.sources,
        "citations": measured.get("citations", []),
        "notes": measured.get("warnings", []),
    }


def error_body(sentence: str, status: int) -> dict[str, Any]:
    """Return an error as clients of those APIs expect it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}
