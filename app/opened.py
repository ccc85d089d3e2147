"""Contexts and conversations in memory: opened from disk without reading anything again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.errors import AppError
from app.service import Service
from app.stream import PART, Stream
from sessions import ContextRow, Part

if TYPE_CHECKING:
    import engine

INTERRUPTED = "failed"


@dataclass(frozen=True)
class OpenContext:
    """A finished reading, ready to be talked with."""

    row: ContextRow
    model: "engine.Model"
    context: "engine.Context"
    stream: Stream


@dataclass
class OpenConversation:
    """A session's continuation of its context."""

    opened: OpenContext
    conversation: "engine.Conversation"


def open_context(service: Service, context_id: str) -> OpenContext:
    """The finished reading with this id, from memory or from disk.

    Raises:
        sessions.StoreError: it is not finished, or not what was written.
        engine.EngineError: its model cannot be used here, or is another one than read it.
    """
    return service.contexts.get(context_id, lambda: _load_context(service, context_id))


def _load_context(service: Service, context_id: str) -> OpenContext:
    import engine

    row = service.store.context(context_id)
    if row.status != "ready":
        raise AppError(f"Context {context_id} is {row.status}: it can be asked when its documents have been read.")
    model = service.models.get(row.model)
    method = engine.make_method(row.method, **row.settings)
    parts, meta = service.store.context_state(context_id).load(row.fingerprint)
    stream = Stream.load(parts.pop(PART), meta["stretches"])
    if engine.fingerprint(model, method, stream.ids) != row.fingerprint:
        raise engine.ContextMismatch(
            f"Context {context_id} was read by another model than the one now found as {row.model!r}, by another "
            "version of it, or with other trained weights: use those, or read the documents again."
        )
    context = engine.Context.load(model, method, parts, meta["context"])
    context.memory.adopt(parts)
    return OpenContext(row, model, context, stream)


def open_conversation(service: Service, session_id: str) -> OpenConversation:
    """The session's conversation, with everything said so far in it."""
    return service.conversations.get(session_id, lambda: _load_conversation(service, session_id))


def _load_conversation(service: Service, session_id: str) -> OpenConversation:
    import engine

    session = service.store.session(session_id)
    opened = open_context(service, session.context_id)
    folder = service.store.session_state(session_id)
    if not folder.exists():
        return OpenConversation(opened, engine.Conversation(opened.context))
    parts, meta = folder.load(opened.row.fingerprint)
    _mend_last_turn(service, meta["turn"])
    return OpenConversation(opened, engine.Conversation.load(opened.context, parts, meta["conversation"]))


def _mend_last_turn(service: Service, turn: dict[str, Any]) -> None:
    """Finish a turn that a crash left unfinished after its tail had been saved: the tail knows the whole answer."""
    if service.store.turn(turn["id"]).status == INTERRUPTED:
        service.store.finish_turn(
            turn["id"], answer=turn["answer"], sources=turn["sources"], measurements=turn["measurements"]
        )


def save_conversation(service: Service, session_id: str, open_one: OpenConversation, turn: dict[str, Any]) -> None:
    """Save the session's tail, with the turn that it ends in (id, answer, sources, measurements)."""
    parts, meta = open_one.conversation.state()
    service.store.session_state(session_id).save(
        {name: Part(part.tensors, part.sealed) for name, part in parts.items()},
        {"conversation": meta, "turn": turn},
        open_one.opened.row.fingerprint,
    )
