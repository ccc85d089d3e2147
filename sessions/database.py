"""The database of a home: one connection per thread, transactions, and rows by id."""

import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlite_utils

from sessions.errors import NotFound, ReadOnlyHome, StoreCorrupt, StoreFailing, reason_of, sqlite_errors
from sessions.functions import know_functions
from sessions.ids import ID, TABLES, kind_of, random_id
from sessions.migrations import migrate

DATABASE = "stockpot.db"
_HEADER_BYTES = 100  # header of an SQLite file; SQLite takes a shorter file for a new database
BUSY_SEC = 30.0

CACHE_KIB = 512
"""Memory of a connection for pages of the file, in KiB. Each thread has one, and SQLite would take 2 MB for each."""


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


def as_text(data: bytes) -> str:
    """Decode text with damaged characters replaced, so that the rest can still be shown or deleted."""
    return data.decode(errors="replace")


class Database:
    """A home folder and the SQLite database in it, for any number of threads.

    Attributes:
        home: the folder, as an absolute path.
        path: the database file that is open.
        read_only: the home cannot be written. A copy of its database is open, as SQLite writes even to read.
        alone: the disk has no room for SQLite's shared files, so only one thread can use the database, to read and
            delete.
    """

    def __init__(self, home: Path) -> None:
        self.home = Path(home).expanduser().resolve()
        self.path = self.home / DATABASE
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[tuple[threading.Thread, sqlite_utils.Database]] = []
        self._inherited: list[tuple[threading.Thread, sqlite_utils.Database]] = []
        self._pid = os.getpid()
        self.alone = False
        check_whole(self.home)
        self.read_only = self.path.exists() and not os.access(self.home, os.W_OK)
        if self.read_only:
            self._copy()
        else:
            self._make_home()
        with sqlite_errors(self.path):
            migrate(self.connection)

    def _copy(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="stockpot-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        try:
            for path in (self.path, self.path.with_name(f"{DATABASE}-wal")):  # the log holds the latest changes
                if path.exists():
                    shutil.copyfile(path, folder / path.name)
        except OSError as error:
            raise StoreFailing(
                f"Cannot read the home folder {self.home}: {reason_of(error)}. Check its permissions."
            ) from error
        self.path = folder / DATABASE

    def _make_home(self) -> None:
        try:
            if not self.home.exists():
                self.home.mkdir(parents=True, mode=0o700, exist_ok=True)
            for name in ("documents", "contexts", "sessions", "incoming"):
                (self.home / name).mkdir(mode=0o700, exist_ok=True)
            if not self.path.exists():  # SQLite makes files readable by all; log and index copy this mode
                self.path.touch(mode=0o600)
        except OSError as error:
            raise StoreFailing(
                f"Cannot make the home folder {self.home}: {reason_of(error)}. Choose another with --home."
            ) from error

    @property
    def connection(self) -> sqlite_utils.Database:
        """SQLite connection of the calling thread."""
        if self._pid != os.getpid():
            # A connection must not be used, or even closed, by a forked process.
            self._pid, self._inherited = os.getpid(), self._open
            self._open, self._local, self._lock = [], threading.local(), threading.Lock()
        db: sqlite_utils.Database | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
        return db

    def _connect(self) -> sqlite_utils.Database:
        with sqlite_errors(self.path):
            try:
                db = self._opened("NORMAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_IOERR_SHMSIZE":
                    raise
                db, self.alone = self._opened("EXCLUSIVE"), True
            db.execute("PRAGMA foreign_keys = ON")
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            db.execute("PRAGMA secure_delete = ON")  # deleted text is overwritten, not left in free pages
        with self._lock:
            finished = [each for each in self._open if not each[0].is_alive()]
            self._open = [each for each in self._open if each[0].is_alive()] + [(threading.current_thread(), db)]
        for _, old in finished:
            old.close()
        return db

    def _opened(self, locking: str) -> sqlite_utils.Database:
        # check_same_thread is off only so that another thread can close the connections of finished threads.
        connection = sqlite3.connect(self.path, timeout=BUSY_SEC, check_same_thread=False)
        try:
            know_functions(connection)
            connection.text_factory = as_text
            connection.execute(f"PRAGMA locking_mode = {locking}")
            db = sqlite_utils.Database(connection)
            self._set_wal(db)
        except BaseException:
            connection.close()
            raise
        return db

    @staticmethod
    def _set_wal(db: sqlite_utils.Database) -> None:
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
    def transaction(self, passing: bool = False, derived: bool = False) -> Iterator[sqlite_utils.Database]:
        """Open a transaction that holds the write lock from the start; inside another transaction, join it.

        When this returns, the data is on the disk and survives a power failure.

        Args:
            passing: do not wait for the disk, for data that is replaced many times a second.
            derived: all that is written can be made again from the rest. A home that cannot be written allows this too,
                as it changes the copy alone.

        Raises:
            ReadOnlyHome: the home cannot be written.
        """
        if self.read_only and not derived:
            raise ReadOnlyHome(self.home)
        db = self.connection
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

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[dict[str, Any]]:
        """Return all rows of a SELECT."""
        with sqlite_errors(self.path):
            return list(self.connection.query(sql, parameters))

    def rows_of(self, select: str, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of a SELECT with these ids, in their order; an id without a row is left out."""
        found = self.rows(f"{select} WHERE id IN (SELECT value FROM json_each(?))", [json.dumps(list(ids))])
        rows = {row["id"]: row for row in found}
        return [rows[id] for id in ids if id in rows]

    def first(
        self, table: str, order: str, most: int, chosen: Sequence[str], where: str, value: str
    ) -> tuple[list[str], int]:
        """Return the first ids of a table and the chosen ones, and how many more there are.

        Args:
            table: the table.
            order: SQL to order its rows by.
            most: most ids, without the chosen ones.
            chosen: ids that are returned in any case.
            where: condition for all of them in SQL.
            value: value of its placeholder `:value`.
        """
        rows = self.rows(
            f"""
            SELECT id, total FROM (
                SELECT id, row_number() OVER (ORDER BY {order}) AS place, count(*) OVER () AS total
                FROM {table} WHERE {where})
            WHERE place <= :most OR id IN (SELECT value FROM json_each(:chosen)) ORDER BY place""",
            {"most": most, "chosen": json.dumps(list(chosen)), "value": value},
        )
        return [row["id"] for row in rows], rows[0]["total"] - len(rows) if rows else 0

    def version(self) -> int:
        """Return a number that changes when another thread or program writes; this thread's own writes do not count."""
        (row,) = self.rows("PRAGMA data_version")
        return int(row["data_version"])

    def one(self, sql: str, id: str, kind: str) -> dict[str, Any]:
        """Return the row that `sql` selects by an id of this kind; NotFound if there is none."""
        rows = self.rows(sql, [id]) if kind_of(id) == kind else []
        if not rows:
            gone, todo = "it was deleted", f"List the {kind}s there are."
            if kind == "job":  # no command lists jobs
                gone, todo = "what it was about was deleted", "What is being read names its job."
            raise NotFound(f"There is no {kind} {id}: {gone}, or the id is mistyped. {todo}")
        return rows[0]

    def update(self, kind: str, id: str, changes: dict[str, Any]) -> None:
        """Change columns of one row.

        Raises:
            NotFound: the row is gone.
        """
        with self.transaction() as db:
            self.one(f"SELECT id FROM {TABLES[kind]} WHERE id = ?", id, kind)
            sets = ", ".join(f'"{name}" = ?' for name in changes)
            db.execute(f"UPDATE {TABLES[kind]} SET {sets} WHERE id = ?", [*changes.values(), id])

    def new_id(self, kind: str) -> str:
        """Return an id that is not taken; only for use inside a transaction."""
        while True:
            id = random_id(kind)
            if not self.rows(f"SELECT 1 FROM {TABLES[kind]} WHERE id = ?", [id]):
                return id

    def empty_log(self) -> None:
        """Write SQLite's log into the database and truncate it, so that no deleted text is left in it."""
        with suppress(sqlite3.OperationalError):  # other readers: a later call empties the log
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
