"""Integrity check of a home: every row, every text, every byte of saved states, and SQLite's own structure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessions.checksums import SUMMED, altered
from sessions.errors import NotFound, StoreError
from sessions.files import sha256_of
from sessions.tensors import TensorFolder

if TYPE_CHECKING:
    from sessions.database import Database
    from sessions.store import Store

_RESTORE = "Restore the database from a backup, or export what can still be read and start a new home."


def damage(store: Store) -> Iterator[str]:
    """Read everything and yield one sentence for each damaged item, with the way to mend it.

    Items deleted during the check are left out.
    """
    yield from _database_damage(store.database)
    if not store.search.is_intact():
        yield "The index by which questions are searched is not that of the turns: `stockpot doctor --repair`."
    yield from _altered_rows(store.database)
    for document in store.documents.all():
        if not store.documents.has_content(document.id):
            yield (
                f"The text of document {document.id} ({document.title!r}) is missing or altered: read its file "
                "again, which mends it, or delete the document."
            )
        original = store.documents.file(document.id)
        if original is not None and sha256_of(original) != document.sha256:
            yield f"The original of document {document.id} at {original} is not the file that was read."
    for id in [row.id for row in store.contexts.all()] + [row.id for row in store.sessions.all()]:
        yield from _state_damage(TensorFolder(store.folders.path(id)))


def _database_damage(database: Database) -> Iterator[str]:
    for check in ("integrity_check", "foreign_key_check"):
        try:
            found = [" ".join(map(str, row.values())) for row in database.rows(f"PRAGMA {check}")]
        except (StoreError, sqlite3.DatabaseError) as error:
            found = [str(error)]
        for each in found:
            if each != "ok":
                yield f"The database {database.path} is damaged ({each}). {_RESTORE}"


def _altered_rows(database: Database) -> Iterator[str]:
    for table in SUMMED:
        try:
            ids = [row["id"] for row in database.rows(altered(table))]
        except (StoreError, sqlite3.DatabaseError) as error:
            yield f"The {table} cannot be read ({error}). {_RESTORE}"
            continue
        for id in ids:
            yield f"What the database says of {table.removesuffix('s')} {id} is not what was written there. {_RESTORE}"


def _state_damage(folder: TensorFolder) -> Iterator[str]:
    try:
        folder.load()
    except NotFound:  # nothing has been saved yet, or it was deleted
        return
    except StoreError as error:
        yield str(error)
