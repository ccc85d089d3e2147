"""Adding the contents of a backup to a home that has others."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sessions.backup import Backup, disk_errors, read_backup
from sessions.database import Database
from sessions.errors import StoreError
from sessions.files import tree_bytes
from sessions.folders import NAMES

if TYPE_CHECKING:
    from sessions.store import Store

Row = dict[str, Any]


def add_backup(store: Store, file: Path) -> Backup:
    """Add the documents, contexts and sessions of a backup, and return how many were not there yet.

    They keep their ids. A document that is there already, by the bytes of its file, is not added again. If anything
    fails, nothing is added.

    Raises:
        StoreError: there is no such file, or it has another text of a document that is there.
        StoreCorrupt: the file is no backup, or was cut short or altered.
        DiskFull: no room.
    """
    with disk_errors(store.home), store.folders.staging() as staging:
        read_backup(file, staging)
        with closing(Database(staging)) as source:
            new = _Addition(store, source)
            new.compare()
            return new.add()


class _Addition:
    """The rows of a backup that a home lacks."""

    def __init__(self, store: Store, source: Database) -> None:
        self._store, self._source = store, source
        self._documents: dict[str, str] = {}  # id in the backup -> id here, of documents that are there already
        self._new: dict[str, list[Row]] = {}

    def compare(self) -> None:
        """Find what is not there yet."""
        here = {row["sha256"]: row for row in self._store.database.rows("SELECT * FROM documents")}
        for row in self._source.rows("SELECT * FROM documents"):
            known = here.get(row["sha256"])
            if known is None:
                continue
            if known["content_sha256"] != row["content_sha256"]:
                raise StoreError(
                    f"{row['title']!r} is here with another text, as another version of Stockpot opened its file: "
                    "restore the backup into a new home (--home), or delete that document here first."
                )
            self._documents[row["id"]] = known["id"]
        for table in (*NAMES.values(), "turns"):
            rows = self._source.rows(f"SELECT * FROM {table}")
            if table == "documents":
                rows = [row for row in rows if row["id"] not in self._documents]
            self._new[table] = [row for row in rows if not self._is_here(table, row)]

    def _is_here(self, table: str, row: Row) -> bool:
        found = self._store.database.rows(f"SELECT created_at FROM {table} WHERE id = ?", [row["id"]])
        if found and found[0]["created_at"] != row["created_at"]:
            raise StoreError(
                f"The id {row['id']} is taken here by something else: restore the backup into a new home (--home)."
            )
        return bool(found)

    def add(self) -> Backup:
        """Move the new folders into place and add the rows, all or none."""
        store = self._store
        ids = [row["id"] for table in NAMES.values() for row in self._new[table]]
        size = tree_bytes(*(self._folder(id) for id in ids))
        store.folders.note(ids)  # should this be killed, they are swept up
        try:
            with store.database.transaction() as db:  # no sweep comes in between
                for id in ids:
                    if self._folder(id).is_dir():
                        os.rename(self._folder(id), store.folders.path(id))
                for table, rows in self._new.items():
                    db.table(table).insert_all(self._own(row) for row in rows)
                contexts = {row["id"] for row in self._new["contexts"]}
                for row in self._source.rows("SELECT * FROM context_documents"):
                    if row["context_id"] in contexts:
                        document = self._documents.get(row["document_id"], row["document_id"])
                        db.table("context_documents").insert({**row, "document_id": document})
                store.folders.keep(ids)
        except BaseException:
            store.folders.remove(ids)
            raise
        store.recover()  # an answer that was under way ends
        counts = {kind: len(self._new[table]) for kind, table in NAMES.items()}
        return Backup(counts["document"], counts["context"], counts["session"], size)

    def _folder(self, id: str) -> Path:
        return self._source.home / self._store.folders.path(id).relative_to(self._store.home)

    @staticmethod
    def _own(row: Row) -> Row:
        """Return a row without what is only true in the home that it comes from."""
        return {name: value for name, value in row.items() if name not in ("key", "owner", "searchable")}
