"""Readings: documents are read once by one model with one method, with checkpoints, and become a context."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

from app.errors import AppError, phrase
from app.machine.planning import course, plan_reading, require_disk, require_memory
from app.reading.checkpoints import CHECKPOINT_SEC, Checkpoints, save
from app.reading.context_cache import OpenContext
from app.reading.documents import LEFT_OUT
from app.reading.memory_map import keep_map, memory_map
from app.reading.methods import spec_of
from app.reading.open_context import check_finished, model_of, to_keep
from app.reading.preparing import OnReport, Prepared
from app.reading.progress import Report, usage_json
from app.reading.saved_state import check_context
from app.reading.token_stream import PART, Stream
from app.service import Service
from sessions import ContextRow, InUse, StoreError

if TYPE_CHECKING:
    import engine

FURTHEST = ("ready", "paused", "failed", "cancelled", "reading")
"""Statuses of readings of the same: which of them is gone on with, first."""


class Stopped(Exception):
    """The work was asked to stop. Of a reading a checkpoint is saved, and it can be taken up again."""


def known(
    service: Service, prepared: Prepared, warnings: Sequence[str] = (), title: str | None = None
) -> ContextRow | None:
    """The context, if exactly this was read to its end before and no model is needed to tell: the files of the one that
    read it are what they were. In any thread; else as `begin`, to which all others are left.
    """
    stamp = service.models.stamp(prepared.model)
    for row in (row for row in _alike(service, prepared) if row.status == "ready"):
        with suppress(StoreError):  # deleted meanwhile, or damaged, which opening it says
            _, meta = service.store.contexts.state(row.id).load(row.fingerprint, only=())
            by = meta.get("model")  # what was read of old does not say
            if by and by["stamp"] == stamp and _is_of(row, by["fingerprint"], spec_of(prepared.model), prepared):
                return _renewed(service, row, prepared, warnings, title)
    return None


def begin(
    service: Service,
    prepared: Prepared,
    warnings: Sequence[str] = (),
    report: OnReport = lambda report: None,
    title: str | None = None,
) -> ContextRow:
    """Keep a row for a reading; the model is loaded, unless what was read is known without.

    Args:
        title: what it is to be called, also if it was read before; None leaves that as it is.

    Returns:
        A context of status "ready" if exactly this was read before, else "reading": pass it to `read`.

    Raises:
        engine.EngineError: the model cannot be used, or the settings leave no room to read.
        Exception: whatever `report` raises, which ends it: nothing is kept.
        sessions.InUse: it is being read right now.
        AppError: it would not fit the memory that is free.
    """
    if row := known(service, prepared, warnings, title):
        return row
    name, method, stream = prepared.model, prepared.method, prepared.stream
    begun = any(row.model == name for row in _alike(service, prepared))
    # Where a model is held, what is free is not what will be, once it has gone; what was read needs no more room, nor
    # does what was begun need as much.
    if service.models.held is None and not begun:
        require_memory(name, method, len(stream.ids), prepared.chat, service.models.device, _read_before(prepared))
    report(Report("loading the model"))
    model = service.models.get(name).on(date.today())

    def same() -> list[ContextRow]:
        return [row for row in _alike(service, prepared) if _is_of(row, model.fingerprint, model.spec, prepared)]

    def check() -> None:
        if rows := same():
            raise InUse(f"This has just begun to be read (context {rows[0].id}); wait for it, or cancel it first.")

    if not (there := same()):
        return _begun(service, prepared, model, [*prepared.warnings, *warnings], title, check)
    row = service.store.readings.take(min(there, key=lambda row: FURTHEST.index(row.status)).id)
    return _renewed(service, row, prepared, warnings, title)


def _alike(service: Service, prepared: Prepared) -> list[ContextRow]:
    """The readings of these documents with this method, by whichever model."""
    ids, method = prepared.document_ids, prepared.method
    return [row for row in service.store.contexts.all(ids[0]) if row.document_ids == ids and _method_of(row) == method]


def _is_of(row: ContextRow, model: str, spec: "engine.ModelSpec", prepared: Prepared) -> bool:
    """Whether a reading is of just these tokens by this model, of which `model` is the fingerprint."""
    import engine

    return engine.fingerprint(model, spec, prepared.method, prepared.stream.ids, row.settings) == row.fingerprint


def _renewed(
    service: Service, row: ContextRow, prepared: Prepared, warnings: Sequence[str], title: str | None
) -> ContextRow:
    """What was read before, called as it is to be called now, with the warnings of now."""
    if title:
        row = service.store.contexts.rename(row.id, title)
    # This time other files may have been left out, or none.
    now = list(dict.fromkeys([*_lasting(row), *prepared.warnings, *warnings]))
    return row if now == row.warnings else service.store.contexts.update(row.id, warnings=now)


def _begun(
    service: Service,
    prepared: Prepared,
    model: "engine.Model",
    warnings: Sequence[str],
    title: str | None,
    check: Callable[[], None],
) -> ContextRow:
    """Keep a row for what was not read before, with the encoded stream, so that nothing has to be encoded again, and
    with what is known already of its beginning.

    check: raises if it has been begun meanwhile.
    """
    import engine

    store, method, stream, base = service.store, prepared.method, prepared.stream, prepared.base
    there, facts = 0, None
    if base is not None:
        kept = base.usage.get("bytes", {})
        there = kept.get("host", 0) + kept.get("disk", 0)  # the rest is written anew
        model, facts = _beginning(service, base, model, method, stream)
        title = title or _own_title(service, base)
        warnings = [*_lasting(base), *warnings]
    # Refuses what cannot fit, before any of it is taken, and settings that leave no room, before anything is kept.
    plan = _planned(service, model, prepared.model, method, len(stream.ids), _read_before(prepared))
    method.new_memory(model.spec, model.turn_length)
    require_disk(plan, service.home, there)
    return store.contexts.add(
        model=prepared.model,
        method=method.name,
        settings=method.settings(),
        budget=method.budget,
        fingerprint=engine.fingerprint(model.fingerprint, model.spec, method, stream.ids),
        document_ids=prepared.document_ids,
        tokens=len(stream.ids),
        warnings=list(dict.fromkeys([*warnings, *filter(None, [plan.beyond])])),
        title=title,
        base=base,
        save=lambda row: save(service, row, stream, model, {}, facts, beside=base is not None),
        check=check,
    )


def _planned(
    service: Service, model: "engine.Model", name: str, method: "engine.Method", tokens: int, read_before: int
) -> "engine.Plan":
    """As `plan_reading`; where what is open in memory leaves too little, it is let go of, as it is on disk anyway."""
    try:
        return plan_reading(model, name, method, tokens, read_before)
    except AppError:
        if not service.contexts.ids():
            raise
    service.forget_open()
    return plan_reading(model, name, method, tokens, read_before)


def _own_title(service: Service, row: ContextRow) -> str | None:
    """What somebody called a context, which so is called when it has grown; None if that are its documents' titles."""
    titles = ", ".join(each.title for each in service.store.contexts.documents(row.id))
    return row.title if row.title != titles else None


def _read_before(prepared: Prepared) -> int:
    return prepared.base.tokens if prepared.base else 0


def _lasting(row: ContextRow) -> list[str]:
    """Warnings that say something of the documents, and not of files that were left out."""
    return [each for each in row.warnings if not each.startswith(LEFT_OUT)]


def _beginning(
    service: Service, base: ContextRow, model: "engine.Model", method: "engine.Method", stream: Stream
) -> tuple["engine.Model", dict[str, Any]]:
    """What a context was read by, and what it has read, as the facts of the first checkpoint of a reading that goes on
    behind it.

    Raises:
        engine.EngineError: the method or the model as it is now cannot go on there.
    """
    import engine

    _, meta = service.store.contexts.state(base.id).load(base.fingerprint, only=())
    model = model_of(base, model, method, replace(stream, ids=stream.ids[: base.tokens]), meta)
    check_finished(base, meta)
    return model, engine.extended(model, method, stream.ids, meta["context"])


def _method_of(row: ContextRow) -> "engine.Method | None":
    """What read a context, with defaults for settings that it did not have then; None if there is no such method."""
    import engine

    try:
        return engine.make_method(row.method, **row.settings)
    except engine.SettingsError:
        return None


def read(
    service: Service,
    context_id: str,
    report: OnReport,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_sec: float = CHECKPOINT_SEC,
) -> ContextRow:
    """Read (or go on reading) a context to its end, saving checkpoints on the way; one that is ready is left as it is.

    Args:
        report: called after every step; may answer questions in between, as both run in one thread, also about what
            has been read so far (`Service.under_way`).
        should_stop: asked after every step.
        checkpoint_sec: time between checkpoints, unless saving takes so long that it should be rarer.

    Raises:
        Stopped: `should_stop` said so; status is "paused" and the checkpoint is saved.
        Exception: whatever went wrong; status is "failed" with a sentence, and the last checkpoint stays.
    """
    row = service.store.contexts.get(context_id)
    if row.status == "ready":
        return row
    try:
        return _read(service, row, report, should_stop, checkpoint_sec)
    except Stopped:
        service.store.contexts.update(context_id, status="paused")
        raise
    except BaseException as error:
        _note_failure(service, context_id, error)
        raise
    finally:
        service.under_way = None


def _note_failure(service: Service, context_id: str, error: BaseException) -> None:
    """Keep the reason; a reading that is interrupted from outside is only paused."""
    status = "paused" if isinstance(error, KeyboardInterrupt) else "failed"
    # The context may have been deleted meanwhile, or the store itself failed: the first error says more.
    with suppress(StoreError):
        service.store.contexts.update(context_id, status=status, error=None if status == "paused" else phrase(error))


def _read(
    service: Service, row: ContextRow, report: OnReport, should_stop: Callable[[], bool], checkpoint_sec: float
) -> ContextRow:
    import engine

    report(Report("loading the model", row.tokens_read, row.tokens))
    found = service.models.get(row.model)
    method = engine.make_method(row.method, **row.settings)
    parts, meta = service.store.contexts.state(row.id).load(row.fingerprint)
    check_context(row, parts, meta)
    stream = Stream.load(parts.pop(PART), meta["stretches"])
    model = model_of(row, found, method, stream, meta)
    if meta["context"]:  # whoever read it to its end may have died before its row said so
        reader = engine.Reader.resume(model, method, stream.ids, parts, meta["context"])
    else:
        chunk = _planned(service, model, row.model, method, len(stream.ids), row.tokens_read).chunk
        reader = (
            engine.Reader.resume(model, method, stream.ids, parts, meta["reader"], chunk)
            if meta["reader"]
            else engine.Reader(model, method, stream.ids, chunk)
        )
    reader.memory.adopt(parts)
    service.store.contexts.update(row.id, status="reading", error=None)
    now = Report("reading", row.tokens_read, row.tokens, row.seconds)
    before = len(model.chat.prefix)  # the chat template's own tokens, which are nobody's text
    total = reader.total - before
    seconds_left = course(model, method, total, row.read_before)
    with Checkpoints(service, row, stream, reader, checkpoint_sec) as checkpoints:
        for progress in reader.run():
            done = max(0, progress.tokens_done - before)
            now = Report(
                progress.stage,
                done,
                total,
                progress.seconds,
                seconds_left(done, progress.seconds),
                progress.tokens_per_second,
                usage_json(progress.usage),
            )
            share = now.tokens_done / now.tokens_total
            service.under_way = OpenContext(row, model, reader.so_far(), stream, {}, share)
            report(now)
            if reader.finished:
                break  # saving it is all that is left, for which a stop comes too late
            if should_stop():
                checkpoints.save_now(now)
                raise Stopped
            checkpoints.after_step(now)
    now = replace(now, usage=usage_json(reader.memory.usage()))  # the last checkpoint may have let go of something
    report(Report("saving", now.tokens_done, now.tokens_total, now.seconds, 0.0, now.tokens_per_second, now.usage))
    context = reader.context()
    stretches = memory_map(context.remembered(), stream, service.library)
    state, facts = context.state()
    save(service, row, stream, model, to_keep(state), context=facts)  # nothing, if it was deleted meanwhile
    keep_map(service.store, row.id, stretches)
    seconds = max(now.seconds, row.seconds)  # a reading that was finished before it was taken up has no clock
    return service.store.contexts.update(
        row.id, status="ready", tokens_read=now.tokens_total, seconds=seconds, usage=now.usage
    )
