"""Uploads: copies of files in the home, kept until their job has ended or their password is given.

An upload whose job failed for want of a password is locked. Its files stay, and its job names them by SHA-256. They are
removed when it is unlocked or removed, or when the same file is ingested in another way or deleted. Documents of a
failed upload stay, to be read in another way, and are removed if the upload is removed while it is listed.
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
from app.formatting import byte_size, together_in_words
from app.language import t
from app.service import Service
from sessions import UNDER_WAY, DiskFull, DocumentRow, JobRow, disk_free, is_disk_full

INGEST = "ingest"
"""Kind of the jobs of uploads."""
WAITING = "ready to be read; waiting for its turn"
"""Stage of an upload that needs the model now."""
UPLOADS = "uploads"
"""Folder in the home with one folder for each upload."""
MOST_BYTES = 1 << 30
"""Most bytes of one file."""
LONGEST_NAME = 180
"""Most bytes of a file's name without its suffix; file systems allow 255 in all."""
RECENT_SEC = 24 * 3600.0
"""Time that a failed upload is listed; one that waits for a password is listed until it is removed."""
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}")
_HARMFUL = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff/\\<>:"|?*]')
"""Separators, control characters, characters that change the direction of text, and those that other systems refuse."""


def full_or(error: OSError, folder: Path) -> Exception:
    """Return DiskFull if a write to a folder failed for want of room; else the error itself."""
    return DiskFull(folder, None, disk_free(folder)) if is_disk_full(error) else error


def cache(home: Path) -> Path:
    """Return the folder of Gradio's cache; each process has one of its own."""
    return home / UPLOADS / f"incoming-{os.getpid()}"


def safe_name(name: str) -> str:
    """Return one harmless path component that a person still recognises."""
    plain = _HARMFUL.sub("_", unicodedata.normalize("NFC", Path(name).name)).strip(" .")
    suffix = Path(plain).suffix if _SUFFIX.fullmatch(Path(plain).suffix) else ""
    return _cut(plain.removesuffix(suffix)) + suffix or "document"


def _cut(name: str) -> str:
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")


def uploads(home: Path) -> Path:
    """Return the folder of uploads; make it readable for its owner alone.

    Raises:
        AppError: it cannot be made.
        sessions.DiskFull: there is no room.
    """
    folder = home / UPLOADS
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # also if another program made it
    except OSError as error:
        if is_disk_full(error):
            raise full_or(error, folder) from error
        raise AppError(
            f"{folder} cannot be written ({error.strerror}); check its owner and permissions, or choose another home."
        ) from error
    return folder


def _folder(home: Path) -> Path:
    folder = uploads(home) / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    return folder


def _target(folder: Path, name: str) -> Path:
    """Return a free path for a file with this name."""
    target = folder / safe_name(name)
    return folder / f"{len(list(folder.iterdir()))} {target.name}" if target.exists() else target


def check_dropped(home: Path, path: str | Path) -> None:
    """Refuse a path from a browser unless it lies in Gradio's cache, and not through a link.

    Raises:
        AppError: it lies elsewhere, whether or not there is a file, or it is an address.
    """
    given, folder = Path(path), cache(home)
    try:
        inside = given != folder and given.relative_to(folder) == given.resolve().relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # elsewhere, too long, with a NUL, or a circle of links
        inside = False
    if not inside:
        raise AppError("Only files that were dropped in are taken: drop the file in, and let the upload finish.")


def move_in(home: Path, cached: Iterable[str]) -> list[Path]:
    """Move files from Gradio's cache to a folder of their own, each once. The cache keeps no copy.

    Raises:
        AppError: a file is not in the cache, was removed from it, or was taken by another tab. No file is moved then.
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
        with suppress(OSError):  # another file is in it
            source.parent.rmdir()
    return moved


def copy_in(home: Path, files: Sequence[tuple[str, BinaryIO]]) -> list[Path]:
    """Copy files that came over HTTP, given by name and open stream, to a folder of their own.

    Raises:
        AppError: a file is too large; nothing is kept.
        sessions.DiskFull: there is no room; nothing is kept.
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
    """Return the files of an upload. Jobs name them relative to the home, which may be moved; old jobs by whole
    paths.

    Raises:
        AppError: one lies elsewhere, as in a job that no Stockpot made.
    """
    files = [service.home / each for each in job.payload["files"]]
    if not all(_is_upload(path, service.home) for path in files):
        raise AppError("A file of this upload lies outside the folder of uploads: drop it in again.")
    return files


def _is_upload(path: Path, home: Path) -> bool:
    """Return whether a path is that of a file in the folder of one upload, and not by way of a link."""
    try:
        real = path.resolve()
        return real.parent.parent == (home / UPLOADS).resolve() and real.name == path.name
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL, or a circle of links
        return False


def name_of(service: Service, job: JobRow) -> str:
    """Return the title of an upload: the given one, or one for its documents and files."""
    return job.payload.get("title") or together_in_words(names_in(service, job)) or t("Documents that were deleted")


def names_in(service: Service, job: JobRow) -> list[str]:
    """Return the titles of an upload's documents; until all are made, the names of its files and kept documents."""
    made = service.store.documents.existing(job.progress.get("documents", []))
    if len(made) == len(job.payload.get("documents", [])) + len(job.payload["files"]):
        return [row.title for row in made]
    kept = [row.title for row in service.store.documents.existing(job.payload.get("documents", []))]
    return [*kept, *(Path(each).name for each in job.payload["files"])]


def is_locked(service: Service, job: JobRow) -> bool:
    """Return whether an upload lacks a password and its files are still here."""
    if not job.progress.get("locked"):
        return False
    with suppress(AppError):
        return all(path.exists() for path in files_of(service, job))
    return False


def is_waiting(service: Service, job: JobRow) -> bool:
    """Return whether an upload is under way or locked."""
    return job.status in UNDER_WAY or is_locked(service, job)


def is_listed(service: Service, job: JobRow) -> bool:
    """Return whether an upload is listed: it is under way, or it failed lately."""
    over = job.status in ("done", "cancelled") or job.progress.get("dismissed")
    return not over and (time.time() - job.updated_at <= RECENT_SEC or is_locked(service, job))


def useless(service: Service) -> list[JobRow]:
    """Return the listed uploads that failed for good: no document came of them, and no password would help."""
    jobs = [job for job in service.store.jobs.all(status="failed", kind=INGEST) if is_listed(service, job)]
    return [job for job in jobs if not (is_locked(service, job) or job.progress.get("documents"))]


def remove_uploads(files: list[Path], home: Path) -> None:
    """Remove the copies of uploads, and nothing outside their folder."""
    for folder in {path.parent for path in files if _is_upload(path, home)}:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(service: Service) -> None:
    """Remove leftovers: Gradio's cache, copies without a job, and jobs that are not listed."""
    jobs, contexts = service.store.jobs.all(kind=INGEST), {row.id for row in service.store.contexts.names()}
    wanted = [job for job in jobs if is_waiting(service, job)]
    kept = set[Path]()
    for job in wanted:
        with suppress(AppError):
            kept |= {path.parent for path in files_of(service, job)}
    for folder in (service.home / UPLOADS).glob("*"):
        if folder.is_file():
            folder.unlink(missing_ok=True)
        elif folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    stay = {job.id for job in wanted} | {job.id for job in jobs if job.progress.get("context") in contexts}
    service.store.jobs.delete(*(job.id for job in jobs if job.id not in stay and not is_listed(service, job)))


def awaited(service: Service, but: str = "") -> set[str]:
    """Return the documents that uploads under way, or locked, will read or have made. but: id of a job to leave
    aside.
    """
    jobs = [job for job in service.store.jobs.all(kind=INGEST) if is_waiting(service, job) and job.id != but]
    given = [each for job in jobs for each in (job.payload, job.progress)]
    return {id for each in given for id in each.get("documents", [])}


def unread(service: Service, documents: Sequence[str], job: JobRow) -> list[DocumentRow]:
    """Return the documents that an upload has made and nothing else uses."""
    since, others = job.payload.get("since") or job.started_at or 0.0, awaited(service, job.id)
    made = [row for row in service.store.documents.existing(documents) if row.created_at >= since]
    return [row for row in made if row.id not in others and not service.store.contexts.all(row.id)]


def forget_unread(service: Service, documents: Sequence[str], job: JobRow) -> None:
    """Delete the documents that an upload has made and nothing else uses."""
    for row in unread(service, documents, job):
        service.document_cache.drop(row.id)
        service.store.documents.delete(row.id)


def discard(service: Service, job: JobRow) -> None:
    """Discard an upload that failed, was cancelled or waits for a password, with the documents made of it so far.

    An upload that was discarded before stays as it is, because another job may use its files. The job of a failed one
    is deleted too, because it names the files; that of a cancelled one stays visible.
    """
    with service.store.transaction():
        job = service.store.jobs.get(job.id)
        if job.progress.get("dismissed"):
            return
        service.store.jobs.update(job.id, progress={"dismissed": True})
    with suppress(AppError):  # nothing elsewhere is removed
        remove_uploads(files_of(service, job), service.home)
    forget_unread(service, job.progress.get("documents", []), job)
    if job.status == "failed":
        service.store.jobs.delete(job.id)


def discard_locked(service: Service, hashes: Collection[str]) -> None:
    """Discard uploads that wait for the password of a file with one of these SHA-256."""
    for job in service.store.jobs.all(status="failed", kind=INGEST):
        if is_locked(service, job) and not set(hashes).isdisjoint(job.progress.get("sha256", [])):
            discard(service, job)
