"""Actions of the page change the rows that the page named."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import engine
import sessions.contexts
import sessions.documents
import sessions.sessions
from app.errors import AppError, NotFound
from app.formatting import byte_size
from app.jobs.uploads import cache
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions
from app.service import Service
from app.web.actions import Actions
from app.web.chat_props import AT_ONCE
from app.web.list_props import LISTED
from app.web.new_reading import EVERYTHING
from app.web.tab_state import Selection, TabState
from sessions import InUse
from sessions.rows import make_row
from tests.app.helpers import (
    SETTINGS,
    add,
    add_context,
    add_document,
    begin,
    book_text,
    fails,
    read_through,
    upload,
    work_once,
)


def test_what_is_deleted_is_what_was_named(tmp_path: Path, model: str, book: Path) -> None:
    service = Service(tmp_path / "home", model, "cpu")
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    context = begin(service, add(service, book), "streaming", {"budget": 64}).id
    named, other = (store.sessions.add(context, title) for title in ("The first", "The second"))
    _, (_, asked, doomed) = actions.manage.ask_to_delete("session", Selection(context, named.id))
    assert "The first" in asked["value"]
    left, _ = actions.manage.delete(Selection(context, other.id), doomed)  # the other was chosen meanwhile
    assert left == Selection(context, other.id)
    assert [row.id for row in store.sessions.all()] == [other.id]

    _, (_, asked, doomed) = actions.manage.ask_to_delete("documents", left)
    size = sum(store.folders.size(each) for each in (*store.contexts.get(context).document_ids, context, other.id))
    assert f"? This frees {byte_size(size)} and cannot be undone." in asked["value"]
    left, (_, _, nothing) = actions.manage.delete(left, doomed)
    assert (left, nothing) == (Selection(), [])
    assert not store.documents.all()
    assert not store.contexts.all()
    with pytest.raises(NotFound):
        actions.manage.delete(left, doomed)
    service.close()


def test_what_goes_with_several_documents_is_counted_once_and_goes_together(service: Service, book: Path) -> None:
    """A context of two documents was counted twice, and one of two documents was deleted although the other was
    in use.
    """
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    lamp, fox = (add_document(service, title) for title in ("Lamp", "Fox"))
    both, alone = add_context(service, lamp, fox), add_context(service, fox)
    for context in (both, alone):
        store.contexts.update(context.id, status="ready")
        session = store.sessions.add(context.id)
    talk = store.sessions.rename(store.sessions.all(both.id)[0].id, "Who?")
    _, (_, asked, doomed) = actions.manage.ask_to_delete("documents", Selection(both.id))
    named = "2 contexts (“Lamp and Fox” of 2 documents and “Fox”) and 2 sessions (“Who?” and “New chat”)"
    assert f"Delete the documents “Lamp” and “Fox” with {named}?" in asked["value"]
    _, (_, asked, _) = actions.manage.ask_to_delete("session", Selection(both.id, talk.id))
    assert "Delete the session “Who?” over “Lamp and Fox” of 2 documents?" in asked["value"]
    store.jobs.add("answer", store.turns.add(session.id, "Where?").id)
    job = store.jobs.claim("worker")
    assert job
    with pytest.raises(InUse):
        actions.manage.delete(Selection(both.id), doomed)
    assert {row.id for row in store.documents.all()} == {lamp.id, fox.id}
    store.jobs.end(job.id, "cancelled")
    assert actions.manage.delete(Selection(both.id), doomed)[0] == Selection()
    assert not store.documents.all()


def test_of_very_many_documents_a_few_are_named_before_they_go(service: Service) -> None:
    """The question filled the window with two hundred titles."""
    actions = Actions(service, Worker(service), TabState(service), [], [], [])
    context = add_context(service, *(add_document(service, f"Note {number}") for number in range(200)))
    service.store.contexts.update(context.id, status="ready")
    _, (_, asked, doomed) = actions.manage.ask_to_delete("documents", Selection(context.id))
    assert "“Note 4” and 195 others with 1 context (“Note 0 and 199 more” of 200 documents)?" in asked["value"]
    assert len(doomed) == 200
    for number in range(9):
        service.store.sessions.add(context.id, f"Talk {number}")
    _, (_, asked, _) = actions.manage.ask_to_delete("context", Selection(context.id))
    assert " with 9 sessions (“Talk 8”, “Talk 7” and 7 others)?" in asked["value"]


def test_a_reading_that_stopped_goes_when_that_is_confirmed_and_its_own_documents_if_wanted(service: Service) -> None:
    """Remove deleted the checkpoint of a long reading at once, and left its documents invisible."""
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    lamp, fox = (add_document(service, title) for title in ("Lamp", "Fox"))
    shared, stopped = add_context(service, lamp), add_context(service, lamp, fox)
    store.contexts.update(stopped.id, status="paused", tokens_read=5)
    selection = Selection(stopped.id)
    assert actions.manage.tab_state.props(selection)["discard_documents"] == {"visible": True}
    _, (_, asked, doomed) = actions.manage.ask_to_remove("context", selection)
    assert "Delete the context “Lamp and Fox”? " in asked["value"]
    assert doomed == [("context", stopped.id)]
    assert store.contexts.get(stopped.id).tokens_read == 5
    _, (_, asked, doomed) = actions.manage.ask_to_remove("documents", selection)
    assert "Delete the context “Lamp and Fox” and the document “Fox”? " in asked["value"]
    since = add_context(service, fox)  # in another tab, before this one says yes
    actions.manage.delete(selection, doomed)
    assert [row.id for row in store.contexts.all()] == [since.id, shared.id]
    store.contexts.delete(since.id)
    stopped = add_context(service, lamp, fox)
    store.contexts.update(stopped.id, status="paused", tokens_read=5)
    selection = Selection(stopped.id)
    _, (_, asked, doomed) = actions.manage.ask_to_remove("documents", selection)
    assert actions.manage.delete(selection, doomed)[0] == Selection()
    assert (store.contexts.all(), store.documents.all()) == ([shared], [lamp])
    store.contexts.update(shared.id, status="failed", error="out of memory")
    store.jobs.add("ingest", "upload", {"files": [], "documents": [lamp.id]})
    assert actions.manage.tab_state.props(Selection(shared.id))["discard_documents"] == {
        "visible": False
    }  # somebody waits for it


def test_an_upload_that_failed_goes_at_once_unless_documents_go_with_it(service: Service, tmp_path: Path) -> None:
    worker, store = Worker(service), service.store
    actions = Actions(service, worker, TabState(service), [], [], [])
    torn = worker.ingest(upload(service, tmp_path, "torn.pdf", b"%PDF-1.4 no"), "exact", SETTINGS, IngestOptions())
    work_once(worker)
    selection, (unasked, _, doomed) = actions.manage.ask_to_remove("context", Selection(torn.id))
    assert (selection, unasked["visible"], doomed) == (Selection(), False, [])
    assert torn.id not in [job.id for job in store.jobs.all()]  # it names its file
    for name in ("one.pdf", "two.pdf"):
        worker.ingest(upload(service, tmp_path, name, b"%PDF-1.4 no"), "exact", SETTINGS, IngestOptions())
        work_once(worker)
    together = actions.manage.tab_state.props(Selection())["remove_failed"]
    assert together == {"visible": True, "value": "Remove failed files (2)"}
    assert actions.manage.remove_failed(Selection()) == Selection()
    assert store.jobs.all() == []

    job = fails(worker, upload(service, tmp_path, "book.txt", book_text(20).encode()))
    selection, (_, asked, doomed) = actions.manage.ask_to_remove("context", Selection(job.id))
    assert (selection, doomed) == (Selection(job.id), [("upload", job.id)])
    assert "Delete the document “book”? " in asked["value"]
    assert len(store.documents.all()) == 1
    assert actions.manage.tab_state.settle(selection) == selection
    assert actions.manage.delete(selection, doomed)[0] == Selection()
    assert store.documents.all() == []


def test_what_failed_stands_among_what_there_is_by_its_time(service: Service, tmp_path: Path) -> None:
    """Failed uploads stood above every book for a day."""
    worker, store = Worker(service), service.store
    old = add_context(service, add_document(service, "Old"))
    torn = worker.ingest(upload(service, tmp_path, "torn.pdf", b"%PDF-1.4 no"), "exact", SETTINGS, IngestOptions())
    work_once(worker)
    new = add_context(service, add_document(service, "New"))
    waiting = worker.ingest(upload(service, tmp_path, "next.txt", b"Words."), "exact", SETTINGS, IngestOptions())
    later = add_context(service, store.documents.get(store.documents.all()[0].id), method="full")
    choices = TabState(service).props(Selection())["contexts"]["choices"]
    assert [id for _, id in choices] == [waiting.id, later.id, new.id, torn.id, old.id]


def test_a_stopped_reading_has_one_number_of_entries(service: Service) -> None:
    """It went on for a moment after its last measurement, so the panel and the card had different numbers."""
    tab_state, store = TabState(service), service.store
    context = add_context(service, add_document(service, "Lamp"))

    def usage(entries: int) -> dict[str, dict[str, int]]:
        return {each: {"device": entries, "host": 0, "disk": 0} for each in ("entries", "bytes")}

    measured = {"usage": usage(768), "tokens_per_second": 9.0, "tokens_done": 768, "seconds": 1.0}
    store.measurements.add("reading", context.id, measured)
    for status, entries in (("reading", 768), ("paused", 512)):
        store.contexts.update(context.id, status=status, tokens_read=1024, usage=usage(512))
        assert tab_state.metrics_reader.read(store.contexts.get(context.id), None).usage["entries"]["device"] == entries


def test_nobody_is_led_to_ask_the_pocket_model_for_what_it_cannot_do(service: Service, tiny: Path, book: Path) -> None:
    """Asked for the subject of a book it says "85 crowns", and the page gave no warning."""
    documents = service.store.documents.existing(add(service, book))
    for model, warned in (("pocket", True), ("pocket:nf4", True), (str(tiny), False)):
        context = add_context(service, *documents, model=model)
        service.store.contexts.update(context.id, status="ready")
        assert ("cannot sum up" in TabState(service).props(Selection(context.id))["past"]["value"]) == warned


def test_nobody_talks_with_what_nothing_has_been_read_of(service: Service) -> None:
    """A session was made where nothing could be asked."""
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    context = add_context(service, add_document(service, "Lamp")).id
    with pytest.raises(AppError, match="it can be asked when some of its text has been read"):
        actions.ask.new_session(Selection(context))
    store.contexts.update(context, status="ready")
    selection = actions.ask.new_session(Selection(context))
    assert [row.id for row in store.sessions.all(context)] == [selection.session]
    assert actions.ask.new_session(selection) == selection  # it is still without a question


def test_a_session_without_a_question_is_listed_only_while_it_is_shown(service: Service) -> None:
    tab_state = TabState(service)
    actions, store = Actions(service, Worker(service), tab_state, [], [], []), service.store
    context = add_context(service, add_document(service, "Lamp")).id
    store.contexts.update(context, status="ready")
    asked = store.sessions.add(context).id
    store.turns.finish(store.turns.add(asked, "Who kept it?").id, answer="Nobody.")
    empty = actions.ask.new_session(Selection(context))
    for selection, listed in ((empty, {asked, empty.session}), (tab_state.settle(Selection(context)), {asked})):
        assert {id for _, id in tab_state.lists.sessions(selection)["sessions"]["choices"]} == listed
    assert tab_state.settle(Selection(context)).session == asked == tab_state.first_choice().session


def test_every_session_is_found_however_often_one_has_the_words(service: Service, book: Path) -> None:
    """A session with twelve hits hid all others, and none was found by its given title."""
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    context = begin(service, add(service, book), "streaming", {"budget": 64}).id
    talkative, other, renamed = (store.sessions.add(context, title) for title in ("Much", "Little", "Taxes 2024"))
    for session, turns in ((talkative, 30), (other, 1)):
        for _ in range(turns):
            store.turns.finish(store.turns.add(session.id, "Where was the lamp?").id, answer="There.", sources=[])

    def found(query: str) -> set[str]:
        ids = {id for _, id in actions.navigate.search(query)[0]["choices"] if " " not in id}  # no passages
        return {store.turns.get(id).session_id if id.startswith("t-") else id for id in ids}

    assert found("lamp") == {talkative.id, other.id}
    assert found(" taxes ") == {renamed.id}
    assert found("nowhere") == found("  ") == set()
    lamps = add_context(service, add_document(service, "Of Lamps")).id
    assert found("LAMP of") == {lamps}
    [(passage, there), *_] = [each for each in actions.navigate.search("lamp")[0]["choices"] if " " in each[1]]
    assert "lamp" in passage.partition("\n")[2].lower()
    assert passage.startswith("part 1, paragraph")
    [shown, _] = actions.navigate.choose_hit(Selection(), there)
    assert (shown.context, shown.found.partition("?")[0]) == (context, there.split()[1].partition("?")[0])
    assert found("lamp") == {talkative.id, other.id, lamps}
    assert actions.navigate.choose_hit(Selection(), lamps)[0] == Selection(lamps)
    assert actions.navigate.choose_hit(Selection(), other.id)[0] == Selection(context, other.id)


def test_what_was_found_in_a_long_session_is_shown(service: Service, book: Path) -> None:
    """The session was opened at its end, and the hundredth of 200 questions was not on the page."""
    tab_state = TabState(service)
    actions, store = Actions(service, Worker(service), tab_state, [], [], []), service.store
    context = read_through(service, add(service, book)).id
    session = store.sessions.add(context, "Much").id
    for number in range(7 * AT_ONCE):
        question = f"And number {number}?" if number % 60 else f"A zeppelin in {number}?"
        store.turns.finish(store.turns.add(session, question).id, answer="There.", sources=[])
    [(_, turn)] = actions.navigate.search("zeppelin 0")[0]["choices"]
    selection, [unmarked] = actions.navigate.choose_hit(Selection(), turn)
    assert (selection.session, selection.found, unmarked["value"]) == (session, turn, None)
    shown = tab_state.props(tab_state.settle(selection))
    assert f'id="{turn}"' in shown["earlier"]["value"]
    assert f'data-found="{turn}"' in shown["where"]["value"]
    [(_, late)] = actions.navigate.search("zeppelin 120")[0]["choices"]
    assert actions.navigate.choose_hit(Selection(), late)[0].unrolled == 0 < selection.unrolled


def test_the_context_that_was_used_last_comes_first(service: Service) -> None:
    """The context used most sank to the end of the list."""
    old, new = (add_context(service, add_document(service, title)) for title in ("Old", "New"))

    def order() -> list[str]:
        return [id for _, id in TabState(service).props(Selection())["contexts"]["choices"]]

    assert order() == [new.id, old.id]
    service.store.sessions.add(old.id)
    assert order() == [old.id, new.id]


def test_settings_follow_the_model_and_the_preset(service: Service, tiny: Path, tmp_path: Path) -> None:
    long = tmp_path / "long"
    long.mkdir()
    config = json.loads((tiny / "config.json").read_text())
    (long / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 17}))
    keys = [("infllm", "budget"), ("exact", "top_k"), ("infllm", "block")]
    actions = Actions(service, Worker(service), TabState(service), keys, ["exact", "infllm"], ["exact", "infllm"])

    def values(updates: list[dict[str, Any]]) -> list[Any]:
        return [update.get("value", "as it was") for update in updates[:3]]

    assert values(actions.form.choose_model(None, EVERYTHING)) == [1024, 128, 8]
    assert values(actions.form.choose_model(str(long), EVERYTHING)) == [6910, 2048, 128]
    assert values(actions.form.choose_model("no/such model", EVERYTHING)) == [1024, 128, 8]
    assert values(actions.form.choose_preset("infllm", None, "mistral-12k")) == [13054, "as it was", 128]
    assert values(actions.form.choose_preset("infllm", "wide", None)) == ["as it was"] * 3  # of another method
    assert [each["visible"] for each in actions.form.choose_method("infllm", None)[1:]] == [False, True]


def test_the_model_of_this_server_reads_what_is_dropped_in_here(service: Service) -> None:
    """The model of the first free server read it."""
    actions = Actions(service, Worker(service), TabState(service), [], [], [])
    job = service.store.jobs.get(actions.read.read_sample(Selection(), "exact", None).context)
    assert job.payload["model"] == service.models.default


def test_a_second_click_begins_no_second_reading(service: Service, tmp_path: Path) -> None:
    """A second click on Read asked to drop the files in again, while they were being read."""
    actions = Actions(service, Worker(service), TabState(service), [], [], [])
    dropped = cache(service.home) / "hash" / "Tea.txt"
    dropped.parent.mkdir(parents=True)
    dropped.write_text("The keeper liked tea.", encoding="utf-8")
    form = ([str(dropped)], "exact", "", "", "Never", None)
    selection, _ = actions.read.start_reading(Selection(), *form)
    assert actions.read.start_reading(selection, *form)[0] == selection
    assert actions.read.read_sample(selection, "exact", None) == selection
    assert [job.id for job in service.store.jobs.all()] == [selection.context]


def test_a_reading_that_took_no_time_says_nothing_of_the_next(service: Service) -> None:
    actions = Actions(service, Worker(service), TabState(service), [("exact", "budget")], [], [])
    context = add_context(service, add_document(service, "Lamp"))
    settings = json.dumps(engine.make_method("exact", budget=320).settings())
    with service.store.database.transaction() as db:
        db.execute(
            "UPDATE contexts SET model = ?, method = 'exact', settings = ?, tokens_read = 1000000, seconds = 0",
            [service.models.default, settings],
        )
    assert service.store.contexts.get(context.id).seconds == 0
    assert "There is room" in actions.form.estimate(None, None, None, "exact", None, 320)[0]


def test_with_an_answer_the_page_gets_the_last_turns_and_not_all_again(service: Service, book: Path) -> None:
    store, tab_state = service.store, TabState(service)
    session = store.sessions.add(read_through(service, add(service, book)).id)
    selection = Selection(session.context_id, session.id)
    sent: list[str] = []
    for number in range(1, 48):
        store.turns.finish(store.turns.add(session.id, f"Question {number}?").id, answer=f"Answer {number}.")
        props = tab_state.props(selection)
        shown = props["earlier"]["value"] + props["past"]["value"]
        hidden = max(0, (number - 1) // AT_ONCE * AT_ONCE - AT_ONCE)  # a long session would take seconds to draw
        assert re.findall(r"Answer (\d+)\.", shown) == [str(each) for each in range(hidden + 1, number + 1)]
        assert props["unroll"]["visible"] == (hidden > 0)
        assert 1 <= props["past"]["value"].count("<article") <= AT_ONCE
        sent.append(props["earlier"]["value"])
    assert len(set(sent)) == 3
    assert props["unroll"]["value"] == "Show earlier questions (20)"
    unrolled = tab_state.props(replace(selection, unrolled=1))
    assert not unrolled["unroll"]["visible"]
    assert (unrolled["earlier"]["value"] + unrolled["past"]["value"]).count("<article") == 47
    edited = tab_state.props(replace(selection, edited=store.turns.all(session.id)[0].id))  # it is not shown
    assert "Question 1?" in edited["where"]["value"]


def test_what_is_called_the_same_but_for_a_number_is_told_apart_where_lists_cut_titles_off(service: Service) -> None:
    """The visible parts of the titles were equal, and hits showed only the method."""
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    context = add_context(service, add_document(service, "Harbour"))
    store.contexts.update(context.id, status="ready")
    for question in ("Who kept it?", "Who kept the lamp of the lighthouse at Cape Orlen?"):
        session = store.sessions.add(context.id)
        store.turns.finish(store.turns.add(session.id, question).id, answer="Nobody.")
        store.sessions.branch(session.id, 1)
    long = "Who kept the lamp of the lighthouse at Cape Orlen?"
    listed = actions.manage.tab_state.lists.sessions(Selection(context.id))["sessions"]["choices"]
    assert {name.rpartition(" · ")[0] for name, _ in listed} == {
        "Who kept it?\n1 question",
        "Who kept it? (2)\n1 question",
        f"{long}\n1 question",
        f"{long} (2)\n(2) · 1 question",
    }
    [found] = actions.navigate.search("lamp")
    assert {name for name, id in found["choices"] if " " not in id} == {
        f"{long}\n{long}\nHarbour · exact · 320",
        f"{long} (2)\n(2) · {long}\nHarbour · exact · 320",
    }


def test_a_page_reads_few_rows_however_many_there_are(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 2,000 documents each look of an idle page made 8,004 rows."""
    state, made, asked = TabState(service), list[object](), list[str]()
    (tmp_path / "Harbour.txt").write_text("The lamp was out.", encoding="utf-8")
    chosen = add_context(service, *map(service.store.documents.get, add(service, tmp_path / "Harbour.txt")))
    service.store.contexts.update(chosen.id, status="ready", tokens_read=9)
    rows = service.store.database.rows

    def counted(sql: str, values: Any = ()) -> list[dict[str, Any]]:
        asked.append(sql)
        return rows(sql, values)

    monkeypatch.setattr(service.store.database, "rows", counted)
    for module in (sessions.contexts, sessions.documents, sessions.sessions):
        monkeypatch.setattr(module, "make_row", lambda kind, row: made.append(kind) or make_row(kind, row))

    def looked(selection: Selection) -> tuple[int, int]:
        made.clear()
        asked.clear()
        state.props(state.settle(selection))
        return len(made), len(asked)

    selections = Selection(), Selection(chosen.id)
    few = [looked(each) for each in selections]
    with service.store.transaction():
        for number in range(2 * LISTED):
            row = add_context(service, add_document(service, f"Letter {number}"))
            service.store.contexts.update(row.id, status="ready", tokens_read=9)
            service.store.sessions.add(chosen.id)
    for (before, asked_before), selection in zip(few, selections, strict=True):
        now, asked_now = looked(selection)
        assert now <= before + 5 * LISTED
        assert asked_now <= asked_before + 5  # none for each row
