"""Delete documents, contexts and sessions, and say beforehand what is deleted with them."""

from collections.abc import Sequence

from app.errors import AppError
from app.formatting import plural
from app.jobs.uploads import awaited, discard_locked
from app.listing import Row, begins_id
from app.service import Service
from sessions import ContextRow, DocumentRow, SessionRow, listed, shown_title


def own_documents(service: Service, row: ContextRow) -> list[DocumentRow]:
    """The documents of a context that nothing else uses."""
    store, others = service.store, awaited(service)
    return [
        each for each in store.context_documents(row.id) if len(store.contexts(each.id)) == 1 and each.id not in others
    ]


def _contexts_with(service: Service, kind: str, rows: Sequence[Row]) -> list[str]:
    """The contexts that go when things of a kind are deleted; one may have read several of the documents."""
    if kind == "document":
        return list(dict.fromkeys(each.id for row in rows for each in service.store.contexts(row.id)))
    return [row.id for row in rows] if kind == "context" else []


def _titled_context(row: ContextRow) -> str:
    """“Title”, and how many documents it is of where it is of several."""
    many = len(row.document_ids)
    return f"“{shown_title(row.title)}”{f' of {many:,} documents' if many > 1 else ''}"


def deleted_with(service: Service, kind: str, *rows: Row) -> str:
    """What goes with things of a kind when they are deleted, in words and by its titles, to be put behind theirs:
    " with 1 context (“Emma”) and 2 sessions (“Who?” and “When?”)"; of sessions, over which contexts they are.
    """
    store = service.store
    if kind == "session":
        over = dict.fromkeys(row.context_id for row in rows if isinstance(row, SessionRow))
        return f" over {listed([_titled_context(store.context(each)) for each in over])}"
    contexts = [store.context(each) for each in _contexts_with(service, kind, rows)]
    talks = [f"“{shown_title(each.title)}”" for context in contexts for each in store.sessions(context.id)]
    parts = []
    if contexts and kind == "document":
        parts.append(f"{plural(len(contexts), 'context')} ({listed([_titled_context(each) for each in contexts])})")
    if talks:
        parts.append(f"{plural(len(talks), 'session')} ({listed(talks)})")
    return f" with {' and '.join(parts)}" if parts else ""


def bytes_to_free(service: Service, kind: str, *rows: Row) -> int:
    """What things of a kind leave free on the disk when they are deleted, with all that goes with them."""
    store, contexts = service.store, _contexts_with(service, kind, rows)
    talks = [each.id for context in contexts for each in store.sessions(context)]
    return store.bytes_to_free({*(row.id for row in rows), *contexts, *talks})


def describe_deletion(service: Service, kind: str, row: Row, text: str, *, asked: bool) -> str:
    """A thing that is named to be deleted, in words: "document d-… (Title) with 1 context (“Title”)".

    Args:
        text: what it was named by.
        asked: a person is asked before it is deleted, who then sees what the beginning of a title led to.

    Raises:
        AppError: nobody is asked, and the text is no more than the beginning of a title.
    """
    assert isinstance(row, DocumentRow | ContextRow | SessionRow)
    wanted = text.strip()
    what = f"{kind} {row.id} ({row.title}){deleted_with(service, kind, row)}"
    if not (asked or begins_id(row.id, wanted) or row.title.casefold() == wanted.casefold()):
        raise AppError(f"{text!r} only begins the title of {what}: to delete it unasked, name it by its id.")
    return what


def delete(service: Service, kind: str, *rows: Row) -> None:
    """Delete documents, contexts or sessions with all that derives from them, and copies that wait for a password.

    Raises:
        sessions.InUse: one is being worked with; nothing was deleted.
    """
    contexts = _contexts_with(service, kind, rows)
    {
        "document": service.store.delete_document,
        "context": service.store.delete_context,
        "session": service.store.delete_session,
    }[kind](*(row.id for row in rows))
    for each in contexts:
        service.contexts.drop(each)  # with the conversations over it; the others stay open, one may be answering
    for row in rows:
        service.conversations.drop(row.id)
        service.document_cache.drop(row.id)
    discard_locked(service, [row.sha256 for row in rows if isinstance(row, DocumentRow)])
