"""Preparing a reading: documents are turned into tokens, and what is to read them is settled. No weights are needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.errors import AppError
from app.reading.documents import LEFT_OUT
from app.reading.methods import method_for, spec_of
from app.reading.progress import Report
from app.reading.token_stream import PART, Stream, compose
from app.service import Service
from sessions import ContextRow

if TYPE_CHECKING:
    import engine

OnReport = Callable[[Report], None]


@dataclass(frozen=True)
class Prepared:
    """Documents, encoded, and the model and method that are to read them: as much of a reading as needs no weights.

    chat: of the model; base: a finished reading of the first of these documents, behind whose end it goes on; warnings:
    of documents that are not read.
    """

    model: str
    chat: "engine.Chat"
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
    """Encode documents in this order; in any thread, also while another one reads.

    Args:
        settings: of the method, budget included; text values are read as the setting's type.

    Raises:
        engine.EngineError: the settings or the model cannot be.
        Exception: whatever `report` raises, which ends it.
    """
    name = model_name or service.models.default
    method, chat = method_for(name, method_name, settings), service.models.chat(name)
    return Prepared(name, chat, method, list(document_ids), _encoded(service, chat, document_ids, report))


def prepare_more(
    service: Service, base_id: str, document_ids: Sequence[str], report: OnReport = lambda report: None
) -> Prepared:
    """Encode documents that are to be read behind what a context has read, of which nothing is read again.

    Raises:
        sessions.StoreError: there is no such context, or its files are not what was written.
        AppError: nothing can be added to it, or it has read all of these.
        engine.SettingsError: together with these its method would have read it otherwise.
        Exception: whatever `report` raises, which ends it.
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
    return Prepared(base.model, chat, method, [*base.document_ids, *new], stream, base, left_out)


def base_for(service: Service, context_id: str, document_ids: Sequence[str] = ()) -> ContextRow:
    """The context that documents, or files, are to be added to.

    Args:
        document_ids: of all that is to be added, where that is known.

    Raises:
        sessions.NotFound: there is none.
        AppError: nothing can be added to it, or it has read all of these.
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
    """Whether documents can be added to what a context has read: to its end, and all of it."""
    return row.status == "ready" and row.tokens_read >= row.tokens


def _encoded(
    service: Service, chat: "engine.Chat", document_ids: Sequence[str], report: OnReport, behind: Stream | None = None
) -> Stream:
    return compose(
        chat,
        [(each, service.library.document(each)) for each in document_ids],
        lambda share: report(Report(f"turning text into tokens: {share:.0%}")),
        behind,
    )
