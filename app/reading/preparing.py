"""Prepare a reading: encode documents as tokens and choose model and method. No weights are needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.errors import AppError
from app.reading.documents import LEFT_OUT
from app.reading.methods import fitted_to_text, method_for, spec_of
from app.reading.progress import Report
from app.reading.token_stream import PART, Stream, compose
from app.service import Service
from sessions import ContextRow

if TYPE_CHECKING:
    import engine

OnReport = Callable[[Report], None]


@dataclass(frozen=True)
class Prepared:
    """Encoded documents, and the model and method that will read them.

    It holds no tokenizer, which can take 100 MB, because many may wait for the model at a time.

    model: name of the model.
    base: finished context of the first of these documents; the reading continues at its end.
    warnings: warnings about documents that are left out.
    """

    model: str
    method: "engine.Method"
    document_ids: list[str]
    stream: Stream
    base: ContextRow | None = None
    warnings: tuple[str, ...] = ()


def prepare(
    service: Service,
    document_ids: Sequence[str],
    method_name: str,
    settings: dict[str, Any],
    model_name: str | None = None,
    report: OnReport = lambda report: None,
) -> Prepared:
    """Encode documents in this order. Safe in any thread, also while another thread reads.

    Args:
        service: the home in use.
        document_ids: the documents, in reading order.
        method_name: name of the method.
        settings: its settings with the budget; text values are converted to the setting's type.
        model_name: name of the model; None for the default one.
        report: told about progress.

    Raises:
        engine.EngineError: the settings or the model are impossible.
        Exception: any exception of `report`, which ends the work.
    """
    name = model_name or service.models.default
    method = method_for(name, method_name, settings)  # refuses impossible ones before any work
    chat = service.models.chat(name)
    stream = _encoded(service, chat, document_ids, report)
    method = fitted_to_text(method, spec_of(name).window, settings, len(stream.ids))
    return Prepared(name, method, list(document_ids), stream)


def prepare_more(
    service: Service, base_id: str, document_ids: Sequence[str], report: OnReport = lambda report: None
) -> Prepared:
    """Encode documents to be read after the end of a finished context, none of which is read again.

    Raises:
        sessions.StoreError: there is no such context, or its files are not those that were written.
        AppError: documents cannot be added to it, or it has read all of these.
        engine.SettingsError: the method would have read the longer text with other settings.
        Exception: any exception of `report`, which ends the work.
    """
    import engine

    base = base_for(service, base_id, document_ids)
    known = [row for row in service.store.documents.existing(document_ids) if row.id in base.document_ids]
    new = [id for id in document_ids if id not in base.document_ids]
    parts, meta = service.store.contexts.state(base.id).load(base.fingerprint, only={PART})
    before = Stream.load(parts[PART], meta["stretches"])
    method, chat = engine.make_method(base.method, **base.settings), service.models.chat(base.model)
    stream = _encoded(service, chat, new, report, before)
    method.require_extendable(spec_of(base.model), base.tokens, len(stream.ids), len(chat.prefix))
    left_out = tuple(f"{LEFT_OUT}{row.title!r} has been read already." for row in known)
    return Prepared(base.model, method, [*base.document_ids, *new], stream, base, left_out)


def base_for(service: Service, context_id: str, document_ids: Sequence[str] = ()) -> ContextRow:
    """Return the context that documents or files are to be added to.

    Args:
        service: the home in use.
        context_id: the context.
        document_ids: the documents to be added, as far as they are known.

    Raises:
        sessions.NotFound: there is no such context.
        AppError: documents cannot be added to it, or it has read all of these.
    """
    row = service.store.contexts.get(context_id)
    if row.status != "ready":
        raise AppError(
            f"Context {row.id} ({row.title}) is {row.status}, and documents are added to what has been read to its "
            f"end: wait for it, or go on with `stockpot resume {row.id}`."
        )
    if not can_grow(row):
        raise AppError(
            f"Of context {row.id} ({row.title}) {row.method} has left out the middle, and with more to read it would "
            "have left out more: read all of it together."
        )
    if document_ids and set(document_ids) <= set(row.document_ids):
        titles = " and ".join(f"{each.title!r}" for each in service.store.documents.existing(document_ids))
        raise AppError(f"{titles} has been read in context {row.id} ({row.title}): there is nothing to add.")
    return row


def can_grow(row: ContextRow) -> bool:
    """Return whether documents can be added to a context: it is finished and remembers all of its text."""
    return row.status == "ready" and row.tokens_read >= row.tokens


def _encoded(
    service: Service, chat: "engine.Chat", document_ids: Sequence[str], report: OnReport, behind: Stream | None = None
) -> Stream:
    return compose(
        chat,
        [(each, service.document_cache.document(each)) for each in document_ids],
        lambda share: report(Report(f"turning text into tokens: {share:.0%}")),
        behind,
    )
