"""Checksums of rows, which triggers keep in the database: what a person wrote or reads is told from what it became.

SQLite notices damage to its own structure, and none to a letter in a text.
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
    """Teach a connection the function that the triggers call."""
    connection.create_function("row_checksum", -1, _checksum, deterministic=True)


def _checksum(*columns: bytes | None) -> int:
    return zlib.crc32(b"\0".join(b"-" if column is None else b"+" + column for column in columns))


def keep_checksums(db: Database) -> None:
    """Make the table and the triggers, and sum up what is there."""
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
    """A SELECT of the ids of rows that are not what was written."""
    other = "(SELECT value FROM checksums WHERE checksums.id = rows.id)"
    return f"SELECT id FROM {table} AS rows WHERE {_sum('', SUMMED[table])} IS NOT {other}"


def _sum(prefix: str, columns: tuple[str, ...]) -> str:
    """As bytes, so that text which is no longer UTF-8 can be summed too."""
    return f"row_checksum({', '.join(f'CAST({prefix}{column} AS BLOB)' for column in columns)})"
