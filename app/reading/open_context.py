"""Open contexts and conversations from disk without reading anything again, and save conversations."""

import logging
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from app.asking.demo_answer import as_said
from app.errors import AppError
from app.machine.fitting import placed
from app.reading.context_cache import OpenContext, OpenConversation
from app.reading.earlier_turns import BEGINS, EARLIER, kept_turns, state_behind
from app.reading.saved_state import check_context, check_conversation
from app.reading.token_stream import PART, Stream
from sessions import ContextRow, DiskFull, NotFound, Part, StoreCorrupt, StoreError, TensorFolder

if TYPE_CHECKING:
    import engine
    from app.service import Service

log = logging.getLogger(__name__)

MAX_UPTIME_DAYS = 31
"""Days to try for the date that a template told the model, if the saved state does not name it."""

CONTRADICTORY = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError)
"""Errors of saved facts that do not fit each other or the tensors."""

Held = TypeVar("Held", OpenContext, OpenConversation)


def open_context(service: "Service", context_id: str) -> OpenContext:
    """Return the context with this id, from memory or from disk; an unfinished one with the text read so far.

    Parts of a context stay in its files. If those changed since it was opened, it is opened and checked again.

    Raises:
        AppError: none of its text has been read yet.
        sessions.StoreError: its files are not those that were written.
        engine.EngineError: its model cannot be used here, or differs from the one that read it.
    """
    if reading := service.read_here(context_id):
        return reading
    usage = service.store.contexts.get(context_id).usage.get("bytes", {})
    expected = int(usage.get("device", 0)) + int(usage.get("host", 0))

    def load() -> OpenContext:
        return _load_context(service, context_id)

    folder, contexts = service.store.contexts.state(context_id), service.contexts
    return _current(folder, lambda: contexts.get(context_id, expected, load), lambda: contexts.drop(context_id))


def _current(folder: TensorFolder, get: Callable[[], Held], drop: Callable[[], None]) -> Held:
    """Return the open object of a folder; open it again if its files changed."""
    held = get()
    if held.stamps == folder.stamps():
        return held
    drop()
    return get()


def has_begun(service: "Service", row: ContextRow) -> bool:
    """Return whether a context can be asked: some text was read, in this process or up to a checkpoint."""
    return row.status == "ready" or row.tokens_read > 0 or service.read_here(row.id) is not None


def require_begun(service: "Service", row: ContextRow) -> None:
    """Raise AppError if a context cannot be asked yet."""
    if not has_begun(service, row):
        reason = f" ({row.error})" if row.error else ""
        raise AppError(
            f"Context {row.id} is {row.status}{reason}: it can be asked when some of its text has been read. "
            f"If that was stopped, `stockpot resume {row.id}` goes on with it."
        )


def model_of(
    row: ContextRow, found: "engine.Model", method: "engine.Method", stream: Stream, meta: dict[str, Any]
) -> "engine.Model":
    """Return the model that read a context: the one found under its name now, on the day of the reading.

    Args:
        row: the context.
        found: the model found under its name.
        method: its method.
        stream: its text as tokens.
        meta: facts of the saved state; old ones lack the chat prefix and the day.

    Raises:
        engine.ContextMismatch: it is not the model that read the context.
    """
    import engine

    if engine.fingerprint(found.fingerprint, found.spec, method, stream.ids, row.settings) != row.fingerprint:
        raise engine.ContextMismatch(
            f"Context {row.id} was read by another model than the one now found as {row.model!r}, by another "
            "version of it, or with other trained weights: use those, or read its documents again (they are kept)."
        )
    if "prefix" not in meta:
        return found
    if "day" in meta:
        days = [date.fromisoformat(meta["day"])]
    else:
        days = [date.fromtimestamp(row.created_at) - timedelta(before) for before in range(MAX_UPTIME_DAYS)]
    model = next((each for each in map(found.on, days) if each.chat.prefix == meta["prefix"]), None)
    if model is None:
        raise engine.ContextMismatch(
            f"Context {row.id} was read behind other words than Stockpot now puts before a text for {row.model!r}: "
            "delete the context, and read its documents again (they are kept)."
        )
    return model


def check_finished(row: ContextRow, meta: dict[str, Any]) -> None:
    """Raise StoreCorrupt if the saved state of a context is incomplete. meta: facts of that state."""
    if meta["context"] is None:
        raise StoreCorrupt(
            f"Context {row.id} is noted as read, but what is saved of it is less: delete {row.id}, then read "
            "its documents again (they are kept)."
        )


def _load_context(service: "Service", context_id: str) -> OpenContext:
    import engine

    row = service.store.contexts.get(context_id)
    require_begun(service, row)
    found = service.models.get(row.model)
    method = engine.make_method(row.method, **row.settings)
    folder = service.store.contexts.state(context_id)
    stamps = folder.stamps()
    parts, meta = folder.load(row.fingerprint)
    check_context(row, parts, meta)
    stream = Stream.load(parts.pop(PART), meta["stretches"])
    model = model_of(row, found, method, stream, meta)
    method, unfinished = placed(model, row.model, method, row.tokens), meta["context"] is None
    if row.status == "ready" or meta["reader"] is None:
        check_finished(row, meta)
    context = engine.Context.load(model, method, parts, meta["context"] or meta["reader"], unfinished=unfinished)
    if context.memory.archive:
        context.memory.archive.use_mapped_files(parts)
    return OpenContext(row, model, context, stream, stamps, row.tokens_read / row.tokens if unfinished else None)


def open_conversation(
    service: "Service",
    session_id: str,
    on_pass: Callable[[], None] = lambda: None,
    on_turn: Callable[[int, int], None] = lambda done, total: None,
) -> OpenConversation:
    """Return the session's conversation with all of its turns.

    Some sessions have no saved conversation: branches from turns whose state is not kept, sessions whose last turn was
    lost, and sessions over unfinished contexts. Their turns are read again from their text, which counts in the time to
    the first token. The next answer saves the conversation if the context is finished.

    Args:
        service: the home in use.
        session_id: the session.
        on_pass: called after each pass over those turns; its exception ends the work, and nothing is kept.
        on_turn: told how many of those turns are read, and how many there are.
    """
    import engine

    opened = open_context(service, service.store.sessions.get(session_id).context_id)  # marks it as in use
    if opened.share is not None:  # more is read by the next question
        early = OpenConversation(opened, engine.Conversation(opened.context), {})
        _replay(service, session_id, early, on_pass, on_turn)
        return early

    def load() -> OpenConversation:
        return _load_conversation(service, session_id, opened)

    folder, conversations = service.store.sessions.state(session_id), service.conversations
    held = _current(folder, lambda: conversations.get(session_id, load), lambda: conversations.drop(session_id))
    if not held.conversation.turns:
        try:
            _replay(service, session_id, held, on_pass, on_turn)
        except BaseException:
            conversations.drop(session_id)  # it holds only some of its turns
            raise
    return held


def _replay(
    service: "Service",
    session_id: str,
    held: OpenConversation,
    on_pass: Callable[[], None],
    on_turn: Callable[[int, int], None],
) -> None:
    said = [turn for turn in service.store.turns.all(session_id) if turn.status == "done"]
    for done, turn in enumerate(said):
        on_turn(done, len(said))
        held.conversation.replay(turn.question, as_said(held.opened.row.model, turn.answer), on_pass)
    on_turn(len(said), len(said))


def _load_conversation(service: "Service", session_id: str, opened: OpenContext) -> OpenConversation:
    import engine

    folder = service.store.sessions.state(session_id)
    stamps = folder.stamps()
    if not folder.exists():
        return OpenConversation(opened, engine.Conversation(opened.context), stamps)
    parts, meta = folder.load(opened.row.fingerprint, without=BEGINS)
    try:
        check_conversation(meta)
    except CONTRADICTORY as error:
        raise StoreCorrupt(
            f"What is saved of session {session_id} contradicts itself ({error}): branch {session_id} and go on in the "
            "branch, which reads the turns that it keeps from their text."
        ) from error
    try:
        service.store.turns.finish_as_saved(meta["turn"])  # the store could not be written when it ended
    except NotFound:
        log.warning("session %s remembers a turn that is not kept: it is read anew from those that are", session_id)
        folder.discard()
        return OpenConversation(opened, engine.Conversation(opened.context), folder.stamps())
    return OpenConversation(opened, engine.Conversation.load(opened.context, parts, meta["conversation"]), stamps)


def save_conversation(service: "Service", session_id: str, open_one: OpenConversation, turn: dict[str, Any]) -> None:
    """Save the session's conversation, with its last turn (id, answer, reasoning, sources, measurements).

    Earlier states are kept with it as far as there is room (`earlier_turns.py`).
    """
    saved, meta = open_one.conversation.state()
    folder, fingerprint = service.store.sessions.state(session_id), open_one.opened.row.fingerprint
    parts, facts = to_host(saved), {"conversation": meta, "turn": turn}
    earlier, listed = kept_turns(folder, parts, meta, fingerprint)
    try:
        folder.save({**parts, **earlier}, {**facts, EARLIER: listed}, fingerprint)
    except DiskFull:
        if not earlier:
            raise
        folder.save(parts, facts, fingerprint)
    open_one.stamps = folder.stamps()


def fork_conversation(service: "Service", session_id: str, turns: int, branch_id: str) -> None:
    """Start a branch from the saved state behind the last turn that it keeps.

    The branch then continues from the same numbers as the session. If that state is not kept, is damaged or cannot be
    copied, the branch's turns are read again from their text.
    """
    store = service.store
    every = store.turns.all(session_id)
    kept = [turn.id for turn in every[:turns] if turn.status == "done"]
    if not kept:
        return
    tail, branch = store.sessions.state(session_id), store.sessions.state(branch_id)
    last = store.turns.all(branch_id)[-1]
    try:
        fingerprint = store.contexts.get(store.sessions.get(session_id).context_id).fingerprint
        parts, meta = tail.load(fingerprint)
        check_conversation(meta)
        saved, remembered = meta["turn"]["id"], meta["conversation"]["turns"]
        if saved == kept[-1]:
            branch.begin_like(tail, {**meta, "turn": {**meta["turn"], "id": last.id}})
        elif [turn.id for turn in every if turn.status == "done" or turn.id == saved].index(saved) + 1 == remembered:
            if (state := state_behind(parts, meta, len(kept))) is None:
                log.info("branch %s reads its turns from their text: the state behind them is not kept", branch_id)
                return
            own, conversation, listed = state
            answered = {name: getattr(last, name) for name in ("id", "answer", "reasoning", "sources", "measurements")}
            branch.save(own, {"conversation": conversation, "turn": answered, EARLIER: listed}, fingerprint)
    except (StoreError, *CONTRADICTORY) as error:
        log.info("branch %s reads its turns from their text: %s", branch_id, error)


def to_host(parts: "Mapping[str, engine.Part]") -> dict[str, Part]:
    """Return the engine's parts as the store's, in host memory; sealed ones are copied when they are written."""
    return {
        name: Part(part.tensors if part.sealed else {key: x.cpu() for key, x in part.tensors.items()}, part.sealed)
        for name, part in parts.items()
    }
