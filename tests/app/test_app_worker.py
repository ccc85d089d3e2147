"""The worker: jobs one after another, questions first, failures alone, and going on after a crash."""

import gc
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymupdf
import pytest

import engine
from app import shelf
from app.documents import Options
from app.errors import AppError
from app.service import Service
from app.turns import AnswerOptions, keep_question
from app.uploads import is_locked, wanted_uploads
from app.web.uploads import copy_in, sweep
from app.worker import Worker
from ingest import Document
from sessions import ContextRow, JobRow, Store
from tests.app.helpers import ROOT, book_text, wait_for
from tests.app.tiny import make_tiny_model

SETTINGS = {"budget": 320}


@pytest.fixture
def worker(service: Service) -> Iterator[Worker]:
    worker = Worker(service)
    worker.start()
    yield worker
    worker.stop()


def upload(service: Service, tmp_path: Path, name: str, data: bytes) -> list[Path]:
    original = tmp_path / "original"
    original.write_bytes(data)
    with original.open("rb") as handle:
        return copy_in(service.home, [(name, handle)])


def ended(service: Service, job_id: str) -> str:
    wait_for(lambda: service.store.job(job_id).status not in ("queued", "running"), f"job {job_id}")
    return service.store.job(job_id).status


def read_book(service: Service, worker: Worker, tmp_path: Path, paragraphs: int, wait: bool = True) -> str:
    files = upload(service, tmp_path, "book.txt", book_text(paragraphs).encode())
    job = worker.ingest(files, "exact", SETTINGS, Options())
    assert ended(service, job.id) == "done"
    context = str(service.store.job(job.id).progress["context"])
    if wait:
        wait_for(lambda: service.store.context(context).status == "ready", "the reading")
    return context


def test_a_job_that_fails_ends_alone_with_a_sentence(service: Service, worker: Worker, tmp_path: Path) -> None:
    files = upload(service, tmp_path, "broken.pdf", b"%PDF-1.4 nonsense")
    broken = worker.ingest(files, "exact", SETTINGS, Options())
    assert ended(service, broken.id) == "failed"
    assert "broken.pdf" in str(service.store.job(broken.id).error)
    assert not files[0].exists()
    context = read_book(service, worker, tmp_path, 20)
    history = service.store.measurements("reading", context)
    assert history[-1].values["tokens_done"] >= service.store.context(context).tokens
    assert history[-1].values["usage"]["bytes"]["host"] > 0
    assert history[-1].values["process_bytes"] > 0


def locked_pdf(path: Path) -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent, who was born in Tarvel.")
        pdf.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="swordfish")
    return path.read_bytes()


def test_an_encrypted_upload_is_kept_until_its_password_is_given(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    files = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.ingest(files, "exact", SETTINGS, Options(title="The Keeper"), wait=True)
    for password, status in (("herring", "failed"), ("swordfish", "done")):
        assert ended(service, job.id) == "failed"
        assert is_locked(service.store.job(job.id))
        before, job = job, worker.unlock(job.id, password)
        assert ended(service, job.id) == status
        assert service.store.job(before.id).progress == {"dismissed": True}
    assert [row.title for row in service.store.documents()] == ["The Keeper"]
    assert not files[0].exists()
    with pytest.raises(AppError, match="drop the file in again"):
        worker.unlock(job.id, "swordfish")


@pytest.mark.parametrize("password", [None, "herring"])
def test_files_whose_password_nobody_will_be_asked_for_are_not_kept(
    service: Service, worker: Worker, tmp_path: Path, password: str | None
) -> None:
    """They stayed in the home for ever."""
    files = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.ingest(files, "exact", SETTINGS, Options(password=password))
    assert ended(service, job.id) == "failed"
    wait_for(lambda: list((service.home / "uploads").iterdir()) == [], "the upload to be removed", 10)
    assert not is_locked(service.store.job(job.id))


@pytest.mark.parametrize("how", ["ingested", "deleted"])
def test_a_locked_copy_goes_when_its_file_is_ingested_or_deleted(
    service: Service, worker: Worker, tmp_path: Path, how: str
) -> None:
    data = locked_pdf(tmp_path / "made.pdf")

    def ingest(password: str | None) -> JobRow:
        files = upload(service, tmp_path, "locked.pdf", data)
        job = worker.ingest(files, "exact", SETTINGS, Options(password=password), wait=True)
        ended(service, job.id)
        return service.store.job(job.id)

    if how == "ingested":
        waits = ingest(None)
        assert is_locked(waits)
        assert ingest("swordfish").status == "done"
        wait_for(lambda: service.store.job(waits.id).progress == {"dismissed": True}, "the copy to go", 10)
    else:
        document = service.store.context(ingest("swordfish").progress["context"]).document_ids[0]
        wait_for(lambda: service.store.contexts()[0].status == "ready", "the reading")
        with pytest.MonkeyPatch.context() as unknown:  # another upload that began before the file was known
            unknown.setattr(service.store, "find_document", lambda sha256: None)
            waits = ingest(None)
        assert is_locked(waits)
        shelf.delete(service, "document", service.store.document(document))
        assert service.store.job(waits.id).progress == {"dismissed": True}
    wait_for(lambda: list((service.home / "uploads").iterdir()) == [], "the copies to be gone", 10)


def three_files(service: Service, tmp_path: Path) -> list[Path]:
    """Two books, and an encrypted file between them."""
    files = upload(service, tmp_path, "first.txt", book_text(20).encode())
    folder = files[0].parent
    (folder / "locked.pdf").write_bytes(locked_pdf(tmp_path / "made.pdf"))
    (folder / "last.txt").write_bytes(book_text(10).encode())
    return [*files, folder / "locked.pdf", folder / "last.txt"]


def test_one_encrypted_file_of_several_waits_for_its_password_and_nothing_is_lost(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    """It was left out, and its upload removed, before anybody could be asked for the password."""
    job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, Options(), wait=True)
    assert ended(service, job.id) == "failed"
    assert "locked.pdf is encrypted" in str(service.store.job(job.id).error)
    assert service.store.contexts() == []
    made = {row.id for row in service.store.documents()}
    assert len(made) == 2
    sweep(service.home, wanted_uploads(service.store))  # as a server that is started anew does
    wrong = worker.unlock(job.id, "herring")
    assert ended(service, wrong.id) == "failed"
    assert {row.id for row in service.store.documents()} == made  # and nobody extracts them again
    right = worker.unlock(wrong.id, "swordfish")
    assert ended(service, right.id) == "done"
    context = service.store.context(str(service.store.job(right.id).progress["context"]))
    assert [row.title for row in service.store.context_documents(context.id)] == ["first", "locked", "last"]
    assert context.warnings == []
    assert list((service.home / "uploads").iterdir()) == []


def test_the_others_are_read_without_an_encrypted_file_or_let_go_of(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    for read in (False, True):
        job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, Options(), wait=True)
        assert ended(service, job.id) == "failed"
        if read:
            job = worker.unlock(job.id, None)
            assert ended(service, job.id) == "done"
        else:
            worker.discard(job.id)
            assert service.store.documents() == []
        assert list((service.home / "uploads").iterdir()) == []
    context = service.store.context(str(service.store.job(job.id).progress["context"]))
    assert [row.title for row in service.store.context_documents(context.id)] == ["first", "last"]
    assert "locked.pdf" in context.warnings[0]


def test_files_left_out_are_named_also_where_the_rest_was_read_before(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    context = read_book(service, worker, tmp_path, 20)
    assert service.store.context(context).warnings == []
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    (files[0].parent / "torn.pdf").write_bytes(b"%PDF-1.4 nonsense")
    job = worker.ingest([*files, files[0].parent / "torn.pdf"], "exact", SETTINGS, Options())
    assert ended(service, job.id) == "done"
    assert service.store.job(job.id).progress["context"] == context
    assert "torn.pdf" in service.store.context(context).warnings[0]


def test_a_stop_while_text_is_turned_into_tokens_is_not_forgotten(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_document = service.library.document

    def asked_meanwhile(document_id: str) -> Document:  # the last thing before the text is encoded
        service.store.request_cancel(service.store.jobs(status="running")[0].id)
        return open_document(document_id)

    monkeypatch.setattr(service.library, "document", asked_meanwhile)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest(files, "exact", SETTINGS, Options())
    assert ended(service, job.id) == "cancelled"
    assert (service.store.contexts(), service.store.documents()) == ([], [])


def test_a_stop_when_an_upload_is_handed_over_stops_its_reading(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_context = service.store.add_context

    def asked_meanwhile(**fields: Any) -> ContextRow:
        service.store.request_cancel(service.store.jobs(status="running")[0].id)
        return add_context(**fields)

    monkeypatch.setattr(service.store, "add_context", asked_meanwhile)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest(files, "exact", SETTINGS, Options())
    assert ended(service, job.id) == "done"
    assert ended(service, str(service.store.job(job.id).progress["reading"])) == "cancelled"


def test_an_upload_under_way_when_the_server_ends_is_done_by_the_next(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(service)
    open_document = service.library.document

    def ends(document_id: str) -> Document:
        worker._stopping.set()
        return open_document(document_id)

    with monkeypatch.context() as patch:
        patch.setattr(service.library, "document", ends)
        files = upload(service, tmp_path, "book.txt", book_text(20).encode())
        job = worker.ingest(files, "exact", SETTINGS, Options())
        worker.run()
    assert (service.store.job(job.id).status, service.store.job(job.id).attempts) == ("queued", 0)
    following = Worker(service)
    following.start()
    assert ended(service, job.id) == "done"
    following.stop()


def test_a_text_that_cannot_be_read_is_not_kept_unseen(service: Service, worker: Worker, tmp_path: Path) -> None:
    known = read_book(service, worker, tmp_path, 20)
    for paragraphs in (20, 30):
        files = upload(service, tmp_path, "book.txt", book_text(paragraphs).encode())
        job = worker.ingest(files, "exact", {"budget": 320, "top_k": 300}, Options())  # leaves no room for a question
        assert ended(service, job.id) == "failed"
        assert [row.id for row in service.store.documents()] == service.store.context(known).document_ids


def test_a_password_is_never_written_down(service: Service, worker: Worker, tmp_path: Path) -> None:
    files = upload(service, tmp_path, "a.txt", book_text(5).encode())
    job = worker.ingest(files, "exact", SETTINGS, Options(password="swordfish"))
    ended(service, job.id)
    everything = b"".join(path.read_bytes() for path in service.home.glob("stockpot.db*"))
    assert b"swordfish" not in everything


def test_a_password_is_known_when_its_upload_is_claimed_at_once(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted after the job was queued, and the worker could be quicker."""
    add_job = service.store.add_job

    def slow(kind: str, *rest: Any) -> JobRow:
        job = add_job(kind, *rest)
        if kind == "ingest":
            ended(service, job.id)
        return job

    monkeypatch.setattr(service.store, "add_job", slow)
    files = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.ingest(files, "exact", SETTINGS, Options(password="swordfish"))
    assert service.store.job(job.id).status == "done"


def test_stopping_a_reading_keeps_its_checkpoint_and_it_can_be_taken_up_again(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    context = read_book(service, worker, tmp_path, 300, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs(subject_id=context)), "the first tokens")
    job = service.store.jobs(subject_id=context)[-1]
    service.store.request_cancel(job.id)
    assert ended(service, job.id) == "cancelled"
    row = service.store.context(context)
    assert row.status == "paused"
    assert 0 < row.tokens_read < row.tokens
    again = worker.read(context)
    assert worker.read(context).id == again.id  # asking twice does not queue it twice
    assert ended(service, again.id) == "done"
    assert service.store.context(context).status == "ready"


def test_memory_that_runs_out_fails_that_job_alone_and_the_reading_can_be_taken_up_again(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.methods.exact import ExactMemory

    def starved(self: ExactMemory, *rest: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ExactMemory, "attend", starved)
        context = read_book(service, worker, tmp_path, 30, wait=False)
        wait_for(lambda: bool(service.store.jobs(subject_id=context)), "the reading to be queued")
        failed = service.store.jobs(subject_id=context)[-1]
        assert ended(service, failed.id) == "failed"
    error = str(service.store.job(failed.id).error)
    assert "Memory ran out on cpu" in error
    assert service.store.context(context).error == error
    assert worker.is_alive()
    assert ended(service, worker.read(context).id) == "done"
    assert service.store.context(context).status == "ready"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store does not wait long for a locked database, nor the worker until it looks again."""
    monkeypatch.setattr("sessions.database.BUSY_SEC", 0.5)
    monkeypatch.setattr("app.worker.LOOK_SEC", 0.2)


@contextmanager
def locked(service: Service) -> Iterator[None]:
    """Somebody else writes to the database, and nobody else can."""
    with closing(sqlite3.connect(service.store.path, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_store_that_takes_nothing_is_told_later_how_an_answer_ended(
    impatient: None, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """The turn stayed "answering" and its job "running" until the program was started again."""
    context = read_book(service, worker, tmp_path, 10)
    session = service.store.add_session(context).id
    turn = keep_question(service, session, "Who?")
    job = worker.answer(turn.id, AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turn(turn.id).answer) > 5, "the first words")
    with locked(service):
        wait_for(lambda: bool(worker._late), "the answer to fail", 30)
        assert service.store.turn(turn.id).status == "answering"
    wait_for(lambda: service.store.job(job.id).status == "failed", "the job to end", 30)
    turn = service.store.turn(turn.id)
    assert (turn.status, len(turn.answer) > 5) == ("failed", True)
    assert "locked" in str(turn.error)
    again = keep_question(service, session, "Who?")
    assert ended(service, worker.answer(again.id, AnswerOptions(max_tokens=4)).id) == "done"
    service.store.delete_context(context)


def test_a_reading_goes_on_if_an_answer_within_it_cannot_be_written(
    impatient: None, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """It failed with the answer."""
    small = read_book(service, worker, tmp_path, 10)
    large = read_book(service, worker, tmp_path, 600, wait=False)
    turn = keep_question(service, service.store.add_session(small).id, "Who?")
    worker.answer(turn.id, AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turn(turn.id).answer) > 5, "the first words")
    with locked(service):
        wait_for(lambda: bool(worker._late), "the answer to fail", 30)
    wait_for(lambda: service.store.turn(turn.id).status == "failed", "the turn to end", 30)
    (reading,) = service.store.jobs(subject_id=large)
    assert reading.status == "running"
    wait_for(lambda: service.store.job(reading.id).done > reading.done, "the reading to go on", 30)
    service.store.request_cancel(reading.id)
    assert ended(service, reading.id) == "cancelled"


def test_a_store_that_takes_nothing_is_told_later_that_a_reading_failed(
    impatient: None, service: Service, worker: Worker, tmp_path: Path
) -> None:
    context = read_book(service, worker, tmp_path, 600, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs(subject_id=context)), "the first tokens")
    (job,) = service.store.jobs(subject_id=context)
    with locked(service):
        wait_for(lambda: bool(worker._late), "the reading to fail", 30)
        assert (service.store.job(job.id).status, service.store.context(context).status) == ("running", "reading")
    assert ended(service, job.id) == "failed"
    row = service.store.context(context)
    assert (row.status, row.error) == ("failed", service.store.job(job.id).error)
    service.store.request_cancel(worker.read(context).id)


def test_an_upload_becomes_its_reading_when_the_store_can_write_again(
    impatient: None, service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context stayed "reading", and nobody read it."""
    add_context, begun, go_on = service.store.add_context, threading.Event(), threading.Event()

    def add(**fields: Any) -> ContextRow:
        row = add_context(**fields)
        begun.set()
        assert go_on.wait(30)
        return row

    monkeypatch.setattr(service.store, "add_context", add)
    job = worker.ingest(upload(service, tmp_path, "book.txt", book_text(20).encode()), "exact", SETTINGS, Options())
    assert begun.wait(30)
    with locked(service):
        go_on.set()
        wait_for(lambda: bool(worker._late), "the worker to find out", 30)
        assert service.store.job(job.id).status == "running"
    assert ended(service, job.id) == "done"
    context = str(service.store.job(job.id).progress["context"])
    wait_for(lambda: service.store.context(context).status == "ready", "the reading")


KILLED = """
import os, signal, sys
from pathlib import Path
from sessions import Store

store = Store(Path(sys.argv[1]))
ids = [row.id for row in store.documents()]
store.add_context(model="m", method="full", settings={}, budget=None, fingerprint="f", document_ids=ids, tokens=9)
store.add_turn(sys.argv[2], "Who?")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_command_left_is_put_right_while_the_server_runs(
    impatient: None, service: Service, worker: Worker, tmp_path: Path
) -> None:
    """It was only looked for when a store was opened."""
    session = service.store.add_session(read_book(service, worker, tmp_path, 10)).id
    command = [sys.executable, "-c", KILLED, str(service.home), session]
    killed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_for(lambda: service.store.contexts()[0].status == "paused", "the reading to be paused", 30)
    wait_for(lambda: service.store.turns(session)[0].status == "failed", "the turn to end", 30)


def test_questions_go_before_a_reading(service: Service, worker: Worker, tmp_path: Path) -> None:
    small = read_book(service, worker, tmp_path, 10)
    large = read_book(service, worker, tmp_path, 600, wait=False)
    turn = keep_question(service, service.store.add_session(small).id, "Who?")
    job = worker.answer(turn.id, AnswerOptions(max_tokens=8))
    assert ended(service, job.id) == "done"
    assert service.store.context(large).status == "reading"
    assert service.store.turn(turn.id).status == "done"
    service.store.request_cancel(service.store.jobs(subject_id=large)[-1].id)


def test_a_reading_makes_room_for_a_question_to_another_model(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_tiny_model(tmp_path / "other", seed=7)
    context = read_book(service, worker, tmp_path, 20)
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
    files = upload(service, tmp_path, "long.txt", book_text(3000).encode())
    job = worker.ingest(files, "exact", SETTINGS, Options(), str(other))
    assert ended(service, job.id) == "done"
    long = str(service.store.job(job.id).progress["context"])
    wait_for(lambda: any(job.done for job in service.store.jobs(subject_id=long)), "the first tokens")
    turn = keep_question(service, service.store.add_session(context).id, "Who was the keeper?")
    worker.answer(turn.id, AnswerOptions(max_tokens=4))
    wait_for(lambda: service.store.turn(turn.id).status == "done", "the answer")
    assert service.store.context(long).status == "reading"
    wait_for(lambda: service.store.context(long).status == "ready", "the reading")
    assert loaded == ["other", Path(service.models.default).name, "other"]


def test_stopping_an_answer(service: Service, worker: Worker, tmp_path: Path) -> None:
    context = read_book(service, worker, tmp_path, 10)
    turn = keep_question(service, service.store.add_session(context).id, "Who?")
    job = worker.answer(turn.id, AnswerOptions(max_tokens=5000))
    wait_for(lambda: len(service.store.turn(turn.id).answer) > 5, "the first words")
    service.store.request_cancel(job.id)
    assert ended(service, job.id) == "cancelled"
    turn = service.store.turn(turn.id)
    assert (turn.status, len(turn.answer) > 5) == ("cancelled", True)


CHILD = """
import os, signal, sys
from pathlib import Path
from app.documents import Options, add_documents
from app.readings import begin, read
from app.service import Service

service = Service(sys.argv[1], sys.argv[2], "cpu")
ids = [row.id for row in add_documents(service, [Path(sys.argv[3])], Options(), lambda *_: None).documents]
row = begin(service, ids, "exact", {"budget": 320})

def report(now):
    if service.store.context(row.id).tokens_read > 0:
        os.kill(os.getpid(), signal.SIGKILL)

read(service, row.id, report, checkpoint_sec=0.0)
"""


def test_a_killed_reading_goes_on_from_its_checkpoint(tmp_path: Path, tiny: Path) -> None:
    book, home = tmp_path / "book.txt", tmp_path / "home"
    book.write_text(book_text(120), encoding="utf-8")
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, str(home), str(tiny), str(book)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with Store(home) as store:
        row = store.contexts()[0]
        assert row.status == "paused"
        reached = row.tokens_read
        assert 0 < reached < row.tokens
    service = Service(home, str(tiny), "cpu")
    worker = Worker(service)
    worker.start()
    worker.read(row.id)
    wait_for(lambda: service.store.context(row.id).status == "ready", "the reading")
    steps = [
        each.values["tokens_done"]
        for each in service.store.measurements("reading", row.id)
        if each.values["stage"] == "reading"
    ]
    assert steps[0] > reached
    worker.stop()
    service.close()


def test_a_server_that_ends_leaves_its_reading_queued_and_the_next_goes_on(tmp_path: Path, tiny: Path) -> None:
    service = Service(tmp_path / "home", str(tiny), "cpu")
    worker = Worker(service)
    worker.start()
    context = read_book(service, worker, tmp_path, 300, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs(subject_id=context)), "the first tokens")
    worker.stop()
    job = service.store.jobs(subject_id=context)[-1]
    reached = service.store.context(context).tokens_read
    assert (job.status, job.attempts, service.store.context(context).status) == ("queued", 0, "reading")
    assert reached > 0
    service.close()

    service = Service(tmp_path / "home", str(tiny), "cpu")
    worker = Worker(service)
    worker.start()
    wait_for(lambda: service.store.context(context).status == "ready", "the reading")
    assert len(service.store.jobs(subject_id=context)) == 1
    worker.stop()
    service.close()
