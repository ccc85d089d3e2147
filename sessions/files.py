"""Atomic file writes: write, flush, rename, flush the directory."""

import hashlib
import os
import shutil
import zlib
from pathlib import Path

_CHUNK = 1 << 20


def flush_file(path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """Wait until a directory's entries (new names, renames) are on the disk. Windows has no such call."""
    if os.name == "posix":
        flush_file(path)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a crash, sees the old bytes or the new ones."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
    flush_directory(path.parent)


def link_or_copy(file: Path, name: Path) -> None:
    """Hard-link a file that never changes under another name; copy it if the file system has no links."""
    try:
        os.link(file, name)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(file, name)
        flush_file(name)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def crc32_of(path: Path, length: int | None = None) -> int:
    """Return the CRC-32 of a file, or of its first `length` bytes. It detects accidental damage and is fast."""
    room = memoryview(bytearray(_CHUNK))
    checksum = 0
    with path.open("rb", buffering=0) as handle:
        left = path.stat().st_size if length is None else length
        while left > 0 and (count := handle.readinto(room[: min(_CHUNK, left)])):
            checksum = zlib.crc32(room[:count], checksum)
            left -= count
    return checksum


def nearest(path: Path) -> Path:
    """Return the path, or its nearest ancestor that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def disk_free(path: Path) -> int:
    """Return the free bytes on the file system of a path that may not exist yet."""
    return shutil.disk_usage(nearest(path)).free


def tree_bytes(*folders: Path, freed: bool = False) -> int:
    """Return the size of all files below the folders in bytes, hard links counted once; 0 for no file.

    freed: count only files that have no other name elsewhere, so the bytes that removing them frees.
    """
    found: dict[tuple[int, int], tuple[os.stat_result, int]] = {}
    for path in (os.path.join(at, name) for each in folders for at, _, names in os.walk(each) for name in names):
        try:
            stat = os.lstat(path)
        except FileNotFoundError:  # removed meanwhile
            continue
        place = stat.st_dev, stat.st_ino
        found[place] = stat, found.get(place, (stat, 0))[1] + 1
    return sum(stat.st_size for stat, names in found.values() if not freed or names >= stat.st_nlink)


def remove_tree(path: Path) -> None:
    """Remove a folder if it exists; the sweep at the next start removes the rest if this fails."""
    shutil.rmtree(path, ignore_errors=True)
