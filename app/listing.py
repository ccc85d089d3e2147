"""Find documents, contexts and sessions by id, prefix or title; list, show and rename them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import sessions
from app.asking.introduction import introduction_json, load_introduction
from app.asking.named_pages import as_kept, named_pages, page_name
from app.asking.turns import checked_pages
from app.errors import Ambiguous, AppError, NotFound
from app.formatting import either
from app.jobs.job_runner import READ
from app.language import figure, t
from app.machine.model_names import shown_name
from app.reading.memory_map import load_map
from app.reading.open_context import require_begun
from app.service import Service
from sessions import MOST_LISTED, ContextRow, DocumentRow, JobRow, SessionRow, TurnRow, listed


def method_in_short(context: ContextRow) -> str:
    """Return the method and budget of a context: "exact · 512"."""
    return f"{context.method} · {figure(f'{context.budget:,}')}" if context.budget else context.method


def how_read(context: ContextRow) -> list[str]:
    """Return the model of a context, and its method with the budget unless it is the usual one."""
    import engine

    usual = context.method == engine.DEFAULT_METHOD
    return [shown_name(context.model), *([] if usual else [method_in_short(context)])]


Titled = DocumentRow | ContextRow | SessionRow
Row = Titled | TurnRow | JobRow
KINDS = ("document", "context", "session")
"""Kinds of things with a title."""


def joined(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """Join names to a phrase in the language in use, as `sessions.listed` does in English."""
    return listed(names, most, t(" and "), t("{n} others"))


def titles_before_places(service: Service, context_id: str) -> dict[str, str]:
    """Return the words before a place by document: its title, if a context has several documents."""
    documents = service.store.contexts.documents(context_id)
    return {row.id: f"{row.title}, " for row in documents} if len(documents) > 1 else {}


def _titled(service: Service, kinds: tuple[str, ...]) -> list[tuple[str, Titled]]:
    store = service.store
    found: list[tuple[str, Titled]] = []
    if "context" in kinds:
        found += [("context", row) for row in store.contexts.all()]
    if "document" in kinds:
        found += [("document", row) for row in store.documents.all()]
    if "session" in kinds:
        found += [("session", row) for row in store.sessions.all()]
    return found


def find(service: Service, text: str, kinds: tuple[str, ...] = KINDS, lists: str = "") -> tuple[str, Row]:
    """Return kind and row of the thing that a text means: an id, a unique prefix of one, or a title. Turns need a whole
    id.

    A context may have its document's title. If a title fits a document and contexts of it alone, it means the document.

    Args:
        service: the home in use.
        text: the text.
        kinds: kinds to look for.
        lists: words that say where all things are listed, for people without a command line.

    Raises:
        NotFound: nothing fits.
        Ambiguous: several things fit.
    """
    wanted = text.strip()
    if "turn" in kinds and wanted.startswith("t-"):
        with suppress(sessions.NotFound):  # it may be a title
            return "turn", service.store.turns.get(wanted)
    everything = _titled(service, kinds)
    by_id = (
        lambda row: row.id == wanted,
        lambda row: begins_id(row.id, wanted),
    )
    by_title = (
        lambda row: row.title == wanted,
        lambda row: row.title.casefold() == wanted.casefold(),
        lambda row: bool(wanted) and row.title.casefold().startswith(wanted.casefold()),
    )
    for test in (by_id[0], *by_title[:2], by_id[1], by_title[2]):  # "App" is a title before it begins an id
        fitting = [(kind, row) for kind, row in everything if test(row)]
        if test in by_title:
            fitting = _without_own_contexts(fitting)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            ids = ", ".join(f"{row.id} ({_distinction(kind, row)})" for kind, row in fitting[:8])
            raise Ambiguous(f"{text!r} fits several: {ids}. Name one by its id.")
    nouns = [kind for kind in kinds if kind in KINDS]
    lists = lists or either([f"`{'' if at else 'stockpot list '}{kind}s`" for at, kind in enumerate(nouns)])
    raise NotFound(
        _of_another_kind(service, wanted, kinds)
        or f"There is no {either(nouns)} {text!r}. {lists} shows what there is."
    )


def begins_id(id: str, wanted: str) -> bool:
    """Return whether a text is an id or the beginning of one.

    Without the letter of its kind it needs four characters: fewer may be the beginning of a title.
    """
    bare = len(wanted) >= 4 and id.partition("-")[2].startswith(wanted)
    return bool(wanted) and (id.startswith(wanted) or bare)


def _distinction(kind: str, row: Titled) -> str:
    """Return words that distinguish things with one title: the kind, or how a context was read."""
    if not isinstance(row, ContextRow):
        return kind
    return f"{row.method}, {'no budget' if row.budget is None else f'budget {row.budget:,}'}"


def _of_another_kind(service: Service, wanted: str, kinds: tuple[str, ...]) -> str:
    """Return a sentence for an id of another kind that says what to name instead; "" for any other text."""
    others = tuple(kind for kind in KINDS if kind not in kinds)
    fitting: list[tuple[str, Row]] = [
        (kind, row) for kind, row in _titled(service, others) if "-" in wanted and row.id.startswith(wanted)
    ]
    with suppress(sessions.NotFound):
        fitting += [("turn", service.store.turns.get(wanted))]
    if len(fitting) != 1:
        return ""
    [(kind, row)], noun = fitting, kinds[-1]
    ids = _related(service, noun, row)
    if not ids:
        return f"{row.id} is a {kind}, and has no {noun}."
    which = f"its {noun}" if len(ids) == 1 else f"one of its {noun}s"
    return f"{row.id} is a {kind}: name {which}, {either(ids)}."


def _related(service: Service, noun: str, row: Row) -> list[str]:
    """Return the ids of the documents, contexts or sessions that belong to a row of another kind."""
    store = service.store
    if isinstance(row, TurnRow):
        row = store.sessions.get(row.session_id)
    if isinstance(row, SessionRow):
        if noun == "session":
            return [row.id]
        row = store.contexts.get(row.context_id)
    if isinstance(row, ContextRow) and noun == "document":
        return row.document_ids
    contexts = [row] if isinstance(row, ContextRow) else store.contexts.all(row.id)
    if noun == "context":
        return [each.id for each in contexts]
    return [each.id for context in contexts for each in store.sessions.all(context.id)]


def _without_own_contexts(fitting: list[tuple[str, Titled]]) -> list[tuple[str, Titled]]:
    """Leave out the contexts of a single document that fits too."""
    documents = [[row.id] for kind, row in fitting if kind == "document"]
    return [(kind, row) for kind, row in fitting if not (isinstance(row, ContextRow) and row.document_ids in documents)]


def find_document(service: Service, text: str) -> DocumentRow:
    """Return the document that a person means."""
    _, row = find(service, text, ("document",))
    assert isinstance(row, DocumentRow)
    return row


def find_context(service: Service, text: str, lists: str = "") -> ContextRow:
    """Return the context that a person means. lists: see `find`."""
    _, row = find(service, text, ("context",), lists)
    assert isinstance(row, ContextRow)
    return row


def read_documents(service: Service) -> set[str]:
    """Return the ids of the documents that were read to their end, alone or with others."""
    return {id for row in service.store.contexts.all() if row.status == "ready" for id in row.document_ids}


def reading_of(service: Service, text: str, pages: str = "") -> tuple[ContextRow, str]:
    """Return the finished context to ask about a document, the newest of it alone if there is one, and its pages there.

    Args:
        service: the home in use.
        text: id or title of a document, or of a context.
        pages: pages of it; "" for all.

    Raises:
        NotFound: there is no such document or context.
        AppError: the document has not been read to its end.
        UsageError: there are no such pages.
    """
    _, row = find(service, text, ("document", "context"))
    if isinstance(row, ContextRow):
        require_begun(service, row)
        return row, checked_pages(service, row, pages)
    assert isinstance(row, DocumentRow)
    contexts = service.store.contexts.all(row.id)
    ready = [each for each in contexts if each.status == "ready"]
    if not ready:
        how = f"resume {contexts[0].id}" if contexts else f"ingest {row.id}"
        raise AppError(f"{row.title} has not been read to its end: `stockpot {how}` reads it.")
    context = min(ready, key=lambda each: len(each.document_ids))
    if len(context.document_ids) == 1:
        return context, checked_pages(service, context, pages)
    number, cache = context.document_ids.index(row.id) + 1, service.document_cache
    if not pages.strip():
        return context, f"{number}:"
    named = [replace(each, document=number) for each in named_pages(pages, [row.id], cache)]
    return context, as_kept(named, context.document_ids, cache)


def find_session(service: Service, text: str) -> SessionRow:
    """Return the session that a person means."""
    _, row = find(service, text, ("session",))
    assert isinstance(row, SessionRow)
    return row


def list_rows(service: Service, noun: str) -> list[dict[str, Any]]:
    """Return all documents, contexts or sessions as plain data; contexts with their bytes on disk.

    Args:
        service: the home in use.
        noun: "documents", "contexts" or "sessions".
    """
    rows = [row for _, row in _titled(service, (noun.removesuffix("s"),))]
    if noun != "contexts":
        return [asdict(row) for row in rows]
    found = []
    for row in rows:
        with suppress(sessions.NotFound):  # deleted meanwhile
            found.append({**asdict(row), "bytes_on_disk": service.store.folders.size(row.id)})
    return found


def details(service: Service, kind: str, row: Row) -> dict[str, Any]:
    """Return everything about one thing as plain data, with its kind. job: the job that reads a context, if there is
    one.
    """
    store = service.store
    facts: dict[str, Any] = {"kind": kind, **asdict(row)}
    if isinstance(row, DocumentRow):
        document = service.document_cache.document(row.id)
        facts["coverage"] = document.coverage()
        unread = {page.number for page in document.imprints}
        facts["contents"] = [
            {**asdict(entry), "name": page_name(document, entry.page), "read": entry.page not in unread}
            for entry in document.toc
        ]
        facts["contexts"] = [each.id for each in store.contexts.all(row.id)]
    elif isinstance(row, ContextRow):
        facts["documents"] = [asdict(each) for each in store.contexts.documents(row.id)]
        facts["sessions"] = [each.id for each in store.sessions.all(row.id)]
        facts["memory_map"] = [asdict(each) for each in load_map(store, row.id)]
        facts["introduction"] = introduction_json(load_introduction(store, row.id))
        facts["job"] = asdict(work) if (work := store.jobs.work_on(row.id, READ)) else None
    elif isinstance(row, SessionRow):
        facts["turns"] = [asdict(each) for each in store.turns.all(row.id)]
    if kind in KINDS:
        facts["bytes_on_disk"] = store.folders.size(row.id)
    return facts


def rename(service: Service, kind: str, row: Row, title: str) -> Titled:
    """Give a document, context or session another title. An empty one names a context after its documents.

    Raises:
        sessions.StoreError: the title of a document or session is empty.
    """
    renaming: dict[str, Callable[[str, str], Titled]] = {
        "document": service.store.documents.rename,
        "context": service.store.contexts.rename,
        "session": service.store.sessions.rename,
    }
    return renaming[kind](row.id, title)
