"""Uploads: copies of files in the home, kept until their job has ended, or for as long as somebody may give a password.

An upload whose job failed for want of a password is locked: its files stay, and its job says by their SHA-256 for
which. They go when it is unlocked or removed, and when the same file is ingested in another way, or deleted.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

from app.service import Service
from sessions import JobRow, Store

INGEST = "ingest"
"""The kind of an upload's job."""


def is_locked(job: JobRow) -> bool:
    """Whether an upload ended for want of a password, and its files are still here."""
    return bool(job.progress.get("locked")) and all(Path(each).exists() for each in job.payload["files"])


def wanted_uploads(store: Store) -> list[Path]:
    """The files of uploads that are still to be done, or wait for a password."""
    jobs = [job for job in store.jobs(kind=INGEST) if job.status in ("queued", "running") or is_locked(job)]
    return [Path(each) for job in jobs for each in job.payload["files"]]


def remove_uploads(files: list[Path], home: Path) -> None:
    """Remove the copies that were made of uploads, and nothing outside their folder."""
    uploads = home / "uploads"
    for folder in {path.parent for path in files}:
        if folder.parent == uploads:
            shutil.rmtree(folder, ignore_errors=True)


def forget_unread(service: Service, documents: Collection[str], job: JobRow) -> None:
    """Delete the documents of an upload that became no context: nobody would see them on the page."""
    store = service.store
    for row in [each for each in store.documents() if each.id in documents]:
        if row.created_at >= (job.payload.get("since") or job.started_at or 0.0) and not store.contexts(row.id):
            service.library.drop(row.id)
            store.delete_document(row.id)


def discard(service: Service, job: JobRow) -> None:
    """Let go of an upload that failed, or waits for a password, and of what was made of it so far."""
    service.store.update_job(job.id, progress={"dismissed": True})
    remove_uploads([Path(each) for each in job.payload["files"]], service.home)
    forget_unread(service, job.progress.get("documents", []), job)


def discard_locked(service: Service, hashes: Collection[str]) -> None:
    """Let go of uploads that wait for the password of a file with one of these SHA-256."""
    for job in service.store.jobs(status="failed", kind=INGEST):
        if is_locked(job) and not set(hashes).isdisjoint(job.progress.get("sha256", [])):
            discard(service, job)
