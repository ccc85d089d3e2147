"""Backup of a home into one tar file while programs use it.

The file holds the database, the folders of documents, contexts and sessions, and a list of checksums that
`sha256sum -c` reads too. Models, jobs, and files that wait to be ingested, are not in it. `restoring.py` reads it.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import re
import sqlite3
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sessions.database import DATABASE
from sessions.errors import DiskFull, StoreError, StoreFailing, is_disk_full, reason_of, sqlite_errors
from sessions.files import disk_free, flush_directory, link_or_copy, remove_tree
from sessions.folders import NAMES
from sessions.functions import know_functions
from sessions.ids import LETTERS, NOUNS
from sessions.processes import STALE_SEC, is_gone
from sessions.selection import remove_others, selection

if TYPE_CHECKING:
    from sessions.store import Store

SUMS = "SHA256SUMS"
_MANIFEST = "manifest.json"
_FOLDER = "|".join(f"{NAMES[noun]}/{letter}-[{LETTERS}]{{6}}" for letter, noun in NOUNS.items() if noun in NAMES)
MEMBER = re.compile(rf"{re.escape(DATABASE)}|(?:{_FOLDER})/[\w-][\w.-]{{0,199}}(?<!\.tmp)", re.ASCII)
"""Names of the files in a backup."""


@dataclass(frozen=True)
class Backup:
    """The contents of a backup: numbers of items, and bytes of all files in it.

    branches: titles of the chats that went on here and in the backup, and were added beside those here.
    """

    documents: int
    contexts: int
    sessions: int
    bytes: int
    branches: tuple[str, ...] = ()


def back_up(store: Store, file: Path, only: Sequence[str] = ()) -> Backup:
    """Write a backup of a home to a new file. Other programs may use the home meanwhile.

    Args:
        store: the home.
        file: the new file.
        only: ids of contexts, with all their sessions, and of sessions, with their contexts; () for everything.

    Raises:
        NotFound: there is no such context or session.
        StoreError: the file exists already, its folder does not exist, or it cannot be written.
        DiskFull: no room for the file.
    """
    if file.exists():
        raise StoreError(f"{file} is there already: name another file, or remove that one first.")
    if not file.parent.is_dir():
        raise StoreError(f"There is no folder {file.parent}: make it first, or name a file in another folder.")
    if store.database.read_only:
        raise StoreError(f"The home {store.home} cannot be written, so nothing changes it: copy its folder instead.")
    partial = file.with_name(f"{file.name}.partial-{os.getpid()}")
    remove_left(file, "partial")
    try:
        with disk_errors(file), store.folders.staging() as staging:
            # The database and the names of its files are of one moment: nothing is added or deleted meanwhile.
            with store.database.transaction():
                kept = selection(store, only)
                _copy_database(store.database.path, staging / DATABASE)
                for name, ids in kept.items():
                    for id in ids:
                        _link_folder(store.home / name / id, staging / name / id)
            if only:
                remove_others(staging / DATABASE, kept)
            size = _write_tar(staging, partial)
            backup = counted(staging / DATABASE, size)
            os.replace(partial, file)
            flush_directory(file.parent)
    finally:
        partial.unlink(missing_ok=True)
    return backup


def remove_left(path: Path, kind: str) -> None:
    """Remove files or folders beside a path that are left of killed programs that were to make it."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.{kind}-*"):
        pid = left.name.rpartition("-")[2]
        with suppress(OSError):  # its owner has just moved it into place, or it is another account's
            if pid.isdigit() and is_gone(int(pid)) and time.time() - left.stat().st_mtime > STALE_SEC:
                remove_tree(left) if left.is_dir() else left.unlink()


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into `StoreError`s."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise DiskFull(path, None, disk_free(path)) from error
        raise StoreFailing(
            f"Cannot write {path} ({reason_of(error)}): check its owner and permissions, or name another place."
        ) from error


def _copy_database(path: Path, copy: Path) -> None:
    """Copy the database with SQLite's online backup. The copy belongs to no running process."""
    with sqlite_errors(path), closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        know_functions(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        target.execute("PRAGMA secure_delete = ON")
        with target:
            for table in ("contexts", "turns"):
                target.execute(f"UPDATE {table} SET owner = NULL")
            for table in ("jobs", "leftovers", "workers"):  # true of this home alone
                target.execute(f"DELETE FROM {table}")


def _link_folder(folder: Path, to: Path) -> None:
    """Link the files of a folder, which never change, and copy its manifest; again if a save came in between."""
    while True:
        before = _manifest_of(folder)
        remove_tree(to)
        try:
            to.mkdir(mode=0o700, parents=True)
            for each in folder.iterdir() if folder.is_dir() else ():
                if each.name != _MANIFEST and MEMBER.fullmatch(f"{to.parent.name}/{to.name}/{each.name}"):
                    link_or_copy(each, to / each.name)
        except FileNotFoundError:
            continue
        if _manifest_of(folder) == before:
            if before is not None:
                (to / _MANIFEST).write_bytes(before)
            return


def _manifest_of(folder: Path) -> bytes | None:
    try:
        return (folder / _MANIFEST).read_bytes()
    except FileNotFoundError:
        return None


def _write_tar(staging: Path, partial: Path) -> int:
    """Write the files of a folder, then their checksums, to a tar file; return their bytes."""
    sums: dict[str, str] = {}
    first: dict[int, str] = {}  # a file that two contexts share is written once
    size = 0
    files = [staging / DATABASE, *sorted(each for name in NAMES.values() for each in (staging / name).glob("*/*"))]
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        with tarfile.open(fileobj=out, mode="w") as tar:
            for path in files:
                os.utime(staging)  # the sweep of another program removes what is old
                name, stat = path.relative_to(staging).as_posix(), path.stat()
                member = tarfile.TarInfo(name)
                member.mode, member.mtime = 0o600, int(stat.st_mtime)
                if stat.st_ino in first:
                    member.type, member.linkname = tarfile.LNKTYPE, first[stat.st_ino]
                    tar.addfile(member)
                    sums[name] = sums[member.linkname]
                    continue
                first[stat.st_ino], member.size = name, stat.st_size
                with path.open("rb") as handle:
                    reader = Hashed(handle)
                    tar.addfile(member, reader)
                sums[name], size = reader.hash.hexdigest(), size + stat.st_size
            listing = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
            member = tarfile.TarInfo(SUMS)
            member.mode, member.size = 0o600, len(listing)
            tar.addfile(member, io.BytesIO(listing))
        out.flush()
        os.fsync(out.fileno())
    return size


def counted(database: Path, size: int) -> Backup:
    """Return the numbers of items in a database, and `size`."""
    with sqlite_errors(database), closing(sqlite3.connect(database)) as db:
        counts = [db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in NAMES.values()]
    documents, contexts, sessions = counts
    return Backup(documents, contexts, sessions, size)


class Hashed:
    """A reader that computes the SHA-256 of the bytes that pass."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self.hash = source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; all that are left for -1."""
        data = self._source.read(size)
        self.hash.update(data)
        return data
