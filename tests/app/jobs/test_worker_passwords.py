"""The worker and encrypted uploads: kept until a password is given, and never longer than that."""

import threading
import time
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from app import deletion
from app.errors import AppError
from app.jobs.job_runner import IDLE_SEC
from app.jobs.uploads import discard, is_locked, sweep
from app.jobs.worker import Worker
from app.reading.documents import IngestOptions
from app.service import Service
from sessions import JobRow
from tests.app.helpers import SETTINGS, book_text, ended, upload, wait_for, work_once


def locked_pdf(path: Path, password: str = "swordfish") -> bytes:
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent, who was born in Tarvel.")
        pdf.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=password)
    return path.read_bytes()


def test_an_encrypted_upload_is_kept_until_its_password_is_given(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    files = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(title="The Keeper"), wait=True)
    for password, status in (("herring", "failed"), ("swordfish", "done")):
        assert ended(service, job.id) == "failed"
        assert is_locked(service, service.store.jobs.get(job.id))
        before, job = job, worker.unlock(job.id, password)
        assert ended(service, job.id) == status
        assert service.store.jobs.get(before.id).progress == {"dismissed": True}
    assert [row.title for row in service.store.documents.all()] == ["The Keeper"]
    wait_for(lambda: not files[0].exists(), "the upload to be removed")
    with pytest.raises(AppError, match="drop the file in again"):
        worker.unlock(job.id, "swordfish")


def test_files_with_passwords_of_their_own_are_opened_one_after_another(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    """No password opens both files, and an opened file is not asked for the other's password."""
    files = upload(service, tmp_path, "one.pdf", locked_pdf(tmp_path / "one.pdf"))
    files.append(files[0].parent / "two.pdf")
    files[1].write_bytes(locked_pdf(tmp_path / "two.pdf", "herring"))
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password="swordfish"), wait=True)
    assert ended(service, job.id) == "failed"
    assert [row.title for row in service.store.documents.all()] == ["one"]
    job = worker.unlock(job.id, "herring")
    assert ended(service, job.id) == "done"
    context = str(service.store.jobs.get(job.id).progress["context"])
    assert [row.title for row in service.store.contexts.documents(context)] == ["one", "two"]


def test_a_known_file_with_a_wrong_password_waits_for_the_right_one(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    """Any password was accepted for it."""
    data = locked_pdf(tmp_path / "made.pdf")

    def ingest(password: str) -> JobRow:
        files = upload(service, tmp_path, "locked.pdf", data)
        job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password=password), wait=True)
        ended(service, job.id)
        return service.store.jobs.get(job.id)

    assert ingest("swordfish").status == "done"
    wrong = ingest("herring")
    assert "does not open locked.pdf" in str(wrong.error)
    assert is_locked(service, wrong)
    right = worker.unlock(wrong.id, "swordfish")
    assert ended(service, right.id) == "done"
    other = ingest("herring")
    assert is_locked(service, other)
    assert ingest("swordfish").status == "done"  # the same file with the right password: the copy need not be unlocked
    wait_for(lambda: other.id not in [job.id for job in service.store.jobs.all()], "the locked copy to go")


def test_a_known_file_that_no_password_has_opened_is_left_out(service: Service, worker: Worker, tmp_path: Path) -> None:
    """It was read with the others, because it was known."""
    known = worker.ingest(
        upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf")),
        "exact",
        SETTINGS,
        IngestOptions(password="swordfish"),
    )
    assert ended(service, known.id) == "done"
    job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(password="herring"), wait=True)
    assert ended(service, job.id) == "failed"
    others = worker.unlock(job.id, None)
    assert ended(service, others.id) == "done"
    context = service.store.contexts.get(str(service.store.jobs.get(others.id).progress["context"]))
    assert [row.title for row in service.store.contexts.documents(context.id)] == ["first", "last"]
    assert "locked.pdf" in str(context.warnings)


@pytest.mark.parametrize("password", [None, "herring"])
def test_files_whose_password_nobody_will_be_asked_for_are_not_kept(
    service: Service, worker: Worker, tmp_path: Path, password: str | None
) -> None:
    """They stayed in the home for ever."""
    files = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password=password))
    assert ended(service, job.id) == "failed"
    wait_for(lambda: list((service.home / "uploads").iterdir()) == [], "the upload to be removed")
    assert not is_locked(service, service.store.jobs.get(job.id))


@pytest.mark.parametrize("how", ["ingested", "deleted"])
def test_a_locked_copy_goes_when_its_file_is_ingested_or_deleted(
    service: Service, worker: Worker, tmp_path: Path, how: str
) -> None:
    data = locked_pdf(tmp_path / "made.pdf")

    def ingest(password: str | None) -> JobRow:
        files = upload(service, tmp_path, "locked.pdf", data)
        job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password=password), wait=True)
        ended(service, job.id)
        return service.store.jobs.get(job.id)

    if how == "ingested":
        waits = ingest(None)
        assert is_locked(service, waits)
        assert ingest("swordfish").status == "done"
        wait_for(lambda: waits.id not in [job.id for job in service.store.jobs.all()], "the upload to go")
    else:
        document = service.store.contexts.get(ingest("swordfish").progress["context"]).document_ids[0]
        wait_for(lambda: service.store.contexts.all()[0].status == "ready", "the reading")
        with pytest.MonkeyPatch.context() as unknown:  # another upload that began before the file was known
            unknown.setattr(service.store.documents, "find", lambda sha256: None)
            waits = ingest(None)
        assert is_locked(service, waits)
        deletion.delete(service, "document", service.store.documents.get(document))
        assert waits.id not in [job.id for job in service.store.jobs.all()]
    wait_for(lambda: list((service.home / "uploads").iterdir()) == [], "the copies to be gone")


def three_files(service: Service, tmp_path: Path) -> list[Path]:
    """Return two books, and an encrypted file between them."""
    files = upload(service, tmp_path, "first.txt", book_text(20).encode())
    folder = files[0].parent
    (folder / "locked.pdf").write_bytes(locked_pdf(tmp_path / "made.pdf"))
    (folder / "last.txt").write_bytes(book_text(10).encode())
    return [*files, folder / "locked.pdf", folder / "last.txt"]


def test_one_encrypted_file_of_several_waits_for_its_password_and_nothing_is_lost(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    """It was left out, and its upload removed, before anybody could be asked for the password."""
    job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(), wait=True)
    assert ended(service, job.id) == "failed"
    assert "locked.pdf is encrypted" in str(service.store.jobs.get(job.id).error)
    assert service.store.contexts.all() == []
    made = {row.id for row in service.store.documents.all()}
    assert len(made) == 2
    sweep(service)  # as a restarted server does
    wrong = worker.unlock(job.id, "herring")
    assert ended(service, wrong.id) == "failed"
    assert {row.id for row in service.store.documents.all()} == made  # and nobody extracts them again
    right = worker.unlock(wrong.id, "swordfish")
    assert ended(service, right.id) == "done"
    context = service.store.contexts.get(str(service.store.jobs.get(right.id).progress["context"]))
    assert [row.title for row in service.store.contexts.documents(context.id)] == ["first", "locked", "last"]
    assert context.warnings == []
    wait_for(lambda: list((service.home / "uploads").iterdir()) == [], "the uploads to be removed")


def test_an_upload_that_was_unlocked_and_cancelled_at_once_leaves_nothing(service: Service, tmp_path: Path) -> None:
    """The books beside the encrypted file stayed, invisible on the page."""
    worker = Worker(service)
    job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(), wait=True)
    work_once(worker)
    assert len(service.store.documents.all()) == 2
    with pytest.MonkeyPatch.context() as full:
        full.setattr(service.store.database, "new_id", lambda kind: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            worker.unlock(job.id, "swordfish")
    assert is_locked(service, service.store.jobs.get(job.id))  # and can be unlocked later
    worker.cancel(worker.unlock(job.id, "swordfish").id)
    assert service.store.documents.all() == []
    assert list((service.home / "uploads").iterdir()) == []
    assert worker._passwords == {}


def test_an_upload_that_another_tab_has_unlocked_is_not_removed(service: Service, tmp_path: Path) -> None:
    """Remove, in a tab that still showed it locked, removed the files that the next job would read."""
    worker = Worker(service)
    job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(), wait=True)
    work_once(worker)
    shown = service.store.jobs.get(job.id)
    unlocked = worker.unlock(job.id, "swordfish")
    discard(service, shown)
    assert len(service.store.documents.all()) == 2
    work_once(worker)
    assert service.store.jobs.get(unlocked.id).status == "done"


def test_an_upload_that_two_tabs_unlock_at_once_is_queued_once(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job removed the files of the second."""
    worker, others, refused = Worker(service), list[threading.Thread](), list[str]()
    job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(), wait=True)
    work_once(worker)

    def unlock() -> None:
        try:
            worker.unlock(job.id, "swordfish")
        except AppError as error:
            refused.append(str(error))

    def looked_at_by_both(service: Service, row: JobRow) -> bool:
        locked = is_locked(service, row)
        if not others:
            others.append(threading.Thread(target=unlock))
            others[0].start()
            others[0].join(0.5)
        return locked

    monkeypatch.setattr("app.jobs.upload_jobs.is_locked", looked_at_by_both)
    unlock()
    others[0].join()
    assert len(service.store.jobs.all(status="queued")) == 1
    assert "drop the file in again" in refused[0]


def test_the_others_are_read_without_an_encrypted_file_or_let_go_of(
    service: Service, worker: Worker, tmp_path: Path
) -> None:
    for read in (False, True):
        job = worker.ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(), wait=True)
        assert ended(service, job.id) == "failed"
        if read:
            job = worker.unlock(job.id, None)
            assert ended(service, job.id) == "done"
        else:
            discard(service, service.store.jobs.get(job.id))
            assert service.store.documents.all() == []
        wait_for(lambda: list((service.home / "uploads").iterdir()) == [], "the uploads to be removed")
    context = service.store.contexts.get(str(service.store.jobs.get(job.id).progress["context"]))
    assert [row.title for row in service.store.contexts.documents(context.id)] == ["first", "last"]
    assert "locked.pdf" in context.warnings[0]

    wait_for(lambda: service.store.contexts.get(context.id).status == "ready", "the reading")  # and it is added later
    locked = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.add(locked, context.id, IngestOptions(), wait=True)
    assert ended(service, job.id) == "failed"
    job = worker.unlock(job.id, "swordfish")
    assert ended(service, job.id) == "done"
    more = service.store.contexts.get(str(service.store.jobs.get(job.id).progress["context"]))
    titles = [row.title for row in service.store.contexts.documents(more.id)]
    assert (titles, more.warnings) == (["first", "last", "locked"], [])


def test_a_password_is_never_written_down(service: Service, worker: Worker, tmp_path: Path) -> None:
    files = upload(service, tmp_path, "a.txt", book_text(5).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password="swordfish"))
    ended(service, job.id)
    everything = b"".join(path.read_bytes() for path in service.home.glob("stockpot.db*"))
    assert b"swordfish" not in everything


def test_a_password_is_known_when_its_upload_is_claimed_at_once(
    service: Service, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted after the job was queued, and the worker could be faster."""
    add_job = service.store.jobs.add

    def slow(kind: str, *rest: Any) -> JobRow:
        job = add_job(kind, *rest)
        if kind == "ingest":
            time.sleep(4 * IDLE_SEC)  # the worker looks for jobs meanwhile
        return job

    monkeypatch.setattr(service.store.jobs, "add", slow)
    files = upload(service, tmp_path, "locked.pdf", locked_pdf(tmp_path / "made.pdf"))
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions(password="swordfish"))
    assert ended(service, job.id) == "done"
    assert worker._passwords == {}


def test_a_locked_upload_can_be_unlocked_in_a_home_that_came_back_under_another_name(
    service: Service, tmp_path: Path
) -> None:
    """Its files were searched at the old place, and those at the new one were swept up."""
    job = Worker(service).ingest(three_files(service, tmp_path), "exact", SETTINGS, IngestOptions(), wait=True)
    work_once(Worker(service))
    service.close()
    restored = Service(service.home.rename(tmp_path / "restored"), service.models.default, "cpu")
    sweep(restored)
    worker = Worker(restored)
    assert is_locked(restored, restored.store.jobs.get(job.id))
    unlocked = worker.unlock(job.id, "swordfish")
    work_once(worker)
    assert restored.store.jobs.get(unlocked.id).status == "done"
    assert list((restored.home / "uploads").iterdir()) == []
    restored.close()
