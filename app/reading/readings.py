"""Readings: read documents once with one model and method, save checkpoints, and end as a context."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

from app.errors import phrase
from app.jobs.work import ReadingHooks, ReadingWork, Stopped
from app.machine.fitting import require_disk, require_memory
from app.reading.checkpoints import CHECKPOINT_SEC, save
from app.reading.documents import LEFT_OUT
from app.reading.memory_map import save_map, with_places
from app.reading.methods import fitted_to_text, spec_of
from app.reading.open_context import check_finished, model_of, saved_context
from app.reading.preparing import OnReport, Prepared
from app.reading.progress import Report
from app.reading.token_stream import Stream
from app.service import Service
from sessions import ContextRow, InUse, StoreError

if TYPE_CHECKING:
    import engine

RESUME_ORDER = ("ready", "paused", "failed", "cancelled", "reading")
"""Statuses of equal readings; the first one found is resumed."""


def find_finished(
    service: Service, prepared: Prepared, warnings: Sequence[str] = (), title: str | None = None
) -> ContextRow | None:
    """Return the finished context for this input if one exists. Does not load the model.

    It is found if the model's files have not changed since. Safe in any thread; `begin` finds all others.
    """
    stamp = service.models.stamp(prepared.model)
    for row in (row for row in _same_request(service, prepared) if row.status == "ready"):
        by = _read_by(service, row)
        if by.get("stamp") == stamp and _matches(row, by["fingerprint"], spec_of(prepared.model), prepared):
            return _reuse(service, row, prepared, warnings, title)
    return None


def find_read_alone(service: Service, document_id: str, method: "engine.Method", settings: dict[str, Any]) -> str:
    """Return the finished context of one document by the default model, or "". Its text is not encoded.

    Args:
        service: the home in use.
        document_id: the document.
        method: the method with all its settings, as `method_for` returns it.
        settings: the settings that a person chose.
    """
    name = service.models.default
    for row in service.store.contexts.all(document_id):
        if row.status != "ready" or row.model != name or row.document_ids != [document_id]:
            continue
        asked = fitted_to_text(method, spec_of(name).window, settings, row.tokens)
        if _has_method(row, asked) and _read_by(service, row).get("stamp") == service.models.stamp(name):
            return row.id
    return ""


def _read_by(service: Service, row: ContextRow) -> dict[str, str]:
    """Return stamp and fingerprint of the model that read a context; nothing if its saved state does not tell."""
    with suppress(StoreError):  # deleted meanwhile, or damaged, as opening it will say
        _, meta = service.store.contexts.state(row.id).load(row.fingerprint, only=())
        return meta.get("model") or {}  # missing in old saved states
    return {}


def begin(
    service: Service,
    prepared: Prepared,
    warnings: Sequence[str] = (),
    report: OnReport = lambda report: None,
    title: str | None = None,
) -> ContextRow:
    """Keep a row for a reading. Loads the model, unless a finished context is found without it.

    Args:
        service: the home in use.
        prepared: the encoded documents.
        warnings: further warnings to keep.
        report: told about progress.
        title: title of the context, also of one that is found; None leaves that unchanged.

    Returns:
        A finished context (status "ready"), or one to pass to `read` (status "reading").

    Raises:
        engine.EngineError: the model cannot be used, or the settings leave no room to read.
        Exception: any exception of `report`, which ends the work; nothing is kept.
        sessions.InUse: it is being read right now.
        AppError: it does not fit the free memory.
    """
    if row := find_finished(service, prepared, warnings, title):
        return row
    name, method, stream = prepared.model, prepared.method, prepared.stream
    begun = any(row.model == name for row in _same_request(service, prepared))
    # A held model will be dropped first, so the memory that is free now says nothing. Readings that exist need less.
    if service.models.held is None and not begun:
        chat = service.models.chat(name)
        require_memory(name, method, len(stream.ids), chat, service.models.device, _read_before(prepared))
    report(Report("loading the model"))
    model = service.models.get(name).on(date.today())

    def same() -> list[ContextRow]:
        return [
            row for row in _same_request(service, prepared) if _matches(row, model.fingerprint, model.spec, prepared)
        ]

    def check() -> None:
        if rows := same():
            raise InUse(f"This has just begun to be read (context {rows[0].id}); wait for it, or cancel it first.")

    if not (there := same()):
        return _create(service, prepared, model, [*prepared.warnings, *warnings], title, check)
    row = service.store.readings.take(min(there, key=lambda row: RESUME_ORDER.index(row.status)).id)
    return _reuse(service, row, prepared, warnings, title)


def _same_request(service: Service, prepared: Prepared) -> list[ContextRow]:
    """Return the contexts of these documents with this method, by any model."""
    ids = prepared.document_ids
    rows = service.store.contexts.all(ids[0])
    return [row for row in rows if row.document_ids == ids and _has_method(row, prepared.method)]


def _has_method(row: ContextRow, asked: "engine.Method") -> bool:
    """Return whether a context has this method with these settings.

    Saved files are the same with every tier, so a request with tier `auto` takes a reading with any.
    """
    import engine

    method = _method_of(row)
    if method is None or method.name != asked.name:
        return False
    settings, wanted = method.settings(), asked.settings()
    if wanted.get("tier") == engine.AUTO:
        settings["tier"] = engine.AUTO
    return settings == wanted


def _matches(row: ContextRow, model: str, spec: "engine.ModelSpec", prepared: Prepared) -> bool:
    """Return whether a context has exactly these tokens and the model with this fingerprint."""
    import engine

    return engine.fingerprint(model, spec, prepared.method, prepared.stream.ids, row.settings) == row.fingerprint


def _reuse(
    service: Service, row: ContextRow, prepared: Prepared, warnings: Sequence[str], title: str | None
) -> ContextRow:
    """Return an earlier context with the present title and warnings."""
    if title:
        row = service.store.contexts.rename(row.id, title)
    # Other files may be left out this time.
    now = list(dict.fromkeys([*_document_warnings(row), *prepared.warnings, *warnings]))
    return row if now == row.warnings else service.store.contexts.update(row.id, warnings=now)


def _create(
    service: Service,
    prepared: Prepared,
    model: "engine.Model",
    warnings: Sequence[str],
    title: str | None,
    check: Callable[[], None],
) -> ContextRow:
    """Keep a row for a new reading with its encoded stream, and with the state of the context that it continues.

    check: raises if an equal reading was begun meanwhile.
    """
    import engine

    store, method, stream, base = service.store, prepared.method, prepared.stream, prepared.base
    there, facts = 0, None
    if base is not None:
        kept = base.usage.get("bytes", {})
        there = kept.get("host", 0) + kept.get("disk", 0)  # the rest is written again
        model, facts = _starting_checkpoint(service, base, model, method, stream)
        title = title or _given_title(service, base)
        warnings = [*_document_warnings(base), *warnings]
    # Refuse readings that cannot fit before memory is taken, and impossible settings before anything is kept.
    plan = service.here.planned(model, prepared.model, method, len(stream.ids), _read_before(prepared))
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
        save=lambda row: save(store.contexts.state(row.id), row, stream, model, {}, facts, beside=base is not None),
        check=check,
    )


def _given_title(service: Service, row: ContextRow) -> str | None:
    """Return the title that somebody gave a context; None if it is made of its documents' titles."""
    titles = ", ".join(each.title for each in service.store.contexts.documents(row.id))
    return row.title if row.title != titles else None


def _read_before(prepared: Prepared) -> int:
    return prepared.base.tokens if prepared.base else 0


def _document_warnings(row: ContextRow) -> list[str]:
    """Return the warnings about documents, without those about files that were left out."""
    return [each for each in row.warnings if not each.startswith(LEFT_OUT)]


def _starting_checkpoint(
    service: Service, base: ContextRow, model: "engine.Model", method: "engine.Method", stream: Stream
) -> tuple["engine.Model", dict[str, Any]]:
    """Return the model that read `base`, and the facts of the first checkpoint of a reading that continues it.

    Raises:
        engine.EngineError: the present method or model cannot continue there.
    """
    import engine

    _, meta = service.store.contexts.state(base.id).load(base.fingerprint, only=())
    model = model_of(base, model, method, replace(stream, ids=stream.ids[: base.tokens]), meta)
    check_finished(base, meta)
    return model, engine.extended(model, method, stream.ids, meta["context"])


def _method_of(row: ContextRow) -> "engine.Method | None":
    """Return the method of a context, with defaults for settings added since; None if there is no such method."""
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
    """Read a context to its end, or resume it, with checkpoints on the way. A finished one is returned unchanged.

    Args:
        service: the home in use.
        context_id: the context.
        report: called after each step; it may answer questions meanwhile, in the same thread, also about the text read
            so far (`Here.under_way`).
        should_stop: asked after each step.
        checkpoint_sec: least time between checkpoints.

    Raises:
        Stopped: `should_stop` returned True; the status is "paused" and a checkpoint is saved.
        Exception: any error; the status is "failed" with a sentence, and the last checkpoint stays.
    """
    row = service.store.contexts.get(context_id)
    if row.status == "ready":
        return row
    contexts = service.store.contexts

    def saved(now: Report) -> None:
        contexts.update(context_id, tokens_read=now.tokens_done, seconds=now.seconds, usage=now.usage)

    hooks = ReadingHooks(report, should_stop, saved, may_save=lambda: contexts.check_unread(context_id))
    try:
        return _read(service, row, hooks, checkpoint_sec)
    except Stopped:
        service.store.contexts.update(context_id, status="paused")
        raise
    except BaseException as error:
        _note_failure(service, context_id, error)
        raise


def _note_failure(service: Service, context_id: str, error: BaseException) -> None:
    """Keep the reason of a failure; a reading interrupted by Ctrl-C is only paused."""
    status = "paused" if isinstance(error, KeyboardInterrupt) else "failed"
    # The context may have been deleted, or the store may have failed; the first error is the cause.
    with suppress(StoreError):
        service.store.contexts.update(context_id, status=status, error=None if status == "paused" else phrase(error))


def _read(service: Service, row: ContextRow, hooks: ReadingHooks, checkpoint_sec: float) -> ContextRow:
    contexts = service.store.contexts
    contexts.update(row.id, status="reading", error=None)
    done = service.runner.read(ReadingWork(saved_context(service, row), checkpoint_sec), hooks)
    save_map(service.store, row.id, with_places(done.map, service.document_cache))
    seconds = max(done.seconds, row.seconds)  # one that was resumed at its end has no time of its own
    return contexts.update(row.id, status="ready", tokens_read=done.tokens_read, seconds=seconds, usage=done.usage)
