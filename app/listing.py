"""What is kept, for people: finding by id, prefix or title, and listing, showing, renaming and deleting."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import sessions
from app.asking.named_pages import page_name
from app.errors import Ambiguous, AppError, NotFound
from app.formatting import either, plural
from app.jobs.uploads import awaited, discard_locked
from app.reading.memory_map import load_map
from app.service import Service
from sessions import ContextRow, DocumentRow, JobRow, SessionRow, TurnRow, listed, shown_title


@dataclass(frozen=True)
class Found:
    """What was searched for: a context or a session that is called so, or a turn that says it, and its session.

    context: that is called so, or that it was said over; `highlights` are (start, end) offsets of the matching words in
    `snippet`.
    """

    row: ContextRow | SessionRow
    context: ContextRow
    turn: TurnRow | None = None
    snippet: str = ""
    highlights: list[tuple[int, int]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """What is shown below the title: what was said, and over which context."""
        how = read_with(self.context)
        if isinstance(self.row, ContextRow):
            return [f"{plural(self.row.tokens, 'token')} · {how}"]
        said = " ".join(self.snippet.split()) if self.turn else plural(self.row.turns, "question")
        return [said, f"{shown_title(self.context.title)} · {how}"]

    def to_json(self) -> dict[str, Any]:
        """A plain object; a context that was found has no session, and what is called so no turn."""
        session = self.row if isinstance(self.row, SessionRow) else None
        return {
            "context": self.context.id,
            "context_title": self.context.title,
            "session": session and session.id,
            "title": self.row.title,
            "turn": self.turn and self.turn.id,
            "snippet": self.snippet,
            "highlights": self.highlights,
            "question": self.turn and self.turn.question,
            "answer": self.turn and self.turn.answer,
            "sources": self.turn.sources if self.turn else [],
        }


def read_with(context: ContextRow) -> str:
    """How a context was read, in short: "exact · 512"."""
    return f"{context.method} · {context.budget:,}" if context.budget else context.method


Titled = DocumentRow | ContextRow | SessionRow
Row = Titled | TurnRow | JobRow
Called = TypeVar("Called", DocumentRow, ContextRow, SessionRow)
KINDS = ("document", "context", "session")
"""What has a title and can be found by it."""


def titles_before_places(service: Service, context_id: str) -> dict[str, str]:
    """What is said before a place, by document: its title, where a context has several."""
    documents = service.store.context_documents(context_id)
    return {row.id: f"{row.title}, " for row in documents} if len(documents) > 1 else {}


def _titled(service: Service, kinds: tuple[str, ...]) -> list[tuple[str, Titled]]:
    store = service.store
    found: list[tuple[str, Titled]] = []
    if "context" in kinds:
        found += [("context", row) for row in store.contexts()]
    if "document" in kinds:
        found += [("document", row) for row in store.documents()]
    if "session" in kinds:
        found += [("session", row) for row in store.sessions()]
    return found


def find(service: Service, text: str, kinds: tuple[str, ...] = KINDS, lists: str = "") -> tuple[str, Row]:
    """Kind and row of what a person means by an id, a unique prefix of one, or a title; a turn by its whole id only.

    A context may be called after its document: where a title fits a document and contexts of it alone, the document is
    meant.

    Args:
        lists: what shows what there is, for somebody who has no command line.

    Raises:
        NotFound: nothing fits. Ambiguous: several things do.
    """
    wanted = text.strip()
    if "turn" in kinds and wanted.startswith("t-"):
        with suppress(sessions.NotFound):  # it may be somebody's title
            return "turn", service.store.turn(wanted)
    everything = _titled(service, kinds)
    by_id = (
        lambda row: row.id == wanted,
        lambda row: _begins(row.id, wanted),
    )
    by_title = (
        lambda row: row.title == wanted,
        lambda row: row.title.casefold() == wanted.casefold(),
        lambda row: bool(wanted) and row.title.casefold().startswith(wanted.casefold()),
    )
    for test in (by_id[0], by_title[0], by_id[1], *by_title[1:]):  # "app" is a title before it begins an id
        fitting = [(kind, row) for kind, row in everything if test(row)]
        if test in by_title:
            fitting = _without_own_contexts(fitting)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            ids = ", ".join(f"{row.id} ({_told_apart(kind, row)})" for kind, row in fitting[:8])
            raise Ambiguous(f"{text!r} fits several: {ids}. Name one by its id.")
    nouns = [kind for kind in kinds if kind in KINDS]
    lists = lists or either([f"`{'' if at else 'stockpot list '}{kind}s`" for at, kind in enumerate(nouns)])
    raise NotFound(
        _of_another_kind(service, wanted, kinds)
        or f"There is no {either(nouns)} {text!r}. {lists} shows what there is."
    )


def _begins(id: str, wanted: str) -> bool:
    """Whether a text is an id, or the beginning of one, with or without the letter of its kind."""
    return bool(wanted) and (id.startswith(wanted) or id.partition("-")[2].startswith(wanted))


def _told_apart(kind: str, row: Titled) -> str:
    """What tells things of one title apart: the kind; of a context, how it was read."""
    if not isinstance(row, ContextRow):
        return kind
    return f"{row.method}, {'no budget' if row.budget is None else f'budget {row.budget:,}'}"


def _of_another_kind(service: Service, wanted: str, kinds: tuple[str, ...]) -> str:
    """What to name instead of an id of another kind, or of a unique prefix of one; "" where a text is neither."""
    others = tuple(kind for kind in KINDS if kind not in kinds)
    fitting: list[tuple[str, Row]] = [
        (kind, row) for kind, row in _titled(service, others) if "-" in wanted and row.id.startswith(wanted)
    ]
    with suppress(sessions.NotFound):
        fitting += [("turn", service.store.turn(wanted))]
    if len(fitting) != 1:
        return ""
    [(kind, row)], noun = fitting, kinds[-1]
    ids = _related(service, noun, row)
    if not ids:
        return f"{row.id} is a {kind}, and has no {noun}."
    which = f"its {noun}" if len(ids) == 1 else f"one of its {noun}s"
    return f"{row.id} is a {kind}: name {which}, {either(ids)}."


def _related(service: Service, noun: str, row: Row) -> list[str]:
    """The ids of the documents, contexts or sessions that go with a row of another kind."""
    store = service.store
    if isinstance(row, TurnRow):
        row = store.session(row.session_id)
    if isinstance(row, SessionRow):
        if noun == "session":
            return [row.id]
        row = store.context(row.context_id)
    if isinstance(row, ContextRow) and noun == "document":
        return row.document_ids
    contexts = [row] if isinstance(row, ContextRow) else store.contexts(row.id)
    if noun == "context":
        return [each.id for each in contexts]
    return [each.id for context in contexts for each in store.sessions(context.id)]


def _without_own_contexts(fitting: list[tuple[str, Titled]]) -> list[tuple[str, Titled]]:
    """Without the contexts of a single document that fits as well."""
    documents = [[row.id] for kind, row in fitting if kind == "document"]
    return [(kind, row) for kind, row in fitting if not (isinstance(row, ContextRow) and row.document_ids in documents)]


def find_document(service: Service, text: str) -> DocumentRow:
    """The document that a person means."""
    _, row = find(service, text, ("document",))
    assert isinstance(row, DocumentRow)
    return row


def find_context(service: Service, text: str, lists: str = "") -> ContextRow:
    """The context that a person means. lists: as of `find`."""
    _, row = find(service, text, ("context",), lists)
    assert isinstance(row, ContextRow)
    return row


def find_session(service: Service, text: str) -> SessionRow:
    """The session that a person means."""
    _, row = find(service, text, ("session",))
    assert isinstance(row, SessionRow)
    return row


def list_rows(service: Service, noun: str) -> list[dict[str, Any]]:
    """All documents, contexts or sessions, as plain objects; contexts with what they take on the disk.

    Args:
        noun: "documents", "contexts" or "sessions".
    """
    rows = [row for _, row in _titled(service, (noun.removesuffix("s"),))]
    if noun != "contexts":
        return [asdict(row) for row in rows]
    found = []
    for row in rows:
        with suppress(sessions.NotFound):  # deleted meanwhile
            found.append({**asdict(row), "bytes_on_disk": service.store.size_on_disk(row.id)})
    return found


def called(rows: Iterable[Called], query: str) -> list[Called]:
    """Those whose title has every word of a query, which is taken as in a search of what was said: neither accents nor
    case matter, and "words in quotes" are a phrase.
    """
    given = (_folded(phrase or word) for phrase, word in re.findall(r'"([^"]+)"|([^\s"]+)', query))
    wanted = [each for each in given if each]
    return [row for row in rows if wanted and all(each in _folded(row.title) for each in wanted)]


def _folded(text: str) -> str:
    letters = (each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join("".join(letters).casefold().split())


def search(service: Service, query: str, limit: int) -> list[Found]:
    """The contexts that are called so, the sessions that are, unless it was also said there, and the turns that say it.

    Raises:
        sessions.StoreError: a limit below 1 or above MOST_HITS.
    """
    contexts = {row.id: row for row in service.store.contexts()}
    said = [
        Found(hit.session, contexts[hit.session.context_id], hit.turn, hit.snippet, hit.highlights)
        for hit in service.store.search(query, limit)
        if hit.session.context_id in contexts  # else it is new
    ]
    named = (Found(row, row) for row in called(contexts.values(), query))
    titled = called(service.store.sessions(), query)
    there = service.store.saying(query, [row.id for row in titled])
    over = ((row, contexts.get(row.context_id)) for row in titled if row.id not in there)
    talks = (Found(row, context) for row, context in over if context is not None)
    return [*named, *talks, *said][:limit]


def details(service: Service, kind: str, row: Row) -> dict[str, Any]:
    """Everything about one thing, as a plain object with its kind. job: the one that reads a context, if any does."""
    store = service.store
    facts: dict[str, Any] = {"kind": kind, **asdict(row)}
    if isinstance(row, DocumentRow):
        document = service.document_cache.document(row.id)
        facts["coverage"] = document.coverage()
        facts["contents"] = [{**asdict(entry), "name": page_name(document, entry.page)} for entry in document.toc]
        facts["contexts"] = [each.id for each in store.contexts(row.id)]
    elif isinstance(row, ContextRow):
        facts["documents"] = [asdict(each) for each in store.context_documents(row.id)]
        facts["sessions"] = [each.id for each in store.sessions(row.id)]
        facts["memory_map"] = [asdict(each) for each in load_map(store, row.id)]
        facts["job"] = asdict(work) if (work := store.work_on(row.id)) else None
    elif isinstance(row, SessionRow):
        facts["turns"] = [asdict(each) for each in store.turns(row.id)]
    if kind in KINDS:
        facts["bytes_on_disk"] = store.size_on_disk(row.id)
    return facts


def own_documents(service: Service, row: ContextRow) -> list[DocumentRow]:
    """The documents of a context that nothing else uses."""
    store, others = service.store, awaited(service)
    return [
        each for each in store.context_documents(row.id) if len(store.contexts(each.id)) == 1 and each.id not in others
    ]


def rename(service: Service, kind: str, row: Row, title: str) -> Titled:
    """Give a document, context or session another title; with an empty one, a context is called after its documents.

    Raises:
        sessions.StoreError: an empty title for a document or session.
    """
    renaming: dict[str, Callable[[str, str], Titled]] = {
        "document": service.store.rename_document,
        "context": service.store.rename_context,
        "session": service.store.rename_session,
    }
    return renaming[kind](row.id, title)


def _contexts_with(service: Service, kind: str, rows: Sequence[Row]) -> list[str]:
    """The contexts that go when things of a kind are deleted; one may have read several of the documents."""
    if kind == "document":
        return list(dict.fromkeys(each.id for row in rows for each in service.store.contexts(row.id)))
    return [row.id for row in rows] if kind == "context" else []


def _titled_context(row: ContextRow) -> str:
    """“Title”, and how many documents it is of where it is of several."""
    many = len(row.document_ids)
    return f"“{shown_title(row.title)}”{f' of {many:,} documents' if many > 1 else ''}"


def goes_with(service: Service, kind: str, *rows: Row) -> str:
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


def to_delete(service: Service, kind: str, row: Row, text: str, *, asked: bool) -> str:
    """A thing that is named to be deleted, in words: "document d-… (Title) with 1 context (“Title”)".

    Args:
        text: what it was named by.
        asked: a person is asked before it is deleted, who then sees what the beginning of a title led to.

    Raises:
        AppError: nobody is asked, and the text is no more than the beginning of a title.
    """
    assert isinstance(row, DocumentRow | ContextRow | SessionRow)
    wanted = text.strip()
    what = f"{kind} {row.id} ({row.title}){goes_with(service, kind, row)}"
    if not (asked or _begins(row.id, wanted) or row.title.casefold() == wanted.casefold()):
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
