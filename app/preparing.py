"""Preparing a reading: documents are turned into tokens, and what is to read them is settled. No weights are needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.errors import AppError
from app.methods import method_for
from app.progress import Report
from app.service import Service
from app.stream import PART, Stream, compose
from sessions import ContextRow

if TYPE_CHECKING:
    import engine

OnReport = Callable[[Report], None]


@dataclass(frozen=True)
class Prepared:
    """Documents, encoded, and the model and method that are to read them: as much of a reading as needs no weights.

    chat: of the model; base: a finished reading of the first of these documents, behind whose end it goes on.
    """

    model: str
    chat: "engine.Chat"
    method: "engine.Method"
    document_ids: list[str]
    stream: Stream
    base: ContextRow | None = None


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
        AppError: it has not been read to its end, or has read one of these documents.
        Exception: whatever `report` raises, which ends it.
    """
    import engine

    base = to_add_to(service, base_id)
    if twice := [f"{row.title!r}" for row in service.store.documents(document_ids) if row.id in base.document_ids]:
        raise AppError(f"{base.id} has read {' and '.join(twice)} already: add what it has not read.")
    parts, meta = service.store.context_state(base.id).load(base.fingerprint, only={PART})
    before = Stream.load(parts[PART], meta["stretches"])
    method, chat = engine.make_method(base.method, **base.settings), service.models.chat(base.model)
    stream = _encoded(service, chat, document_ids, report, before)
    return Prepared(base.model, chat, method, [*base.document_ids, *document_ids], stream, base)


def to_add_to(service: Service, context_id: str) -> ContextRow:
    """A context, if more can be read behind what it has read.

    Raises:
        sessions.NotFound: there is none.
        AppError: it has not been read to its end.
    """
    row = service.store.context(context_id)
    if row.status != "ready":
        raise AppError(
            f"Context {row.id} is {row.status}, and documents are added to what has been read to its end: wait "
            f"for it, or go on with `stockpot resume {row.id}`."
        )
    return row


def _encoded(
    service: Service, chat: "engine.Chat", document_ids: Sequence[str], report: OnReport, behind: Stream | None = None
) -> Stream:
    return compose(
        chat,
        [(each, service.library.document(each)) for each in document_ids],
        lambda share: report(Report(f"turning text into tokens: {share:.0%}")),
        behind,
    )
