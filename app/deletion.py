"""Delete documents, contexts and sessions, and say beforehand what is deleted with them."""

from collections.abc import Sequence

from app.errors import AppError
from app.formatting import plural
from app.jobs.uploads import awaited, discard_locked
from app.language import t
from app.listing import Row, begins_id, joined
from app.service import Service
from sessions import ContextRow, DocumentRow, SessionRow, shown_title


def own_documents(service: Service, row: ContextRow) -> list[DocumentRow]:
    """Return the documents of a context that nothing else uses."""
    store, others = service.store, awaited(service)
    return [
        each
        for each in store.contexts.documents(row.id)
        if len(store.contexts.all(each.id)) == 1 and each.id not in others
    ]


def _contexts_with(service: Service, kind: str, rows: Sequence[Row]) -> list[str]:
    """Return the contexts that are deleted with things of a kind, each once."""
    if kind == "document":
        return list(dict.fromkeys(each.id for row in rows for each in service.store.contexts.all(row.id)))
    return [row.id for row in rows] if kind == "context" else []


def _titled_context(row: ContextRow) -> str:
    """Return “Title”, with the number of documents if there are several."""
    many = len(row.document_ids)
    return f"“{shown_title(row.title)}”{t(' of {n} documents', n=many) if many > 1 else ''}"


def deleted_with(service: Service, kind: str, *rows: Row) -> str:
    """Return in words what is deleted with things of a kind, to follow their titles.

    For documents and contexts: " with 1 context (“Emma”) and 2 sessions (“Who?” and “When?”)". For sessions: the
        contexts
    that they are over.
    """
    store = service.store
    if kind == "session":
        over = dict.fromkeys(row.context_id for row in rows if isinstance(row, SessionRow))
        return t(" over {titles}", titles=joined([_titled_context(store.contexts.get(each)) for each in over]))
    contexts = [store.contexts.get(each) for each in _contexts_with(service, kind, rows)]
    talks = [f"“{shown_title(each.title)}”" for context in contexts for each in store.sessions.all(context.id)]
    parts = []
    if contexts and kind == "document":
        parts.append(f"{plural(len(contexts), 'context')} ({joined([_titled_context(each) for each in contexts])})")
    if talks:
        parts.append(f"{plural(len(talks), 'session')} ({joined(talks)})")
    return t(" with {things}", things=t(" and ").join(parts)) if parts else ""


def bytes_to_free(service: Service, kind: str, *rows: Row) -> int:
    """Return the bytes of disk that are freed if things of a kind are deleted with everything derived from them."""
    store, contexts = service.store, _contexts_with(service, kind, rows)
    talks = [each.id for context in contexts for each in store.sessions.all(context)]
    return store.folders.bytes_to_free({*(row.id for row in rows), *contexts, *talks})


def describe_deletion(service: Service, kind: str, row: Row, text: str, *, asked: bool) -> str:
    """Return a thing to be deleted in words: "document d-… (Title) with 1 context (“Title”)".

    Args:
        service: the home in use.
        kind: "document", "context" or "session".
        row: the thing.
        text: the text that named it.
        asked: whether a person will confirm, and so sees which thing the beginning of a title has matched.

    Raises:
        AppError: nobody will confirm, and the text is only the beginning of a title.
    """
    assert isinstance(row, DocumentRow | ContextRow | SessionRow)
    wanted = text.strip()
    what = f"{kind} {row.id} ({row.title}){deleted_with(service, kind, row)}"
    if not (asked or begins_id(row.id, wanted) or row.title.casefold() == wanted.casefold()):
        raise AppError(f"{text!r} only begins the title of {what}: to delete it unasked, name it by its id.")
    return what


def delete(service: Service, kind: str, *rows: Row) -> None:
    """Delete documents, contexts or sessions with everything derived from them, and with copies that wait for a
    password.

    Raises:
        sessions.InUse: one is in use; nothing was deleted.
    """
    contexts = _contexts_with(service, kind, rows)
    {
        "document": service.store.documents.delete,
        "context": service.store.contexts.delete,
        "session": service.store.sessions.delete,
    }[kind](*(row.id for row in rows))
    for each in contexts:
        service.contexts.drop(each)  # drops its conversations too; others stay open, because one may be answering
    for row in rows:
        service.conversations.drop(row.id)
        service.document_cache.drop(row.id)
    discard_locked(service, [row.sha256 for row in rows if isinstance(row, DocumentRow)])
