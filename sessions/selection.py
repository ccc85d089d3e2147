"""A part of a home: the rows and folders that belong to chosen contexts and sessions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.errors import sqlite_errors
from sessions.folders import NAMES
from sessions.functions import know_functions
from sessions.ids import kind_of
from sessions.search import INDEXES

if TYPE_CHECKING:
    from sessions.store import Store


def selection(store: Store, only: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of the documents, contexts and sessions of a backup, by table; see `back_up`."""
    sessions = [store.sessions.get(id) for id in only if kind_of(id) == "session"]
    whole = [store.contexts.get(id).id for id in only if kind_of(id) != "session"]
    kept: dict[str, list[str]] = {}
    for name in NAMES.values():
        kept[name] = [row["id"] for row in store.database.rows(f"SELECT id FROM {name} ORDER BY rowid")]
    if only:
        chosen = {session.id for session in sessions}
        contexts = {*whole, *(session.context_id for session in sessions)}
        documents = {document.id for id in contexts for document in store.contexts.documents(id)}
        owners = {row["id"]: row["context_id"] for row in store.database.rows("SELECT id, context_id FROM sessions")}
        kept["documents"] = [id for id in kept["documents"] if id in documents]
        kept["contexts"] = [id for id in kept["contexts"] if id in contexts]
        kept["sessions"] = [id for id in kept["sessions"] if id in chosen or owners[id] in whole]
    return kept


def remove_others(database: Path, kept: dict[str, list[str]]) -> None:
    """Remove all other rows from the copy of a database, so that no text of them is left in its file."""
    with sqlite_errors(database), closing(sqlite3.connect(database)) as db:
        know_functions(db)
        db.execute("PRAGMA foreign_keys = ON")
        with db:
            for name in ("sessions", "contexts", "documents"):  # what refers to others first
                db.execute(
                    f"DELETE FROM {name} WHERE id NOT IN (SELECT value FROM json_each(?))", [json.dumps(kept[name])]
                )
            db.execute("DELETE FROM measurements")
            for index in INDEXES:  # deleted words stay in an index until it is built again
                db.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")
        db.execute("VACUUM")
