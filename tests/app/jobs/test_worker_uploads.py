"""The worker and uploads: files that are left out, stopped or not finished, and their copies."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from app.deletion import delete
from app.jobs.uploads import WAITING, discard, sweep
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions
from app.service import Service
from ingest import Document
from ingest.subprocess import ingest_in_subprocess
from sessions import ContextRow, DiskFull, JobRow
from tests.app.helpers import (
    PATIENCE_SEC,
    SETTINGS,
    book_text,
    ended,
    fails,
    read_book,
    upload,
    wait_for,
    work_once,
)


def test_files_left_out_are_named_also_where_the_rest_was_read_before(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    context = read_book(service, worker, tmp_path, 20)
    assert service.store.contexts.get(context).warnings == []
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    (files[0].parent / "torn.pdf").write_bytes(b"%PDF-1.4 nonsense")
    job = worker.ingest([*files, files[0].parent / "torn.pdf"], "exact", SETTINGS, IngestOptions())
    assert ended(service, job.id) == "done"
    assert service.store.jobs.get(job.id).progress["context"] == context
    assert "torn.pdf" in service.store.contexts.get(context).warnings[0]


def test_a_file_that_cannot_be_read_is_told_while_the_next_one_is_opened(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, told = Worker(service), list[str]()
    torn = upload(service, tmp_path, "torn.pdf", b"%PDF-1.4 nonsense")
    book = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest([*torn, *book], "exact", SETTINGS, IngestOptions())

    def noted(file: Path, **options: Any) -> Document:
        told.extend(service.store.jobs.get(job.id).progress.get("left_out", ["nothing"]))
        return ingest_in_subprocess(file, **options)

    monkeypatch.setattr("app.reading.documents.ingest_in_subprocess", noted)
    work_once(worker)
    assert told[0] == "nothing"
    assert "torn.pdf" in told[1]
    waiting = worker.ingest(
        [
            *upload(service, tmp_path, "torn.pdf", b"%PDF-1.4 nonsense"),
            *upload(service, tmp_path, "b.txt", book_text(21).encode()),
        ],
        "exact",
        SETTINGS,
        IngestOptions(),
    )
    worker.take_in_once()
    assert service.store.jobs.get(waiting.id).stage == WAITING
    assert "torn.pdf" in service.store.jobs.get(waiting.id).progress["left_out"][0]


def test_a_stop_while_text_is_turned_into_tokens_is_not_forgotten(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_document = service.document_cache.document

    def asked_meanwhile(document_id: str) -> Document:  # the last thing before the text is encoded
        service.store.jobs.request_cancel(service.store.jobs.all(status="running")[0].id)
        return open_document(document_id)

    monkeypatch.setattr(service.document_cache, "document", asked_meanwhile)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions())
    assert ended(service, job.id) == "cancelled"
    wait_for(lambda: service.store.documents.all() == [], "the document to go")
    assert service.store.contexts.all() == []


def test_a_stop_when_an_upload_is_handed_over_stops_its_reading(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_context = service.store.contexts.add

    def asked_meanwhile(**fields: Any) -> ContextRow:
        service.store.jobs.request_cancel(service.store.jobs.all(status="running")[0].id)
        return add_context(**fields)

    monkeypatch.setattr(service.store.contexts, "add", asked_meanwhile)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions())
    assert ended(service, job.id) == "done"
    assert ended(service, str(service.store.jobs.get(job.id).progress["reading"])) == "cancelled"


def test_an_upload_under_way_when_the_server_ends_is_done_by_the_next(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(service)
    open_document = service.document_cache.document

    def ends(document_id: str) -> Document:
        worker.stop()
        return open_document(document_id)

    with monkeypatch.context() as patch:
        patch.setattr(service.document_cache, "document", ends)
        files = upload(service, tmp_path, "book.txt", book_text(20).encode())
        job = worker.ingest(files, "exact", SETTINGS, IngestOptions())
        worker.run()
    assert (service.store.jobs.get(job.id).status, service.store.jobs.get(job.id).attempts) == ("queued", 0)
    following = Worker(service)
    following.start()
    assert ended(service, job.id) == "done"
    following.stop()


def test_files_are_opened_and_turned_into_tokens_while_a_book_is_read(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken or known file was reported only when the book had been read."""
    before = read_book(service, worker, tmp_path, 19)
    held.set()
    first = read_book(service, worker, tmp_path, 20, wait=False)
    wait_for(lambda: service.store.contexts.get(first).status == "reading", "the reading to begin")
    broken, second, third = (
        worker.ingest(upload(service, tmp_path, name, data), "exact", SETTINGS, IngestOptions())
        for name, data in (
            ("torn.pdf", b"%PDF-1.7 torn"),
            ("second.txt", book_text(21).encode()),
            ("third.txt", book_text(22).encode()),
        )
    )
    assert ended(service, broken.id) == "failed"
    assert read_book(service, worker, tmp_path, 19, wait=False) == before
    for job in (second, third):
        wait_for(lambda job=job: service.store.jobs.get(job.id).stage == WAITING, "the text")  # type: ignore[misc]
    assert len(service.store.documents.all()) == 4
    worker.cancel(third.id)  # removed at once
    assert ended(service, third.id) == "cancelled"
    wait_for(lambda: len(service.store.documents.all()) == 3, "the document to go")
    assert (service.store.contexts.get(first).status, service.store.jobs.get(second.id).status) == (
        "reading",
        "running",
    )
    monkeypatch.setattr("app.reading.preparing.compose", lambda *_: pytest.fail("it is turned into tokens only now"))
    held.clear()
    assert ended(service, second.id) == "done"
    wait_for(lambda: [row.status for row in service.store.contexts.all()] == ["ready"] * 3, "both readings")


def test_an_upload_that_waits_is_stopped_at_once(service: Service, tmp_path: Path) -> None:
    """It waited until the next upload's text was extracted, which may take hours."""
    worker = Worker(service)  # its threads do not run
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions())
    assert worker.take_in_once()
    assert service.store.jobs.get(job.id).stage == WAITING
    worker.cancel(job.id)
    assert service.store.jobs.get(job.id).status == "cancelled"
    assert (service.store.documents.all(), [file.exists() for file in files]) == ([], [False])
    assert not worker.work_once()


def test_an_upload_that_waits_for_its_turn_when_the_server_ends_is_done_by_the_next(
    held: threading.Event, service: Service, tmp_path: Path
) -> None:
    held.set()
    worker = Worker(service)
    worker.start()
    first = read_book(service, worker, tmp_path, 20, wait=False)
    wait_for(lambda: service.store.contexts.get(first).status == "reading", "the reading to begin")
    files = upload(service, tmp_path, "second.txt", book_text(21).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions())
    wait_for(lambda: service.store.jobs.get(job.id).stage == WAITING, "the text")
    worker.stop()
    assert (service.store.jobs.get(job.id).status, service.store.jobs.get(job.id).attempts) == ("queued", 0)
    assert all(file.exists() for file in files)
    held.clear()
    following = Worker(service)
    following.start()
    assert ended(service, job.id) == "done"
    wait_for(lambda: [row.status for row in service.store.contexts.all()] == ["ready", "ready"], "both readings")
    following.stop()


def test_a_document_that_is_deleted_before_it_is_read_again_ends_that_with_a_sentence(
    service: Service, tmp_path: Path
) -> None:
    worker = Worker(service)
    worker.ingest(upload(service, tmp_path, "book.txt", book_text(20).encode()), "exact", SETTINGS, IngestOptions())
    work_once(worker)
    [document] = service.store.documents.all()
    alone = worker.ingest([], "streaming", {"budget": 64}, IngestOptions(), documents=[document.id])
    files = upload(service, tmp_path, "other.txt", book_text(30).encode())
    beside = worker.ingest(files, "exact", SETTINGS, IngestOptions(), documents=[document.id])
    delete(service, "document", document)
    work_once(worker)
    assert service.store.jobs.get(alone.id).status == "failed"
    assert "deleted before they were read" in str(service.store.jobs.get(alone.id).error)
    work_once(worker)  # the file's only copy went with it
    context = service.store.contexts.get(service.store.jobs.get(beside.id).progress["context"])
    assert [row.title for row in service.store.contexts.documents(context.id)] == ["other"]
    assert context.warnings == ["Left out: 1 document deleted meanwhile."]


@pytest.mark.parametrize("when", ["queued", "running"])
def test_an_upload_that_is_cancelled_after_a_restart_leaves_nothing(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Documents made before the restart stayed, although the page said that nothing was kept."""
    first, following = Worker(service), Worker(service)
    open_document = service.document_cache.document
    job = first.ingest(
        upload(service, tmp_path, "book.txt", book_text(20).encode()), "exact", SETTINGS, IngestOptions()
    )

    def meanwhile(document_id: str) -> Document:
        if first._stopping.is_set():
            following.cancel(job.id)
        first.stop()
        return open_document(document_id)

    monkeypatch.setattr(service.document_cache, "document", meanwhile)
    first.run()
    assert len(service.store.documents.all()) == 1
    if when == "queued":
        following.cancel(job.id)
    else:
        work_once(following)
    assert service.store.jobs.get(job.id).status == "cancelled"
    assert service.store.documents.all() == []


def test_a_text_that_cannot_be_read_in_one_way_is_kept_to_be_read_in_another(service: Service, tmp_path: Path) -> None:
    """Regression: it was removed with its upload, after an hour of OCR, although the error named another way."""
    worker = Worker(service)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = fails(worker, files)
    [document] = service.store.documents.all()
    assert job.progress == {"documents": [document.id]}
    assert not files[0].exists()
    fails(worker, [], document.id)
    again = worker.ingest([], "exact", SETTINGS, IngestOptions(), documents=job.progress["documents"])
    work_once(worker)
    assert service.store.jobs.get(again.id).status == "done"
    assert [row.document_ids for row in service.store.contexts.all()] == [[document.id]]


def test_removing_an_upload_that_failed_takes_what_was_made_of_it_and_nothing_else_uses(
    service: Service, tmp_path: Path
) -> None:
    worker = Worker(service)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    made = fails(worker, files)
    known = fails(worker, upload(service, tmp_path, "book.txt", book_text(20).encode()))
    [document] = service.store.documents.all()
    discard(service, known)  # it only found it there
    again = worker.ingest([], "exact", SETTINGS, IngestOptions(), documents=[document.id])
    discard(service, made)
    assert service.store.documents.all() == [document]  # somebody waits for it
    work_once(worker)
    assert service.store.jobs.get(again.id).status == "done"
    delete(service, "document", document)
    discard(service, fails(worker, upload(service, tmp_path, "book.txt", book_text(20).encode())))
    assert service.store.documents.all() == []


def test_the_names_of_files_that_became_nothing_are_forgotten(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stayed in the database for good, as did those of deleted contexts."""
    context = read_book(service, worker, tmp_path, 20)
    (read,) = service.store.jobs.all(kind="ingest")
    torn = [worker.ingest(upload(service, tmp_path, "torn.pdf", b"%PDF-1.4 no"), "exact", SETTINGS, IngestOptions()).id]
    assert ended(service, torn[0]) == "failed"
    gone = worker.ingest(upload(service, tmp_path, "gone.pdf", b"%PDF-1.4 no"), "exact", SETTINGS, IngestOptions()).id
    assert ended(service, gone) == "failed"
    discard(service, service.store.jobs.get(gone))
    sweep(service)
    assert [job.id for job in service.store.jobs.all(kind="ingest")] == [
        read.id,
        *torn,
    ]  # why it failed may still be asked
    monkeypatch.setattr("app.jobs.uploads.RECENT_SEC", 0)
    sweep(service)
    assert service.store.jobs.all(kind="ingest") == [read]
    wait_for(lambda: all(job.finished_at for job in service.store.jobs.all()), "the worker to let go of the context")
    delete(service, "context", service.store.contexts.get(context))
    assert service.store.jobs.all() == []


def test_an_upload_that_was_cancelled_before_anybody_took_it_leaves_nothing(service: Service, tmp_path: Path) -> None:
    """Its files and password were kept for a worker that never came."""
    worker = Worker(service)
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password="swordfish"))
    assert worker.cancel(job.id).status == "cancelled"
    assert list((service.home / "uploads").iterdir()) == []
    assert worker._passwords == {}
    assert worker.cancel(job.id).status == "cancelled"  # asking twice does no harm


def test_an_upload_that_cannot_be_queued_leaves_nothing(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, files = Worker(service), upload(service, tmp_path, "book.txt", book_text(20).encode())

    def full(*given: Any) -> JobRow:
        raise DiskFull(service.home, None, 0)

    monkeypatch.setattr(service.store.jobs, "add", full)
    with pytest.raises(DiskFull):
        worker.ingest(files, "exact", SETTINGS, IngestOptions(password="swordfish"))
    assert list((service.home / "uploads").iterdir()) == []
    assert worker._passwords == {}


@pytest.mark.parametrize("moved", [True, False])
def test_an_upload_that_waits_is_read_from_a_home_under_another_name_or_by_a_whole_path(
    service: Service, tmp_path: Path, moved: bool
) -> None:
    """Files were named by whole paths, so that a moved home lost them."""
    files = upload(service, tmp_path, "book.txt", book_text(20).encode())
    job = Worker(service).ingest(files, "exact", SETTINGS, IngestOptions())
    assert job.payload["files"] == [f"uploads/{files[0].parent.name}/book.txt"]
    home = service.home
    service.close()
    if moved:
        home = home.rename(tmp_path / "restored")
    else:  # as older versions did
        payload = json.dumps({**job.payload, "files": [str(files[0])]})
        with service.store.database.transaction() as db:
            db.execute("UPDATE jobs SET payload = ? WHERE id = ?", [payload, job.id])
        service.close()
    again = Service(home, service.models.default, "cpu")
    sweep(again)
    work_once(Worker(again))
    assert again.store.jobs.get(job.id).status == "done"
    assert list((home / "uploads").iterdir()) == []
    again.close()


def test_an_upload_whose_context_is_deleted_before_it_is_handed_over_ends(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job stayed running as long as the server."""
    monkeypatch.setattr("app.jobs.job_runner.LOOK_SEC", 0.2)
    add_context = service.store.contexts.add

    def deleted_at_once(**fields: Any) -> ContextRow:
        row = add_context(**fields)
        service.store.contexts.delete(row.id)
        return row

    monkeypatch.setattr(service.store.contexts, "add", deleted_at_once)
    job = worker.ingest(
        upload(service, tmp_path, "book.txt", book_text(20).encode()), "exact", SETTINGS, IngestOptions()
    )
    assert ended(service, job.id) == "failed"
    assert "There is no context" in str(service.store.jobs.get(job.id).error)
    wait_for(lambda: service.store.documents.all() == [], "the document to go")


def test_a_slow_file_does_not_hold_up_the_next_upload(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PDF of 3 kB with nested forms delayed all other uploads by half an hour."""
    go_on = threading.Event()

    def slow(file: Path, **options: Any) -> Document:
        if file.name == "slow.txt":
            go_on.wait(PATIENCE_SEC)
        return ingest_in_subprocess(file, **options)

    monkeypatch.setattr("app.reading.documents.ingest_in_subprocess", slow)
    first = worker.ingest(
        upload(service, tmp_path, "slow.txt", book_text(20).encode()), "exact", SETTINGS, IngestOptions()
    )
    wait_for(lambda: service.store.jobs.get(first.id).status == "running", "the slow file to be begun with")
    try:
        others = [
            worker.ingest(
                upload(service, tmp_path, f"{n}.txt", book_text(n).encode()), "exact", SETTINGS, IngestOptions()
            )
            for n in (21, 22, 23)
        ]
        assert [ended(service, job.id) for job in others] == ["done"] * 3
        assert service.store.jobs.get(first.id).status == "running"
    finally:
        go_on.set()
    assert ended(service, first.id) == "done"


def test_the_same_file_twice_at_once_becomes_one_document(service: Service, worker: Worker, tmp_path: Path) -> None:
    files = [upload(service, tmp_path, f"{n}.txt", book_text(20).encode()) for n in range(4)]
    jobs = [worker.ingest(each, "exact", SETTINGS, IngestOptions()) for each in files]
    assert [ended(service, job.id) for job in jobs] == ["done"] * len(jobs)
    assert len(service.store.documents.all()) == 1
    assert len(service.store.contexts.all()) == 1


@pytest.mark.parametrize(
    "name", ["{outside}", "../{secret}", "uploads/../{secret}", "uploads/1/link.txt", "stockpot.db"]
)
def test_a_job_reads_and_removes_nothing_but_its_own_upload(service: Service, tmp_path: Path, name: str) -> None:
    """Jobs of a forged database: one was read into a document, another removed the whole home."""
    outside = service.home.parent / "secret.txt"
    outside.write_text("A secret of this account.\n" * 30)
    (service.home / "uploads" / "1").mkdir(parents=True)
    (service.home / "uploads" / "1" / "link.txt").symlink_to(outside)
    payload = {
        "files": [name.format(outside=outside, secret=outside.name)],
        "documents": [],
        "title": None,
        "ocr": None,
    }
    how = {"wait": False, "method": "exact", "settings": SETTINGS, "model": None}
    job = service.store.jobs.add("ingest", "upload", {**payload, **how})
    worker = Worker(service)
    worker.take_in_once()
    ended_job = service.store.jobs.get(job.id)
    assert ended_job.status == "failed"
    assert "outside the folder of uploads" in str(ended_job.error)
    discard(service, ended_job)
    sweep(service)
    assert outside.exists()
    assert (service.home / "stockpot.db").exists()
    assert service.store.documents.all() == []
