"""Checksums of rows, kept up to date by triggers, to detect damaged text.

SQLite detects damage to its own structure, but not to the text in a row.
"""

import sqlite3
import zlib

from sqlite_utils import Database

SUMMED = {
    "documents": ("sha256", "title", "format", "pages", "characters", "file_name", "file_path", "content_sha256"),
    "contexts": ("model", "method", "settings", "budget", "fingerprint", "tokens", "status", "own_title"),
    "sessions": ("context_id", "title"),
    "turns": ("session_id", "position", "question", "answer", "reasoning", "pages", "status", "sources"),
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
        insert = f"INSERT OR REPLACE INTO checksums VALUES (new.id, {_sum('new.', columns)})"
        changes = f"UPDATE OF {', '.join(columns)}"
        for name, event, work in (
            ("added", "INSERT", insert),
            ("changed", changes, insert),
            ("removed", "DELETE", "DELETE FROM checksums WHERE id = old.id"),
        ):
            db.execute(f"CREATE TRIGGER {table}_{name} AFTER {event} ON {table} BEGIN {work}; END")


def altered(table: str) -> str:
    """Return a SELECT of the ids of rows that differ from their checksum."""
    return f"SELECT id FROM {table} WHERE NOT {intact(table)}"


def intact(table: str) -> str:
    """Return an SQL expression that is 1 if a row agrees with its checksum, else 0."""
    stored = f"(SELECT value FROM checksums WHERE checksums.id = {table}.id)"
    return f"({_sum(f'{table}.', SUMMED[table])} IS {stored})"


def _sum(prefix: str, columns: tuple[str, ...]) -> str:
    """Return the SQL checksum of columns, cast to BLOB so that damaged UTF-8 has a checksum too."""
    return f"row_checksum({', '.join(f'CAST({prefix}{column} AS BLOB)' for column in columns)})"
