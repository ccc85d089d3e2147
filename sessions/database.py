"""Base of the store: one connection per thread, transactions, ids."""

import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from sessions.checksums import know_checksums
from sessions.errors import NotFound, StoreCorrupt, StoreFailing, sqlite_errors
from sessions.migrations import migrate

DATABASE = "stockpot.db"
_HEADER_BYTES = 100  # header of an SQLite file; SQLite takes a shorter file for a new database
BUSY_SEC = 30.0
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # without letters that look alike
NOUNS = {"d": "document", "c": "context", "s": "session", "t": "turn", "j": "job"}
ID = re.compile(f"[{''.join(NOUNS)}]-[{_LETTERS}]{{6}}")
TABLES = {kind: f"{kind}s" for kind in NOUNS.values()}


def kind_of(id: str) -> str:
    """Return the kind ("document", "context", ...) that an id stands for, from its prefix.

    Raises:
        NotFound: the text is not an id. Paths are made from ids only after this check.
    """
    if not ID.fullmatch(id):
        examples = ", ".join(f"{letter}-... ({noun})" for letter, noun in NOUNS.items())
        raise NotFound(f"{id!r} is not an id; ids look like {examples}. List what there is to see them.")
    return NOUNS[id[0]]


def check_whole(home: Path) -> None:
    """Check that the database is not missing beside saved folders: a new one would not know them.

    Raises:
        StoreCorrupt: it is missing or cut short. The message names the folders and the ways out.
    """
    path = home / DATABASE
    if path.exists() and path.stat().st_size >= _HEADER_BYTES:
        return
    cut = path.exists() and path.stat().st_size > 0
    folders = ((kind, home / name) for kind, name in TABLES.items() if (home / name).is_dir())
    counts = {kind: sum(bool(ID.fullmatch(each.name)) for each in folder.iterdir()) for kind, folder in folders}
    left = ", ".join(f"{count:,} {kind}{'s' * (count != 1)}" for kind, count in counts.items() if count)
    if cut and not left:
        raise StoreCorrupt(f"{path} is no database, or was cut short: restore it from a backup, or remove that file.")
    if left:
        raise StoreCorrupt(
            f"The database {path} is {'cut short' if cut else 'missing or empty'}, and nothing else says what lies "
            f"beside it ({left}). Restore it "
            f"from a backup (`stockpot doctor` then names what that does not know); or rename {home} and begin anew: "
            "the files that were read are in its folder documents, to be ingested again."
        )


def _text(data: bytes) -> str:
    """Decode text with damaged characters replaced, so that the rest can still be shown or deleted."""
    return data.decode(errors="replace")


class Base:
    """A home folder and its database. The classes of the store derive from this; `Store` combines them.

    alone: the disk has no room for SQLite's shared files, so only one thread can use the database, to read and delete.
    """

    def __init__(self, home: Path) -> None:
        self.home = Path(home).expanduser().resolve()
        self.path = self.home / DATABASE
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[tuple[threading.Thread, Database]] = []
        self._inherited: list[tuple[threading.Thread, Database]] = []
        self._pid = os.getpid()
        self.alone = False
        check_whole(self.home)
        try:
            if not self.home.exists():
                self.home.mkdir(parents=True, mode=0o700, exist_ok=True)
            for name in ("documents", "contexts", "sessions", "incoming"):
                (self.home / name).mkdir(mode=0o700, exist_ok=True)
            if not self.path.exists():  # SQLite makes files readable by all; log and index copy this mode
                self.path.touch(mode=0o600)
        except OSError as error:
            raise StoreFailing(f"Cannot make the home folder {self.home}: {error}. Choose another.") from error
        with sqlite_errors(self.path):
            migrate(self._db)

    @property
    def _db(self) -> Database:
        """Connection of the calling thread."""
        if self._pid != os.getpid():
            # A connection must not be used, or even closed, by a forked process.
            self._pid, self._inherited = os.getpid(), self._open
            self._open, self._local, self._lock = [], threading.local(), threading.Lock()
        db: Database | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
        return db

    def _connect(self) -> Database:
        with sqlite_errors(self.path):
            try:
                db = self._opened("NORMAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_IOERR_SHMSIZE":
                    raise
                db, self.alone = self._opened("EXCLUSIVE"), True
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA secure_delete = ON")  # deleted text is overwritten, not left in free pages
        with self._lock:
            finished = [each for each in self._open if not each[0].is_alive()]
            self._open = [each for each in self._open if each[0].is_alive()] + [(threading.current_thread(), db)]
        for _, old in finished:
            old.close()
        return db

    def _opened(self, locking: str) -> Database:
        # check_same_thread is off only so that another thread can close the connections of finished threads.
        connection = sqlite3.connect(self.path, timeout=BUSY_SEC, check_same_thread=False)
        try:
            know_checksums(connection)
            connection.text_factory = _text
            connection.execute(f"PRAGMA locking_mode = {locking}")
            db = Database(connection)
            self._set_wal(db)
        except BaseException:
            connection.close()
            raise
        return db

    @staticmethod
    def _set_wal(db: Database) -> None:
        # SQLite does not wait for other connections here, so two that open a new home at once take turns.
        deadline = time.monotonic() + BUSY_SEC
        while True:
            try:
                db.enable_wal()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def close(self) -> None:
        """Close the connections of all threads. Using the store again opens new ones."""
        with self._lock:
            connections, self._open = self._open, []
            self._local = threading.local()
        for _, db in connections:
            db.close()

    @contextmanager
    def _write(self, passing: bool = False) -> Iterator[Database]:
        """Open a transaction that holds the write lock from the start; inside another transaction, join it.

        When this returns, the data is on the disk and survives a power failure.
        passing: skip that wait, for data that is replaced many times a second.
        """
        db = self._db
        with sqlite_errors(self.path):
            if db.conn.in_transaction:
                yield db
                return
            db.conn.execute(f"PRAGMA synchronous = {'NORMAL' if passing else 'FULL'}")
            db.conn.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.conn.execute("COMMIT")
            except BaseException:
                db.rollback()
                raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make all writes inside one transaction: all are stored or none, and no other process writes in between."""
        with self._write():
            yield

    def _rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[dict[str, Any]]:
        """Return all rows of a SELECT."""
        with sqlite_errors(self.path):
            return list(self._db.query(sql, parameters))

    def _one(self, sql: str, id: str, kind: str) -> dict[str, Any]:
        """Return the row that `sql` selects by an id of this kind; NotFound if there is none."""
        rows = self._rows(sql, [id]) if kind_of(id) == kind else []
        if not rows:
            gone, todo = "it was deleted", f"List the {kind}s there are."
            if kind == "job":  # no command lists jobs
                gone, todo = "what it was about was deleted", "What is being read names its job."
            raise NotFound(f"There is no {kind} {id}: {gone}, or the id is mistyped. {todo}")
        return rows[0]

    def _update(self, kind: str, id: str, changes: dict[str, Any]) -> None:
        """Change columns of one row.

        Raises:
            NotFound: the row is gone.
        """
        with self._write() as db:
            self._one(f"SELECT id FROM {TABLES[kind]} WHERE id = ?", id, kind)
            sets = ", ".join(f'"{name}" = ?' for name in changes)
            db.execute(f"UPDATE {TABLES[kind]} SET {sets} WHERE id = ?", [*changes.values(), id])

    def _id_for_folder(self, kind: str) -> str:
        """Return a new id, noted as a leftover: its folder is swept up unless its row is added and the note removed."""
        with self._write():
            id = self._new_id(kind)
            self._note_leftovers([id])
        return id

    def _note_leftovers(self, ids: Sequence[str]) -> None:
        with self._write() as db:
            db.table("leftovers").insert_all({"id": id, "noted_at": time.time()} for id in ids)

    def _forget_leftovers(self, ids: Sequence[str]) -> None:
        with self._write() as db:
            for id in ids:
                db.execute("DELETE FROM leftovers WHERE id = ?", [id])

    def _new_id(self, kind: str) -> str:
        """Return an id that is not taken; only for use inside `_write`."""
        prefix = next(letter for letter, noun in NOUNS.items() if noun == kind)
        while True:
            id = f"{prefix}-" + "".join(secrets.choice(_LETTERS) for _ in range(6))
            if not self._rows(f"SELECT 1 FROM {TABLES[kind]} WHERE id = ?", [id]):
                return id
