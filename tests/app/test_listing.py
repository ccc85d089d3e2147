"""Ids, prefixes and titles that people name, also if several things fit; and the search."""

from dataclasses import asdict
from pathlib import Path

import pytest

from app.errors import Ambiguous, AppError, NotFound
from app.listing import KINDS, find, find_context, find_document, find_session, list_rows, reading_of
from app.search import search_home
from app.service import Service
from sessions import MOST_HITS, ContextRow, StoreError
from tests.app.helpers import add, add_context, add_document, book_text, read_through


def test_what_is_deleted_while_things_are_listed_is_left_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list failed with an error about the deleted thing."""
    one, other = add_document(service, "Harbour"), add_document(service, "Lamp")
    add_context(service, one)
    kept, contexts = add_context(service, other), service.store.contexts.all

    def deleted_since() -> list[ContextRow]:
        rows = contexts()
        if len(rows) > 1:
            service.store.documents.delete(one.id)
        return rows

    monkeypatch.setattr(service.store.contexts, "all", deleted_since)
    size = service.store.folders.size(kept.id)
    assert list_rows(service, "contexts") == [{"title": "Lamp", **asdict(kept), "bytes_on_disk": size}]
    assert find(service, "Lamp", ("context",)) == ("context", kept)


def test_a_document_is_asked_where_it_was_read_alone_if_it_was(service: Service, tmp_path: Path) -> None:
    paths = [tmp_path / "Book.txt", tmp_path / "Note.txt"]
    paths[0].write_text(book_text(12), encoding="utf-8")
    paths[1].write_text("The lamp is out.", encoding="utf-8")
    ids = add(service, *paths)
    with pytest.raises(AppError, match=f"Note has not been read to its end: `stockpot ingest {ids[1]}`"):
        reading_of(service, "Note")
    both = read_through(service, ids)
    assert reading_of(service, "Note") == (both, "2:")
    assert reading_of(service, ids[0], "1/2-3") == (both, "1:1/2-3")
    alone = read_through(service, ids[1:])
    assert reading_of(service, "Note") == (alone, "")
    assert reading_of(service, ids[1], "1") == (alone, "1")
    assert reading_of(service, both.id, "2:") == (both, "2:")


@pytest.mark.parametrize("title", ["Harbour", "harbour", "HARB"])
def test_a_title_means_the_document_and_not_the_contexts_of_it(service: Service, title: str) -> None:
    document = add_document(service, "Harbour")
    for _ in range(2):
        add_context(service, document)
    assert find(service, title) == ("document", document)
    assert find(service, title, ("document", "session")) == ("document", document)
    with pytest.raises(Ambiguous):
        find(service, title, ("context",))


def test_what_else_has_the_title_is_asked_about(service: Service) -> None:
    one, other = add_document(service, "Harbour"), add_document(service, "Lamp")
    both = add_context(service, one, other)
    assert find(service, "Harbour") == ("document", one)
    with pytest.raises(Ambiguous, match=both.id):
        find(service, "Harb")  # may be meant to begin "Harbour, Lamp"
    session = service.store.sessions.add(both.id, "Harbour")
    with pytest.raises(Ambiguous, match=session.id):
        find(service, "Harbour")


def test_a_whole_title_goes_before_a_part_of_an_id(service: Service) -> None:
    """`show app` showed a document with an id that begins with those letters."""
    part = add_document(service, "Harbour").id.partition("-")[2][:4]
    document = add_document(service, part.upper())
    assert find(service, part) == ("document", document)


def test_two_letters_of_a_title_are_not_the_beginning_of_an_id(service: Service) -> None:
    """`delete em --yes`, meant for Emma, deleted a session with the id s-em2t6h."""
    letters = add_document(service, "Harbour").id.partition("-")[2][:2]
    document = add_document(service, f"{letters} and more")
    assert find(service, letters) == ("document", document)


def test_a_prefix_of_two_ids_is_no_title(service: Service) -> None:
    document = add_document(service, "Harbour")
    beginning = add_context(service, document).id[:3]
    while not add_context(service, document).id.startswith(beginning):
        pass
    with pytest.raises(Ambiguous, match=f"fits several.*{beginning}"):  # eight of them are named
        find(service, beginning)


def test_contexts_of_one_title_are_told_apart_by_how_they_were_read(service: Service) -> None:
    """They were listed as two ids, each with the word context."""
    document = add_document(service, "Harbour")
    exact, full = add_context(service, document), add_context(service, document, method="full", budget=None)
    with pytest.raises(Ambiguous) as several:
        find_context(service, "Harbour")
    told = f"{full.id} (full, no budget), {exact.id} (exact, budget 320)"
    assert str(several.value) == f"'Harbour' fits several: {told}. Name one by its id."


def test_an_id_of_another_kind_leads_to_what_to_name(service: Service) -> None:
    """The error only said that there is none, and where the others are listed."""
    store, document = service.store, add_document(service, "Harbour")
    with pytest.raises(NotFound, match=rf"^{document.id} is a document, and has no context\.$"):
        find_context(service, document.id)
    one, other = add_context(service, document), add_context(service, document)
    store.contexts.update(one.id, status="ready")
    session = store.sessions.add(one.id)
    turn = store.turns.add(session.id, "Who?")
    for look, given, said in (
        (find_context, document.id, f"a document: name one of its contexts, {other.id} or {one.id}."),
        (find_context, document.id[:-1], f"a document: name one of its contexts, {other.id} or {one.id}."),
        (find_context, session.id, f"a session: name its context, {one.id}."),
        (find_context, turn.id, f"a turn: name its context, {one.id}."),
        (find_session, document.id, f"a document: name its session, {session.id}."),
        (find_session, one.id, f"a context: name its session, {session.id}."),
        (find_session, other.id, "a context, and has no session."),
        (find_session, turn.id, f"a turn: name its session, {session.id}."),
        (find_document, one.id, f"a context: name its document, {document.id}."),
        (find_document, session.id, f"a session: name its document, {document.id}."),
    ):
        with pytest.raises(NotFound) as missing:
            look(service, given)
        assert str(missing.value).startswith(given)
        assert str(missing.value).endswith(f" is {said}")
    with pytest.raises(NotFound, match=session.id):
        find(service, turn.id)


def test_what_is_not_there_is_looked_for_in_every_list(service: Service) -> None:
    """`delete Emma` named the list of documents alone."""
    lists = "`stockpot list documents`, `contexts` or `sessions`"
    for kinds, said in (
        (KINDS, f"There is no document, context or session 'Emma'. {lists} shows what there is."),
        (("session",), "There is no session 'Emma'. `stockpot list sessions` shows what there is."),
    ):
        with pytest.raises(NotFound) as missing:
            find(service, "Emma", kinds)
        assert str(missing.value) == said


def test_a_search_finds_sessions_by_what_they_are_called_and_by_what_was_said(service: Service) -> None:
    """Only the page found sessions by title, not the command line or the API."""
    store, context = service.store, add_context(service, add_document(service, "Harbour"))
    store.contexts.update(context.id, status="ready")
    taxes, lamps = (store.sessions.add(context.id, title) for title in ("Taxes 2024", "Lamps and taxes"))
    turn = store.turns.add(lamps.id, "Which taxes?")
    store.turns.finish(turn.id, answer="None.")
    assert [(each.row.id, each.turn and each.turn.id) for each in search_home(service, " taxes", 20)] == [
        (taxes.id, None),
        (lamps.id, turn.id),
    ]
    assert [each.lines for each in search_home(service, "taxes", 20)] == [
        ["0 questions", "Harbour · exact · 320"],
        ["Which taxes?", "Harbour · exact · 320"],
    ]
    assert {each.to_json()["context_title"] for each in search_home(service, "taxes", 20)} == {"Harbour"}
    assert [each.row.id for each in search_home(service, "taxes", 1)] == [taxes.id]
    assert search_home(service, "  ", 20) == search_home(service, "nowhere", 20) == []


def test_a_search_finds_contexts_by_what_they_are_called(service: Service) -> None:
    """Only the page did."""
    context = add_context(service, add_document(service, "Harbour"))
    session = service.store.sessions.add(context.id, "The harbour")
    found = search_home(service, "harbour", 20)
    assert [(each.row.id, each.lines) for each in found] == [
        (context.id, ["9 tokens · exact · 320"]),
        (session.id, ["0 questions", "Harbour · exact · 320"]),
    ]
    told = [each.to_json() for each in found]
    assert [(each["context"], each["session"], each["turn"]) for each in told] == [
        (context.id, None, None),
        (context.id, session.id, None),
    ]


@pytest.mark.parametrize("query", ["cafe", "CAFE\u0301", "meer café", '"am meer"', "strasse"])
def test_titles_are_searched_as_what_was_said_is(service: Service, query: str) -> None:
    """Accents and the order of words had to match, and quotes found nothing."""
    context = add_context(service, add_document(service, "Harbour"))
    session = service.store.sessions.add(context.id, "Das Café am Meer, Seestraße")
    assert [each.row.id for each in search_home(service, query, 20)] == [session.id]
    for other in ('"meer am"', "cafe nowhere", '"', "\u0301"):
        assert search_home(service, other, 20) == []


def test_a_session_beyond_the_limit_has_said_it_all_the_same(service: Service) -> None:
    """It came first, as if only its title matched."""
    store, context = service.store, add_context(service, add_document(service, "Harbour"))
    store.contexts.update(context.id, status="ready")
    for title in ("Taxes", "Taxes again"):
        store.turns.finish(store.turns.add(store.sessions.add(context.id, title).id, "Which taxes?").id, answer="None.")
    [best] = search_home(service, "taxes", 1)
    assert best == search_home(service, "taxes", 20)[0]
    assert best.turn is not None
    for limit in (-1, 0, MOST_HITS + 1):
        with pytest.raises(StoreError, match=f"1 to 1,000 hits, not {limit}"):
            search_home(service, "taxes", limit)
