"""The worker after failures: a store that cannot be written, and killed processes."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.asking.answer_options import AnswerOptions
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions
from app.reading.progress import Report
from app.reading.readings import read
from app.service import Service
from sessions import ContextRow, Store
from tests.app.forked import start
from tests.app.helpers import (
    PATIENCE_SEC,
    ROOT,
    SETTINGS,
    add,
    answered,
    begin,
    book_text,
    ended,
    read_book,
    upload,
    wait_for,
)


@pytest.fixture
def worker(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """Return a worker that waits neither long for a locked database nor for its next look."""
    monkeypatch.setattr("sessions.database.BUSY_SEC", 0.5)  # its thread opens a connection of its own
    monkeypatch.setattr("app.jobs.job_runner.LOOK_SEC", 0.2)
    worker = Worker(service)
    worker.start()
    yield worker
    worker.stop()


@contextmanager
def locked(service: Service) -> Iterator[None]:
    """Lock the database against all other writers."""
    with closing(sqlite3.connect(service.store.database.path, timeout=PATIENCE_SEC, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_store_that_takes_nothing_is_told_later_how_an_answer_ended(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """The turn stayed "answering" and its job "running" until the program was started again."""
    context = read_book(service, worker, tmp_path, 10)
    held.set()
    session = service.store.sessions.add(context).id
    turn = worker.ask(lambda: session, "Who?", AnswerOptions(max_tokens=5000))
    (job,) = service.store.jobs.all(subject_id=turn.id)
    wait_for(lambda: len(service.store.turns.get(turn.id).answer) > 5, "the first words")
    with locked(service):
        wait_for(lambda: bool(worker._late), "the answer to fail")
        assert service.store.turns.get(turn.id).status == "answering"
    wait_for(lambda: service.store.jobs.get(job.id).status == "failed", "the job to end")
    turn = service.store.turns.get(turn.id)
    assert (turn.status, len(turn.answer) > 5) == ("failed", True)
    assert "locked" in str(turn.error)
    assert answered(service, worker, session, AnswerOptions(max_tokens=4)) == "done"
    service.store.contexts.delete(context)


def test_a_reading_goes_on_if_an_answer_within_it_cannot_be_written(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """The reading failed with the answer."""
    small = read_book(service, worker, tmp_path, 10)
    held.set()
    large = read_book(service, worker, tmp_path, 30, wait=False)
    jobs = service.store.jobs  # a question among them goes first
    wait_for(lambda: bool(jobs.all(subject_id=large, status="running")), "the reading to begin")
    turn = worker.ask(lambda: service.store.sessions.add(small).id, "Who?", AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turns.get(turn.id).answer) > 5, "the first words")
    with locked(service):
        wait_for(lambda: bool(worker._late), "the answer to fail")
    wait_for(lambda: service.store.turns.get(turn.id).status == "failed", "the turn to end")
    (reading,) = service.store.jobs.all(subject_id=large)
    assert reading.status == "running"
    held.clear()
    assert ended(service, reading.id) == "done"


def test_a_store_that_takes_nothing_is_told_later_that_a_reading_failed(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path
) -> None:
    held.set()
    context = read_book(service, worker, tmp_path, 30, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs.all(subject_id=context)), "the first tokens")
    (job,) = service.store.jobs.all(subject_id=context)
    with locked(service):
        wait_for(lambda: bool(worker._late), "the reading to fail")
        assert (service.store.jobs.get(job.id).status, service.store.contexts.get(context).status) == (
            "running",
            "reading",
        )
    assert ended(service, job.id) == "failed"
    row = service.store.contexts.get(context)
    assert (row.status, row.error) == ("failed", service.store.jobs.get(job.id).error)
    held.clear()
    assert ended(service, worker.read(context).id) == "done"


def test_an_upload_becomes_its_reading_when_the_store_can_write_again(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context stayed "reading", and nobody read it."""
    add_context, begun, go_on = service.store.contexts.add, threading.Event(), threading.Event()

    def add(**fields: Any) -> ContextRow:
        row = add_context(**fields)
        begun.set()
        assert go_on.wait(PATIENCE_SEC)
        return row

    monkeypatch.setattr(service.store.contexts, "add", add)
    job = worker.ingest(
        upload(service, tmp_path, "book.txt", book_text(20).encode()), "exact", SETTINGS, IngestOptions()
    )
    assert begun.wait(PATIENCE_SEC)
    with locked(service):
        go_on.set()
        wait_for(lambda: bool(worker._late), "the worker to find out")
        assert service.store.jobs.get(job.id).status == "running"
    assert ended(service, job.id) == "done"
    context = str(service.store.jobs.get(job.id).progress["context"])
    wait_for(lambda: service.store.contexts.get(context).status == "ready", "the reading")


def test_a_worker_is_known_to_be_there_however_long_an_answer_takes(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """Programs in other containers, which cannot see its process, took it for dead after a minute."""
    session = service.store.sessions.add(read_book(service, worker, tmp_path, 10)).id
    held.set()
    turn = worker.ask(lambda: session, "Who?", AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turns.get(turn.id).answer) > 5, "the first words")
    (before,) = service.store.workers.all()
    wait_for(lambda: service.store.workers.all()[0].heartbeat_at > before.heartbeat_at, "a sign of life")
    assert service.store.turns.get(turn.id).status == "answering"
    worker.stop_answer(turn.id)


KILLED = """
import os, signal, sys
from pathlib import Path
from sessions import Store

store = Store(Path(sys.argv[1]))
ids = [row.id for row in store.documents.all()]
store.contexts.add(model="m", method="full", settings={}, budget=None, fingerprint="f", document_ids=ids, tokens=9)
store.turns.add(sys.argv[2], "Who?")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_command_left_is_put_right_while_the_server_runs(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    """Leftovers were only looked for when a store was opened."""
    session = service.store.sessions.add(read_book(service, worker, tmp_path, 10)).id
    command = [sys.executable, "-c", KILLED, str(service.home), session]
    killed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_for(lambda: service.store.contexts.all()[0].status == "paused", "the reading to be paused")
    wait_for(lambda: service.store.turns.all(session)[0].status == "failed", "the turn to end")


def read_until_killed(home: Path, model: Path, book: Path) -> None:
    service = Service(home, str(model), "cpu")
    row = begin(service, add(service, book), "exact", SETTINGS)

    def report(now: Report) -> None:
        if service.store.contexts.get(row.id).tokens_read > 0:
            os.kill(os.getpid(), signal.SIGKILL)

    read(service, row.id, report, checkpoint_sec=0.0)


def test_a_killed_reading_goes_on_from_its_checkpoint(tmp_path: Path, tiny: Path) -> None:
    book, home = tmp_path / "book.txt", tmp_path / "home"
    book.write_text(book_text(120), encoding="utf-8")
    killed = start(read_until_killed, home, tiny, book)
    killed.join(PATIENCE_SEC)
    assert killed.exitcode == -signal.SIGKILL
    with Store(home) as store:
        row = store.contexts.all()[0]
        assert row.status == "paused"
        reached = row.tokens_read
        assert 0 < reached < row.tokens
    service = Service(home, str(tiny), "cpu")
    worker = Worker(service)
    worker.start()
    worker.read(row.id)
    wait_for(lambda: service.store.contexts.get(row.id).status == "ready", "the reading")
    steps = [
        each.values["tokens_done"]
        for each in service.store.measurements.newest("reading", row.id)
        if each.values["stage"] == "reading"
    ]
    assert steps[0] > reached
    worker.stop()
    service.close()


def test_a_server_that_ends_leaves_its_reading_queued_and_the_next_goes_on(
    held: threading.Event, tmp_path: Path, tiny: Path
) -> None:
    held.set()
    service = Service(tmp_path / "home", str(tiny), "cpu")
    worker = Worker(service)
    worker.start()
    context = read_book(service, worker, tmp_path, 30, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs.all(subject_id=context)), "the first tokens")
    worker.stop()
    job = service.store.jobs.all(subject_id=context)[-1]
    reached = service.store.contexts.get(context).tokens_read
    assert (job.status, job.attempts, service.store.contexts.get(context).status) == ("queued", 0, "reading")
    assert reached > 0
    service.close()
    held.clear()

    service = Service(tmp_path / "home", str(tiny), "cpu")
    worker = Worker(service)
    worker.start()
    wait_for(lambda: service.store.contexts.get(context).status == "ready", "the reading")
    assert len(service.store.jobs.all(subject_id=context)) == 1
    worker.stop()
    service.close()
