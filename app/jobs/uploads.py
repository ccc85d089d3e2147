"""Uploads: copies of files in the home, kept until their job has ended, or for as long as somebody may give a password.

An upload whose job failed for want of a password is locked: its files stay, and its job says by their SHA-256 for
which. They go when it is unlocked or removed, and when the same file is ingested in another way, or deleted. The
documents of an upload that failed stay, to be read in another way; they go if it is removed while it is listed.
"""

import os
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from app.errors import AppError
from app.formatting import byte_size
from app.service import Service
from sessions import UNDER_WAY, DiskFull, DocumentRow, JobRow, disk_free, is_disk_full

INGEST = "ingest"
"""The kind of an upload's job."""
WAITING = "ready to be read; waiting for its turn"
"""The stage of one that needs the model now."""
UPLOADS = "uploads"
"""Their folder in the home; each upload has one of its own there."""
MOST_BYTES = 1 << 30
"""Of one file."""
LONGEST_NAME = 180
"""Bytes of a file's name before its suffix: file systems take 255 of all."""
RECENT_SEC = 24 * 3600.0
"""A failed upload is listed this long, unless it is removed; one that waits for a password, until it is."""
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}")
_HARMFUL = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff/\\<>:"|?*]')
"""Signs that separate, control, turn text around or are none, and those that other file systems refuse."""


def cache(home: Path) -> Path:
    """Gradio's cache, of this process alone: what is under way in it is known."""
    return home / UPLOADS / f"incoming-{os.getpid()}"


def safe_name(name: str) -> str:
    """One harmless path component that a person still recognises."""
    plain = _HARMFUL.sub("_", unicodedata.normalize("NFC", Path(name).name)).strip(" .")
    suffix = Path(plain).suffix if _SUFFIX.fullmatch(Path(plain).suffix) else ""
    return _cut(plain.removesuffix(suffix)) + suffix or "document"


def _cut(name: str) -> str:
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")


def uploads(home: Path) -> Path:
    """Where uploads lie, made so that nobody else on this machine can look into it.

    Raises:
        AppError: it cannot be. sessions.DiskFull: there is no room.
    """
    folder = home / UPLOADS
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # also where it was made by another
    except OSError as error:
        if is_disk_full(error):
            raise DiskFull(folder, None, disk_free(home)) from error
        raise AppError(
            f"{folder} cannot be written ({error.strerror}); check its owner and permissions, or choose another home."
        ) from error
    return folder


def _folder(home: Path) -> Path:
    folder = uploads(home) / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    return folder


def _target(folder: Path, name: str) -> Path:
    """Where a file of that name goes, of which there may be several."""
    target = folder / safe_name(name)
    return folder / f"{len(list(folder.iterdir()))} {target.name}" if target.exists() else target


def check_dropped(home: Path, path: str | Path) -> None:
    """Refuse a path that a browser sent unless it lies in Gradio's cache, by itself and not through a link.

    Raises:
        AppError: it lies elsewhere, whether or not there is a file; or it is an address.
    """
    given, folder = Path(path), cache(home)
    try:
        inside = given != folder and given.relative_to(folder) == given.resolve().relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # elsewhere, too long, with a zero in it, or links in a circle
        inside = False
    if not inside:
        raise AppError("Only files that were dropped in are taken: drop the file in, and let the upload finish.")


def move_in(home: Path, cached: Iterable[str]) -> list[Path]:
    """Move files from Gradio's cache to a folder of their own, one that was dropped in twice once.

    The cache keeps nothing: a copy there would outlive the document.

    Raises:
        AppError: one of them is not in the cache; or the cache has let go of it, or another tab took it, for which
            Gradio keeps the same file. As after any other error, none is moved.
    """
    sources = [Path(each) for each in dict.fromkeys(cached)]
    for source in sources:
        check_dropped(home, source)
    if not all(source.is_file() for source in sources):
        raise AppError("The files were read from another tab, or dropped in too long ago: drop them in again.")
    folder, moved = _folder(home), []
    try:
        for source in sources:
            moved.append(_target(folder, source.name))
            shutil.move(source, moved[-1])
    except BaseException:
        for source, target in zip(sources, moved, strict=False):
            if not source.exists():
                shutil.move(target, source)
        shutil.rmtree(folder)
        raise
    for source in sources:
        with suppress(OSError):  # something else is in it
            source.parent.rmdir()
    return moved


def copy_in(home: Path, files: Sequence[tuple[str, BinaryIO]]) -> list[Path]:
    """Copy files that came over HTTP, by name and open stream, to a folder of their own.

    Raises:
        AppError: one is too large. sessions.DiskFull: there is no room. Nothing is kept.
    """
    folder, copied = _folder(home), []
    try:
        for name, stream in files:
            target = _target(folder, name)
            with target.open("wb") as handle:
                while block := stream.read(1 << 20):
                    if handle.tell() + len(block) > MOST_BYTES:
                        raise AppError(f"{target.name} is larger than {byte_size(MOST_BYTES)}: split it.")
                    handle.write(block)
            copied.append(target)
    except BaseException as error:
        shutil.rmtree(folder)
        if is_disk_full(error):
            needed = sum(stream.seek(0, os.SEEK_END) for _, stream in files)
            raise DiskFull(home, needed, disk_free(home)) from error
        raise
    return copied


def files_of(service: Service, job: JobRow) -> list[Path]:
    """The files of an upload: named within the home, which may be moved; those of older jobs by whole paths."""
    return [service.home / each for each in job.payload["files"]]


def name_of(service: Service, job: JobRow) -> str:
    """What an upload is called: as a person said, or after the documents that are kept, and the files, to be read."""
    return job.payload.get("title") or ", ".join(names_in(service, job)) or "Documents that were deleted"


def names_in(service: Service, job: JobRow) -> list[str]:
    """The documents that are kept, and the files, that an upload is of."""
    kept = [row.title for row in service.store.documents(job.payload.get("documents", []))]
    return [*kept, *(Path(each).name for each in job.payload["files"])]


def is_locked(service: Service, job: JobRow) -> bool:
    """Whether an upload ended for want of a password, and its files are still here."""
    return bool(job.progress.get("locked")) and all(path.exists() for path in files_of(service, job))


def is_waiting(service: Service, job: JobRow) -> bool:
    """Whether something is still to come of an upload: it is under way, or locked."""
    return job.status in UNDER_WAY or is_locked(service, job)


def is_listed(service: Service, job: JobRow) -> bool:
    """Whether an upload is shown: it is under way, or a person may still want to know why it failed."""
    over = job.status in ("done", "cancelled") or job.progress.get("dismissed")
    return not over and (time.time() - job.updated_at <= RECENT_SEC or is_locked(service, job))


def remove_uploads(files: list[Path], home: Path) -> None:
    """Remove the copies that were made of uploads, and nothing outside their folder."""
    for folder in {path.parent for path in files}:
        if folder.parent == home / UPLOADS:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(service: Service) -> None:
    """Remove what is left of uploads: Gradio's cache, copies that no job will come for, and jobs not listed."""
    jobs, contexts = service.store.jobs(kind=INGEST), {row.id for row in service.store.contexts()}
    wanted = [job for job in jobs if is_waiting(service, job)]
    kept = {path.parent for job in wanted for path in files_of(service, job)}
    for folder in (service.home / UPLOADS).glob("*"):
        if folder.is_file():
            folder.unlink(missing_ok=True)
        elif folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    stay = {job.id for job in wanted} | {job.id for job in jobs if job.progress.get("context") in contexts}
    service.store.delete_job(*(job.id for job in jobs if job.id not in stay and not is_listed(service, job)))


def awaited(service: Service, but: str = "") -> set[str]:
    """The documents that uploads, under way or locked, are to read or have made. but: the id of one left aside."""
    jobs = [job for job in service.store.jobs(kind=INGEST) if is_waiting(service, job) and job.id != but]
    given = [each for job in jobs for each in (job.payload, job.progress)]
    return {id for each in given for id in each.get("documents", [])}


def unread(service: Service, documents: Sequence[str], job: JobRow) -> list[DocumentRow]:
    """Those of these documents that an upload has made, and that nothing else uses."""
    since, others = job.payload.get("since") or job.started_at or 0.0, awaited(service, job.id)
    made = [row for row in service.store.documents(documents) if row.created_at >= since]
    return [row for row in made if row.id not in others and not service.store.contexts(row.id)]


def forget_unread(service: Service, documents: Sequence[str], job: JobRow) -> None:
    """Delete those of these documents that an upload has made, and that nothing else uses."""
    for row in unread(service, documents, job):
        service.document_cache.drop(row.id)
        service.store.delete_document(row.id)


def discard(service: Service, job: JobRow) -> None:
    """Let go of an upload that failed, was cancelled or waits for a password, and of what was made of it so far.

    Not of one that was let go of before, whose files another job may have taken over. The job of one that failed goes
    too, because it names the files; that one was cancelled is still to be heard of.
    """
    with service.store.together():
        job = service.store.job(job.id)
        if job.progress.get("dismissed"):
            return
        service.store.update_job(job.id, progress={"dismissed": True})
    remove_uploads(files_of(service, job), service.home)
    forget_unread(service, job.progress.get("documents", []), job)
    if job.status == "failed":
        service.store.delete_job(job.id)


def discard_locked(service: Service, hashes: Collection[str]) -> None:
    """Let go of uploads that wait for the password of a file with one of these SHA-256."""
    for job in service.store.jobs(status="failed", kind=INGEST):
        if is_locked(service, job) and not set(hashes).isdisjoint(job.progress.get("sha256", [])):
            discard(service, job)
