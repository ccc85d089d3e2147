"""Restoring a backup: every member, byte and row is checked before anything of it is used.

A backup may come from anybody, so nothing in it is trusted because its own checksums fit.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

from sessions.backup import MEMBER, SUMS, Backup, Hashed, counted, disk_errors, remove_left
from sessions.database import DATABASE
from sessions.errors import DiskFull, StoreCorrupt, StoreError
from sessions.files import disk_free, flush_directory, link_or_copy, remove_tree
from sessions.folders import NAMES
from sessions.received_rows import copy_rows

RECEIVED = "received.db"
"""Name of the extracted database while its rows are checked."""
MOST_HEADER = 64 << 10
"""Most bytes of a header with a long name or size."""
MOST_LINE = 512
"""Most bytes of one line of the checksums, which name one member each."""
_PLAIN, _HEADERS = (tarfile.REGTYPE, tarfile.AREGTYPE), (tarfile.XHDTYPE, *tarfile.GNU_TYPES)
_KEYS = {"path", "linkpath", "size", "mtime"}
_CHUNK = 1 << 20


def restore(file: Path, home: Path) -> Backup:
    """Make a home from a backup, if every file in it is what was written there.

    Raises:
        StoreError: there is no such file, or something in `home`.
        StoreCorrupt: the file is no backup, or was cut short, altered or forged. Nothing was made.
        DiskFull: no room for the home.
    """
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise StoreError(f"{home} is not empty: restore into a new folder (--home), or move that one away first.")
    staging = home.with_name(f"{home.name}.restoring-{os.getpid()}")
    remove_left(home, "restoring")
    try:
        with disk_errors(home):
            staging.mkdir(mode=0o700, parents=True)
            backup = read_backup(file, staging)
            if home.exists():
                home.rmdir()
            staging.rename(home)
            flush_directory(home.parent)
    finally:
        remove_tree(staging)
    return backup


def read_backup(file: Path, folder: Path) -> Backup:
    """Extract a backup into an empty folder, if every file and every row in it is as Stockpot writes them.

    Raises:
        StoreError: there is no such file, or a newer version wrote it.
        StoreCorrupt: the file is no backup, or was cut short, altered or forged.
        DiskFull: no room for its files. Nothing was written.
    """
    if not file.is_file():
        raise StoreError(f"There is no file {file}: name a backup, which `stockpot backup FILE` writes.")
    try:
        size = _read_tar(file, folder)
        copy_rows(folder / RECEIVED, folder / DATABASE)
        _check_folders(folder)
    except StoreCorrupt as error:
        raise StoreCorrupt(
            f"{file} is no whole backup ({error}): restore another one. Nothing was restored."
        ) from error
    (folder / RECEIVED).unlink()
    return counted(folder / DATABASE, size)


def _check_folders(folder: Path) -> None:
    """Raise StoreCorrupt if there are files of something that has no row."""
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        for name in NAMES.values():
            known = {id for (id,) in db.execute(f"SELECT id FROM {name}")}
            for each in (folder / name).glob("*"):
                if each.name not in known:
                    raise StoreCorrupt(f"it has files of {name}/{each.name}, and no row of it")


class _Member(tarfile.TarInfo):
    """A member of a tar file, refused while its header is read if no backup has such a one."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _HEADERS and self.size > MOST_HEADER):
            raise StoreCorrupt("it has a header of an impossible size")
        if self.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_SPARSE):
            raise StoreCorrupt(f"it has a file {self.name[:100]!r} of a kind that backups do not have")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if member.size < 0 or member.sparse is not None or not _KEYS.issuperset(member.pax_headers):
            raise StoreCorrupt(f"it has a file {member.name[:100]!r} of a kind that backups do not have")
        return member


def _members(file: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the members of a tar file in their order, each with the open file.

    Raises:
        StoreCorrupt: it is damaged.
    """
    try:
        with tarfile.open(file, mode="r:", tarinfo=_Member) as tar:
            while (member := tar.next()) is not None:
                yield tar, member
                tar.members.clear()  # type: ignore[attr-defined]  # a large file may have any number
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise StoreCorrupt(f"{error!s:.100}") from error


def _check_members(file: Path, folder: Path) -> None:
    """Check names, kinds and sizes of all members before the first byte is written.

    Raises:
        StoreCorrupt: one is not as Stockpot writes it, or the sizes do not add up.
        DiskFull: no room for all of them.
    """
    names: set[str] = set()
    end, plain, linked = file.stat().st_size, 0, 0
    sizes: dict[str, int] = {}
    for _, member in _members(file):
        if member.name in names or not (member.name == SUMS or MEMBER.fullmatch(member.name)):
            raise StoreCorrupt(f"it has a file {member.name[:100]!r}")
        names.add(member.name)
        if member.type in _PLAIN:
            if member.offset_data + member.size > end:
                raise StoreCorrupt(f"{member.name} is cut short")
            if member.name != SUMS:
                sizes[member.name] = member.size
                plain += member.size
        elif member.islnk() and member.linkname in sizes and member.linkname != DATABASE:
            linked += sizes[member.linkname]
        else:
            raise StoreCorrupt(f"{member.name} is no plain file")
        if member.name == SUMS and (member.type not in _PLAIN or member.size > MOST_LINE * len(names)):
            raise StoreCorrupt(f"{SUMS} is no list of checksums")
    needed = plain + sizes.get(DATABASE, 0) + (0 if _can_link(folder) else linked)  # rows are copied once more
    if needed > (free := disk_free(folder)):
        raise DiskFull(folder, needed, free)


def _can_link(folder: Path) -> bool:
    """Return whether files in a folder can have two names, so that those that contexts share take room once."""
    first, second = folder / "first", folder / "second"
    first.touch()
    try:
        os.link(first, second)
    except OSError:
        return False
    else:
        second.unlink()
        return True
    finally:
        first.unlink()


def _read_tar(file: Path, folder: Path) -> int:
    """Extract a backup into a folder, compare it with the checksums at its end, and return the bytes of its files."""
    _check_members(file, folder)
    sums: dict[str, str] = {}
    listing, size = b"", 0
    for tar, member in _members(file):
        content = tar.extractfile(member) if member.type in _PLAIN else None
        if member.name == SUMS and content is not None:
            listing = content.read()
            continue
        path = folder / (RECEIVED if member.name == DATABASE else member.name)
        for above in reversed(path.relative_to(folder).parents[:-1]):
            (folder / above).mkdir(mode=0o700, exist_ok=True)
        if content is not None:
            sums[member.name] = _write(content, path)
            size += member.size
        else:
            link_or_copy(folder / member.linkname, path)
            sums[member.name] = sums[member.linkname]
    lines = (line.partition("  ") for line in listing.decode(errors="replace").splitlines())
    expected = {name: digest for digest, _, name in lines}
    for name in [*expected, *sums]:
        if sums.get(name) != expected.get(name):
            raise StoreCorrupt(f"{name[:300]} is not what was written, or is missing")
    if DATABASE not in sums:
        raise StoreCorrupt("it has no database")
    for each in {(folder / name).parent for name in sums}:
        flush_directory(each)
    return size


def _write(content: IO[bytes], path: Path) -> str:
    """Write a new file, wait until it is on the disk, and return its SHA-256."""
    reader = Hashed(content)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        shutil.copyfileobj(reader, out, _CHUNK)
        out.flush()
        os.fsync(out.fileno())
    return reader.hash.hexdigest()
