"""Checksums of rows, kept up to date by triggers, to detect damaged text.

SQLite detects damage to its own structure, but not to the text in a row.
"""

import sqlite3
import zlib
from collections.abc import Mapping

from sqlite_utils import Database

FIRST_SUMMED = {
    "documents": ("sha256", "title", "format", "pages", "characters", "file_name", "file_path", "content_sha256"),
    "contexts": ("model", "method", "settings", "budget", "fingerprint", "tokens", "status", "own_title"),
    "sessions": ("context_id", "title"),
    "turns": ("session_id", "position", "question", "answer", "reasoning", "pages", "status", "sources"),
}
"""Columns by table that the first checksums had."""
SUMMED = {
    "documents": (*FIRST_SUMMED["documents"], "warnings", "file_bytes", "created_at"),
    "contexts": (*FIRST_SUMMED["contexts"], "warnings", "created_at"),
    "sessions": (*FIRST_SUMMED["sessions"], "created_at"),
    "turns": (*FIRST_SUMMED["turns"], "measurements", "error", "asked_of", "created_at", "finished_at"),
}
"""Columns by table; those that change while something is under way are left out."""


def know_checksums(connection: sqlite3.Connection) -> None:
    """Register the SQL function that the triggers call on a connection."""
    connection.create_function("row_checksum", -1, _checksum, deterministic=True)


def _checksum(*columns: bytes | None) -> int:
    return zlib.crc32(b"\0".join(b"-" if column is None else b"+" + column for column in columns))


def keep_checksums(db: Database) -> None:
    """Create the checksum table and its triggers, and add checksums of the rows that exist."""
    know_checksums(db.conn)
    db.execute("CREATE TABLE checksums (id TEXT PRIMARY KEY, value INTEGER NOT NULL)")
    for table, columns in SUMMED.items():
        db.execute(f"INSERT INTO checksums SELECT id, {_sum('', columns)} FROM {table}")
        _create_triggers(db, table)


def widen_checksums(db: Database) -> None:
    """Let the checksums of rows have all columns of `SUMMED`. Those of rows that are altered stay wrong."""
    know_checksums(db.conn)
    for table, columns in SUMMED.items():
        for name in ("added", "changed", "removed"):
            db.execute(f"DROP TRIGGER {table}_{name}")
        now = f"SELECT {_sum('', columns)} FROM {table} WHERE {table}.id = checksums.id"
        whole = f"SELECT id FROM {table} WHERE {intact(table, FIRST_SUMMED)}"
        db.execute(f"UPDATE checksums SET value = ({now}) WHERE id IN ({whole})")
        _create_triggers(db, table)


def _create_triggers(db: Database, table: str) -> None:
    columns = SUMMED[table]
    insert = f"INSERT OR REPLACE INTO checksums VALUES (new.id, {_sum('new.', columns)})"
    for name, event, work in (
        ("added", "INSERT", insert),
        ("changed", f"UPDATE OF {', '.join(columns)}", insert),
        ("removed", "DELETE", "DELETE FROM checksums WHERE id = old.id"),
    ):
        db.execute(f"CREATE TRIGGER {table}_{name} AFTER {event} ON {table} BEGIN {work}; END")


def altered(table: str) -> str:
    """Return a SELECT of the ids of rows that differ from their checksum."""
    return f"SELECT id FROM {table} WHERE NOT {intact(table)}"


def intact(table: str, summed: Mapping[str, tuple[str, ...]] = SUMMED) -> str:
    """Return an SQL expression that is 1 if a row agrees with its checksum, else 0. summed: columns by table."""
    stored = f"(SELECT value FROM checksums WHERE checksums.id = {table}.id)"
    return f"({_sum(f'{table}.', summed[table])} IS {stored})"


def _sum(prefix: str, columns: tuple[str, ...]) -> str:
    """Return the SQL checksum of columns, cast to BLOB so that damaged UTF-8 has a checksum too."""
    return f"row_checksum({', '.join(f'CAST({prefix}{column} AS BLOB)' for column in columns)})"
