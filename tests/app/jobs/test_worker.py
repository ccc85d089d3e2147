"""The worker: jobs one after another, questions first, and failures alone."""

import gc
import sqlite3
import threading
import weakref
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import engine
from app.api.openai_turns import session_saying
from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, keep_question
from app.errors import AppError, UsageError
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import Selection, TabState
from sessions import ContextRow, DiskFull, InUse, JobRow, TurnRow
from tests.app.helpers import (
    SETTINGS,
    SHORT,
    add,
    add_context,
    answered,
    book_text,
    ended,
    read_book,
    read_through,
    upload,
    wait_for,
)
from tests.app.tiny import make_tiny_model


def test_a_job_that_fails_ends_alone_with_a_sentence(service: Service, worker: Worker, tmp_path: Path) -> None:
    files = upload(service, tmp_path, "broken.pdf", b"%PDF-1.4 nonsense")
    broken = worker.ingest(files, "exact", SETTINGS, IngestOptions())
    assert ended(service, broken.id) == "failed"
    assert "broken.pdf" in str(service.store.jobs.get(broken.id).error)
    assert not files[0].exists()
    context = read_book(service, worker, tmp_path, 20)
    history = service.store.measurements.newest("reading", context)
    assert history[-1].values["tokens_done"] >= service.store.contexts.get(context).tokens
    assert history[-1].values["usage"]["bytes"]["host"] > 0
    assert history[-1].values["process_bytes"] > 0


def test_stopping_a_reading_keeps_its_checkpoint_and_it_can_be_taken_up_again(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path
) -> None:
    held.set()
    context = read_book(service, worker, tmp_path, 30, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs.all(subject_id=context)), "the first tokens")
    job = service.store.jobs.all(subject_id=context)[-1]
    service.store.jobs.request_cancel(job.id)
    assert ended(service, job.id) == "cancelled"
    row = service.store.contexts.get(context)
    assert row.status == "paused"
    assert 0 < row.tokens_read < row.tokens
    again = worker.read(context)
    assert worker.read(context).id == again.id  # asking twice does not queue it twice
    held.clear()
    assert ended(service, again.id) == "done"
    assert service.store.contexts.get(context).status == "ready"


def test_a_reading_that_is_taken_up_while_it_stops_goes_on(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stopped all the same, although its job had been returned to the caller."""
    held.set()
    context = read_book(service, worker, tmp_path, 30, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs.all(subject_id=context)), "the first tokens")
    job = service.store.jobs.all(subject_id=context)[-1]
    update, again = service.store.contexts.update, list[str]()

    def taken_up(*given: Any, **changes: Any) -> ContextRow:
        row = update(*given, **changes)
        if changes.get("status") == "paused":
            again.append(worker.read(context).id)
        return row

    monkeypatch.setattr(service.store.contexts, "update", taken_up)
    service.store.jobs.request_cancel(job.id)
    wait_for(lambda: bool(again), "the reading to stop")
    held.clear()
    assert again == [job.id]
    assert ended(service, job.id) == "done"
    assert service.store.contexts.get(context).status == "ready"


def test_memory_that_runs_out_fails_that_job_alone_and_the_reading_can_be_taken_up_again(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.memory import Memory

    def starved(self: Memory, *rest: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Memory, "attend", starved)
        context = read_book(service, worker, tmp_path, 30, wait=False)
        wait_for(lambda: bool(service.store.jobs.all(subject_id=context)), "the reading to be queued")
        failed = service.store.jobs.all(subject_id=context)[-1]
        assert ended(service, failed.id) == "failed"
    error = str(service.store.jobs.get(failed.id).error)
    assert "Memory ran out on cpu" in error
    assert service.store.contexts.get(context).error == error
    assert worker.is_alive()
    assert ended(service, worker.read(context).id) == "done"
    assert service.store.contexts.get(context).status == "ready"


def test_questions_go_before_a_reading(held: threading.Event, service: Service, worker: Worker, tmp_path: Path) -> None:
    small = read_book(service, worker, tmp_path, 10)
    held.set()
    large = read_book(service, worker, tmp_path, 30, wait=False)
    assert answered(service, worker, service.store.sessions.add(small).id, AnswerOptions(max_tokens=8)) == "done"
    assert service.store.contexts.get(large).status == "reading"


def test_a_reading_makes_room_for_a_question_to_another_model(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_tiny_model(tmp_path / "other", seed=7)
    context = read_book(service, worker, tmp_path, 20)
    held.set()
    loaded: list[str] = []
    alive = weakref.WeakSet([service.models.get()])
    load = engine.load_model

    def loading(source: str, *given: Any, **settings: Any) -> engine.Model:
        gc.collect()
        assert not alive, "two models in memory"
        loaded.append(Path(source).name)
        model = load(source, *given, **settings)
        alive.add(model)
        return model

    monkeypatch.setattr(engine, "load_model", loading)
    files = upload(service, tmp_path, "long.txt", book_text(30).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(), str(other))
    assert ended(service, job.id) == "done"
    long = str(service.store.jobs.get(job.id).progress["context"])
    wait_for(lambda: any(job.done for job in service.store.jobs.all(subject_id=long)), "the first tokens")
    assert answered(service, worker, service.store.sessions.add(context).id, AnswerOptions(max_tokens=4)) == "done"
    assert service.store.contexts.get(long).status == "reading"
    held.clear()
    wait_for(lambda: service.store.contexts.get(long).status == "ready", "the reading")
    assert loaded == ["other", Path(service.models.default).name, "other"]


def test_a_reading_makes_no_room_for_a_question_that_has_to_wait(service: Service, book: Path) -> None:
    """It was stopped and resumed with its model, for as long as a command answered the question before."""
    session = service.store.sessions.add(read_through(service, add(service, book)).id).id
    worker, before = Worker(service), keep_question(service, session, "Who?")
    worker.ask(lambda: session, "Where?", SHORT)
    assert not worker._another_is_asked("another")
    service.store.turns.finish(before.id)
    assert worker._another_is_asked("another")
    assert not worker._another_is_asked(service.models.default)


def test_a_question_to_another_model_that_comes_while_one_is_answered_waits_for_room(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered in the middle of the reading, with two models in memory."""
    store, worker, asked = service.store, Worker(service), list[TurnRow]()
    ours = read_through(service, add(service, book))
    theirs = store.contexts.update(add_context(service, *store.documents.all()).id, status="ready")
    assert theirs.model != ours.model
    first = worker.ask(lambda: store.sessions.add(ours.id).id, "Who?", SHORT)

    def answered_meanwhile(job: JobRow, do: object) -> None:
        if job.subject_id == first.id:
            asked.append(worker.ask(lambda: store.sessions.add(theirs.id).id, "Where?", SHORT))
        store.turns.finish(job.subject_id, answer="He.")
        store.jobs.end(job.id, "done")

    monkeypatch.setattr(worker, "_do", answered_meanwhile)
    assert worker._answer_waiting(ours.model)
    assert [store.turns.get(each.id).status for each in (first, *asked)] == ["done", "answering"]


def test_stopping_an_answer(held: threading.Event, service: Service, worker: Worker, tmp_path: Path) -> None:
    context = read_book(service, worker, tmp_path, 10)
    held.set()
    turn = worker.ask(lambda: service.store.sessions.add(context).id, "Who?", AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turns.get(turn.id).answer) > 5, "the first words")
    worker.stop_answer(turn.id)
    assert ended(service, service.store.jobs.all(subject_id=turn.id)[0].id) == "cancelled"
    turn = service.store.turns.get(turn.id)
    assert (turn.status, len(turn.answer) > 5) == ("cancelled", True)


def test_an_answer_that_a_stopping_program_leaves_says_so(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """It was marked as stopped by a person."""
    context = read_book(service, worker, tmp_path, 10)
    held.set()
    turn = worker.ask(lambda: service.store.sessions.add(context).id, "Who?", AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turns.get(turn.id).answer) > 5, "the first words")
    worker.stop()
    assert ended(service, service.store.jobs.all(subject_id=turn.id)[0].id) == "failed"
    turn = service.store.turns.get(turn.id)
    assert (turn.status, len(turn.answer) > 5) == ("failed", True)
    assert turn.error == "The program stopped while this was being answered; ask again."


def test_an_answer_of_another_program_is_stopped_there(service: Service, book: Path) -> None:
    """Stop did nothing, without a message, if a command was answering."""
    actions, store = Actions(service, Worker(service), TabState(service), [], [], []), service.store
    context = read_through(service, add(service, book)).id
    session = store.sessions.add(context).id
    theirs, ours = keep_question(service, session, "Who?"), actions.ask.worker.ask(lambda: session, "Where?", SHORT)
    with pytest.raises(InUse, match=f"answers {theirs.id}: stop it there"):
        actions.ask.stop_answer(Selection(context, session))
    assert [each.status for each in store.turns.all(session)] == ["answering", "cancelled"]
    store.turns.finish(theirs.id)
    actions.ask.worker.stop_answer(theirs.id, ours.id)
    assert [each.status for each in store.turns.all(session)] == ["done", "cancelled"]


def test_a_question_that_cannot_be_queued_is_not_kept_nor_what_was_made_for_it(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question stayed "answering", and nothing could be asked until the server was restarted."""
    worker, store = Worker(service), service.store
    actions, context = (
        Actions(service, worker, TabState(service), [], [], []),
        read_through(service, add(service, book)),
    )
    session = store.sessions.add(context.id)
    turn = answer(service, keep_question(service, session.id, "Who?").id, SHORT)

    def full(*given: Any) -> JobRow:
        raise DiskFull(service.home, None, 0)

    with monkeypatch.context() as patch:
        patch.setattr(store.jobs, "add", full)
        for chosen in (
            Selection(context.id, session.id),
            Selection(context.id),
            Selection(context.id, session.id, turn.id),
        ):
            with pytest.raises(DiskFull):
                actions.ask.ask(chosen, "Where?", 0.0, 1.0, 4)
    with pytest.raises(UsageError, match="at most"):
        actions.ask.ask(Selection(context.id), "Where? " * 4000, 0.0, 1.0, 4)
    assert [row.id for row in store.sessions.all()] == [session.id]
    assert store.turns.all(session.id) == [turn]
    asked = actions.ask.ask(Selection(context.id, session.id), "Where?", 0.0, 1.0, 4)
    assert asked.session == session.id
    with pytest.raises(AppError, match="still being answered"):
        actions.ask.ask(asked, "When?", 0.0, 1.0, 4)
    actions.ask.stop_answer(asked)
    assert [each.status for each in store.turns.all(session.id)] == ["done", "cancelled"]


def test_nobody_else_asks_in_a_session_while_it_is_chosen(service: Service, book: Path) -> None:
    """Regression: two programs continued one conversation, and one was answered after the other's question."""
    worker, context = Worker(service), read_through(service, add(service, book)).id
    session = service.store.sessions.add(context).id
    said = answer(service, keep_question(service, session, "Who?").id, SHORT)

    def chosen() -> str:
        found = session_saying(service, context, [("Who?", said.answer.strip())], None).id
        other = sqlite3.connect(service.store.database.path, timeout=0)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        return found

    first, second = (worker.ask(chosen, "Where?", SHORT) for _ in range(2))
    assert first.session_id == session
    assert second.session_id != session
    assert [each.question for each in service.store.turns.all(second.session_id)] == ["Who?", "Where?"]
