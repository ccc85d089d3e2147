"""Jobs that sweep: they make way, go on where they were, and what they found can be told at any time."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from app.asking import sweep, whole_list
from app.asking.answers import Checked
from app.asking.sweep import KIND
from app.asking.whole_list import LIST
from app.errors import UsageError
from app.jobs import worker as module
from app.jobs.sweeps import list_request, quiz_of, result_of, table_request
from app.jobs.worker import Worker
from app.reading.pages import page_of
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import Selection, TabState
from app.web.views.document_page import both_pages
from sessions import NotFound
from tests.app.helpers import SHORT, add, book_text, read_through

QUESTION = "List all the boats."


@pytest.fixture
def context(service: Service, tmp_path: Path) -> str:
    path = tmp_path / "The Keeper.txt"
    path.write_text(book_text(100), encoding="utf-8")
    return read_through(service, add(service, path)).id


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return a list of functions to call after the next places; lists are short."""
    waiting: list[Callable[[], object]] = []
    ask_alone = sweep.ask_alone

    def asked(*given: Any) -> Checked:
        told = ask_alone(*given)
        if waiting:
            waiting.pop(0)()
        return told

    monkeypatch.setattr(sweep, "ask_alone", asked)
    monkeypatch.setattr(whole_list, "LIST", replace(LIST, options=replace(LIST.options, max_tokens=12)))
    monkeypatch.setattr(module, "LOOK_SEC", 0.0)
    return waiting


def test_a_sweep_makes_way_for_a_question_and_goes_on(
    service: Service, context: str, between: list[Callable[[], object]]
) -> None:
    store, worker = service.store, Worker(service)
    session = store.sessions.add(context).id
    between.append(lambda: worker.ask(lambda: session, QUESTION, SHORT))
    job = worker.sweep(*list_request(service, context, QUESTION))
    assert worker.sweep(*list_request(service, context, QUESTION)).id == job.id, "it is under way"
    assert result_of(service, job) is None
    assert worker.work_once()
    job = store.jobs.get(job.id)
    assert (job.status, job.done) == ("queued", 1)
    told = result_of(service, job)
    assert told is not None
    assert (told["searched"], told["places"]) == (1, job.total)
    assert job.total > 1
    assert worker.work_once()
    assert [turn.status for turn in store.turns.all(session)] == ["done"], "the question went first"
    past = TabState(service).props(Selection(context, session))["past"]["value"]
    assert f"Searching the whole text · 1 of {job.total} places" in past
    assert worker.work_once()
    job = store.jobs.get(job.id)
    assert (job.status, job.done) == ("done", job.total)
    assert len(store.measurements.newest(KIND, context)) == job.total, "no place was asked twice"
    past = TabState(service).props(Selection(context, session))["past"]["value"]
    assert f"found in {job.total} places of the text" in past


def test_a_stopped_sweep_keeps_what_it_found(
    service: Service, context: str, between: list[Callable[[], object]]
) -> None:
    store, worker = service.store, Worker(service)
    job = worker.sweep(*list_request(service, context, QUESTION))
    between.append(lambda: worker.cancel(job.id))
    assert worker.work_once()
    assert store.jobs.get(job.id).status == "cancelled"
    again = worker.sweep(*list_request(service, context, QUESTION))
    assert again.id != job.id
    assert worker.work_once()
    again = store.jobs.get(again.id)
    assert (again.status, again.done) == ("done", again.total)
    assert len(store.measurements.newest(KIND, context)) == again.total
    store.contexts.delete(context)
    with pytest.raises(NotFound):
        store.jobs.get(again.id)


def test_a_table_is_filled_by_a_sweep_of_all_documents(service: Service, context: str) -> None:
    store, worker = service.store, Worker(service)
    job = worker.sweep(*table_request(service, [], ["keeper: Who was the keeper?"]))
    assert worker.work_once()
    told = result_of(service, store.jobs.get(job.id))
    assert told is not None
    [row] = told["rows"]
    assert (row["title"], len(row["cells"])) == ("The Keeper", 1)
    with pytest.raises(UsageError, match="no columns"):
        table_request(service, [], [" "])


def test_a_filled_table_stays_when_a_document_is_read_again_or_deleted(
    service: Service, context: str, tmp_path: Path
) -> None:
    """Its cells went with the next reading of a document, and all of it with a document."""
    store, worker = service.store, Worker(service)
    path = tmp_path / "The Fox.txt"
    path.write_text("The fox slept under the boat.")
    [fox], [keeper] = add(service, path), store.contexts.get(context).document_ids
    first = read_through(service, [fox])
    job = worker.sweep(*table_request(service, [keeper, fox], ["keeper: Who was the keeper?"]))
    assert worker.work_once()
    told = result_of(service, store.jobs.get(job.id))
    assert told is not None
    assert [len(row["cells"]) for row in told["rows"]] == [1, 1]
    read_through(service, [fox], "streaming")
    assert result_of(service, store.jobs.get(job.id)) == told
    store.contexts.delete(first.id)
    assert result_of(service, store.jobs.get(job.id)) == {**told, "rows": told["rows"][:1], "joined": ANY}


def test_a_table_is_begun_stopped_and_removed_on_the_page(
    service: Service, context: str, between: list[Callable[[], object]]
) -> None:
    store, worker, state = service.store, Worker(service), TabState(service)
    do, [document] = Actions(service, worker, state, [], [], []).sweep, store.contexts.get(context).document_ids
    with pytest.raises(UsageError, match="no columns"):
        do.ask_each(Selection(kept=(document,)), None)
    shown, _ = do.ask_each(Selection(kept=(document,)), "keeper: Who was the keeper?; boat")
    between.append(lambda: do.stop(shown))
    assert worker.work_once()
    props = state.props(state.settle(shown))
    assert (props["sweep_view"]["visible"], props["reading_view"]["visible"]) == (True, False)
    assert "Go on</button>" in props["sweep"]["value"]
    assert ("keeper; boat\nThe Keeper", shown.context) in props["contexts"]["choices"]
    again = do.go_on(shown)
    assert [id for _, id in state.props(again)["contexts"]["choices"]] == [again.context, context], "listed once"
    assert worker.work_once()
    assert (store.jobs.get(again.context).done, len(store.measurements.newest(KIND, context))) == (2, 2)
    assert '<th title="Who was the keeper?">keeper</th>' in state.props(again)["sweep"]["value"]
    assert do.remove(again) == Selection()
    assert store.jobs.all() == []


def test_two_documents_are_compared_on_the_page(service: Service, tmp_path: Path) -> None:
    worker, state, ids = Worker(service), TabState(service), []
    for rent in (900, 950):
        path = tmp_path / f"Lease {rent}.txt"
        path.write_text(f"Lease\n\nThe tenant pays {rent} euros of rent.\n\nThe flat has four rooms and a large hall.")
        ids += read_through(service, add(service, path)).document_ids
    do = Actions(service, worker, state, [], [], []).sweep
    assert [state.props(Selection(kept=tuple(some)))["compare"]["visible"] for some in (ids[:1], ids)] == [False, True]
    shown = do.compare(Selection(kept=tuple(ids)))
    assert "Comparing" in state.props(shown)["sweep"]["value"]
    assert worker.work_once()
    html = state.props(shown)["sweep"]["value"]
    assert html.count("<mark>") == 2
    one, other = ids
    [both] = re.findall(r'href="(side-by-side/[^"]+)', html)
    assert both.startswith(f"side-by-side/{one}/1/{other}/1?start=7&amp;end=41&amp;other_start=7&amp;other_end=41")
    pages = [page_of(service, id, 1) for id in ids]
    assert both_pages(*pages, (7, 41), (7, 41)).count('<mark id="passage">The tenant pays') == 2


def test_a_text_is_tested_on_the_page(
    service: Service, context: str, between: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, worker, state = service.store, Worker(service), TabState(service)
    do, shown = Actions(service, worker, state, [], [], []).sweep, Selection(context)
    assert "Self-test</button>" in state.props(shown)["book"]["value"]
    do.test(shown)
    between.append(lambda: do.stop_test(shown))
    assert worker.work_once()
    assert "Go on</button>" in state.props(shown)["book"]["value"]
    do.test(shown)
    assert worker.work_once()
    job = quiz_of(service, context)
    assert job is not None
    assert (job.status, job.done) == ("done", len(store.measurements.newest(KIND, context)))
    assert "No question could be made of it." in state.props(shown)["book"]["value"], "a tiny model makes none"


def test_only_lists_of_long_texts_are_offered_a_search(service: Service, context: str) -> None:
    store, worker = service.store, Worker(service)
    session = store.sessions.add(context).id
    for question in (QUESTION, "Who was the keeper?"):
        worker.ask(lambda: session, question, SHORT)
        assert worker.work_once()
    past = TabState(service).props(Selection(context, session))["past"]["value"]
    assert past.count("Search the whole text") == 1
    assert store.jobs.all(kind=module.SWEEP) == [], "nothing has begun"
