"""Errors of the store. Messages give the values and the next step.

StoreError
├── NotFound             no such document, context, session, turn, job or saved state
├── InUse                a live worker, or another process, is using the item
├── AlreadyRead          the reading to continue is already finished
├── StoreCorrupt         a file or the database is damaged
├── FingerprintMismatch  tensors of another model, tokenizer, method or settings
├── DiskFull             no room; the data from before is intact
├── ReadOnlyHome         the home can be looked at and not changed
└── StoreFailing         the disk, or the owner of its files, lets nothing be read or written
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessions.files import disk_free

_NOTHING = 1 << 20  # with fewer free bytes SQLite may be unable to create its shared-memory file

_DAMAGED = (  # parts of SQLite's messages; all but the first ones mean that the schema or a value is not what it was
    *("malformed", "not a database", "Could not decode", "unsupported file format"),
    *("no such column", "no such table", "already exists", "JSON cannot hold", "vtable constructor"),
)


class StoreError(Exception):
    """Base class of the errors that this package raises."""


class NotFound(StoreError):
    """No item has this id."""


class InUse(StoreError):
    """A live process is using the item."""


class AlreadyRead(StoreError):
    """The context has been read to its end."""


class StoreCorrupt(StoreError):
    """Data on disk was damaged or altered."""


class FingerprintMismatch(StoreError):
    """Saved tensors belong to another model, tokenizer, method or settings.

    Attributes:
        saved: the fingerprint on disk.
        wanted: the fingerprint that was asked for.
    """

    def __init__(self, where: Path, saved: str, wanted: str) -> None:
        super().__init__(
            f"The state in {where} was saved with fingerprint {saved!r}, but {wanted!r} is needed: "
            "use the model and settings it was read with, or read the document again."
        )
        self.saved, self.wanted = saved, wanted


class DiskFull(StoreError):
    """There is no room for a write.

    Attributes:
        needed_bytes: bytes that the write needs (None if SQLite does not report them).
        free_bytes: free bytes of the file system.
    """

    def __init__(self, where: Path, needed_bytes: int | None, free_bytes: int) -> None:
        need = "" if needed_bytes is None else f"{needed_bytes:,} bytes are needed and "
        super().__init__(
            f"No room on the disk of {where}: {need}{free_bytes:,} are free. What was saved before is intact; "
            "free some space or delete contexts that are no longer needed, then try again."
        )
        self.needed_bytes, self.free_bytes = needed_bytes, free_bytes


class ReadOnlyHome(StoreError):
    """Nothing can be written into the home, which can only be looked at."""

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"The home {home} cannot be written, so what is in it can be listed, shown, searched and exported, and not "
            "changed. Make it writable, or choose another home."
        )


class StoreFailing(StoreError):
    """The disk fails, or file permissions forbid reading or writing."""


def reason_of(error: Exception) -> str:
    """Return the message of an error. An error of the file system loses its number and its paths."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error of the file system or of safetensors means a full disk or quota."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    text = str(error)
    return any(f"os error {code})" in text for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `StoreError`s; errors in the SQL itself pass unchanged."""
    try:
        yield
    except UnicodeDecodeError as error:  # damaged names in the schema or in SQLite's message
        raise StoreCorrupt(f"{path} is damaged ({error}); restore it from a backup or start a new home.") from error
    except sqlite3.DatabaseError as error:
        text = str(error)
        free = disk_free(path)
        if "disk is full" in text or ("disk I/O error" in text and free < _NOTHING):
            raise DiskFull(path, None, free) from error
        if "locked" in text or "busy" in text:
            raise InUse(f"Another process keeps {path} locked ({text}); wait for it to finish or stop it.") from error
        if any(words in text for words in _DAMAGED):
            raise StoreCorrupt(f"{path} is damaged ({text}); restore it from a backup or start a new home.") from error
        if "disk I/O error" in text:
            raise StoreFailing(
                f"{path} could not be read or written ({text}): its disk is over a quota, was taken away, or fails. "
                "See to that, then try again."
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise StoreFailing(f"{path} cannot be written ({text}); check its owner and permissions.") from error
        raise
