"""Open contexts and conversations from disk without reading anything again, and save conversations."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from app.asking.demo_answer import as_said
from app.errors import AppError
from app.jobs.work import SavedContext, SavedSession
from app.machine.fitting import placed
from app.reading.context_cache import OpenContext, OpenConversation
from app.reading.earlier_turns import BEGINS, EARLIER, kept_turns, state_behind
from app.reading.saved_state import check_context, check_conversation
from app.reading.token_stream import PART, Stream
from sessions import ContextRow, DiskFull, Part, StoreCorrupt, StoreError, TensorFolder

if TYPE_CHECKING:
    import engine
    from app.jobs.here import Here
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
    row = service.store.contexts.get(context_id)
    require_begun(service, row)
    return opened_context(service.here, saved_context(service, row))


def saved_context(service: "Service", row: ContextRow) -> SavedContext:
    """Return a context as work needs it."""
    return SavedContext(row, service.store.contexts.state(row.id).path)


def saved_session(service: "Service", session_id: str) -> SavedSession:
    """Return a session as work needs it, after its last turn was finished as saved with the conversation.

    It may be unfinished, because the store could not be written when it ended.
    """
    store, folder = service.store, service.store.sessions.state(session_id)
    turns = store.turns.all(session_id)
    if any(turn.status != "done" for turn in turns) and folder.exists():
        with suppress(StoreError, *CONTRADICTORY):  # as opening the conversation will say
            _, meta = folder.load(only=())
            check_conversation(meta)
            store.turns.finish_as_saved(meta["turn"])
            turns = store.turns.all(session_id)
    said = tuple((turn.question, turn.answer) for turn in turns if turn.status == "done")
    return SavedSession(session_id, folder.path, tuple(turn.id for turn in turns), said)


def opened_context(here: "Here", saved: SavedContext) -> OpenContext:
    """Return a context of which some text was read, see `open_context`."""
    id = saved.row.id
    if reading := here.read_here(id):
        return reading
    usage = saved.row.usage.get("bytes", {})
    expected = int(usage.get("device", 0)) + int(usage.get("host", 0))

    def load() -> OpenContext:
        return _load_context(here, saved)

    contexts = here.contexts
    return _current(TensorFolder(saved.folder), lambda: contexts.get(id, expected, load), lambda: contexts.drop(id))


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


def _load_context(here: "Here", saved: SavedContext) -> OpenContext:
    import engine

    row, folder = saved.row, TensorFolder(saved.folder)
    found = here.models.get(row.model)
    method = engine.make_method(row.method, **row.settings)
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


def open_conversation(service: "Service", session_id: str) -> OpenConversation:
    """Return the session's conversation with all of its turns, see `opened_conversation`."""
    row = service.store.contexts.get(service.store.sessions.get(session_id).context_id)
    require_begun(service, row)
    return opened_conversation(service.here, saved_context(service, row), saved_session(service, session_id))


def opened_conversation(
    here: "Here",
    context: SavedContext,
    session: SavedSession,
    on_pass: Callable[[], None] = lambda: None,
    on_turn: Callable[[int, int], None] = lambda done, total: None,
) -> OpenConversation:
    """Return the session's conversation with all of its turns.

    Some sessions have no saved conversation: branches from turns whose state is not kept, sessions whose last turn was
    lost, and sessions over unfinished contexts. Their turns are read again from their text, which counts in the time to
    the first token. The next answer saves the conversation if the context is finished.

    Args:
        here: holds what is open.
        context: the context.
        session: the session.
        on_pass: called after each pass over those turns; its exception ends the work, and nothing is kept.
        on_turn: told how many of those turns are read, and how many there are.
    """
    import engine

    opened = opened_context(here, context)  # marks it as in use
    if opened.share is not None:  # more is read by the next question
        early = OpenConversation(opened, engine.Conversation(opened.context), {})
        _replay(session, early, on_pass, on_turn)
        return early

    def load() -> OpenConversation:
        return _load_conversation(session, opened)

    folder, conversations = TensorFolder(session.folder), here.conversations
    held = _current(folder, lambda: conversations.get(session.id, load), lambda: conversations.drop(session.id))
    if not held.conversation.turns:
        try:
            _replay(session, held, on_pass, on_turn)
        except BaseException:
            conversations.drop(session.id)  # it holds only some of its turns
            raise
    return held


def _replay(
    session: SavedSession,
    held: OpenConversation,
    on_pass: Callable[[], None],
    on_turn: Callable[[int, int], None],
) -> None:
    total = len(session.said)
    for done, (question, answer) in enumerate(session.said):
        on_turn(done, total)
        held.conversation.replay(question, as_said(held.opened.row.model, answer), on_pass)
    on_turn(total, total)


def _load_conversation(session: SavedSession, opened: OpenContext) -> OpenConversation:
    import engine

    folder = TensorFolder(session.folder)
    stamps = folder.stamps()
    if not folder.exists():
        return OpenConversation(opened, engine.Conversation(opened.context), stamps)
    parts, meta = folder.load(opened.row.fingerprint, without=BEGINS)
    try:
        check_conversation(meta)
    except CONTRADICTORY as error:
        raise StoreCorrupt(
            f"What is saved of session {session.id} contradicts itself ({error}): branch {session.id} and go on in the "
            "branch, which reads the turns that it keeps from their text."
        ) from error
    if meta["turn"]["id"] not in session.turns:
        log.warning("session %s remembers a turn that is not kept: it is read anew from those that are", session.id)
        folder.discard()
        return OpenConversation(opened, engine.Conversation(opened.context), folder.stamps())
    return OpenConversation(opened, engine.Conversation.load(opened.context, parts, meta["conversation"]), stamps)


def save_conversation(folder: TensorFolder, open_one: OpenConversation, turn: dict[str, Any]) -> None:
    """Save a session's conversation in its folder, with its last turn (id, answer, reasoning, sources, measurements).

    Earlier states are kept with it as far as there is room (`earlier_turns.py`).
    """
    saved, meta = open_one.conversation.state()
    fingerprint = open_one.opened.row.fingerprint
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
