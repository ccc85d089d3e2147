"""Adding the contents of a backup to a home that has others."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sessions.backup import Backup, disk_errors
from sessions.checksums import altered
from sessions.database import Database
from sessions.errors import StoreError
from sessions.files import remove_tree, tree_bytes
from sessions.folders import NAMES
from sessions.restoring import read_backup
from sessions.titles import unused_title

if TYPE_CHECKING:
    from sessions.store import Store

Row = dict[str, Any]


def add_backup(store: Store, file: Path) -> Backup:
    """Add the documents, contexts and sessions of a backup, and return how many were not there yet.

    They keep their ids. A document that is there already, by the bytes of its file, is not added again. A session that
    has turns which the one here lacks is added beside it, as a branch. If anything fails, nothing is added; after a
    kill the same backup can be added again.

    Raises:
        StoreError: there is no such file, or it has another text of a document that is there.
        StoreCorrupt: the file is no backup, or was cut short, altered or forged.
        DiskFull: no room.
    """
    with disk_errors(store.home), store.folders.staging() as staging:
        read_backup(file, staging)
        with closing(Database(staging)) as source:
            return _Addition(store, source).add()


class _Addition:
    """The rows of a backup that a home lacks."""

    def __init__(self, store: Store, source: Database) -> None:
        self._store, self._source = store, source
        self._documents: dict[str, str] = {}  # id in the backup -> id here, of documents that are there already
        self._new: dict[str, list[Row]] = {}
        self._branched: list[Row] = []  # sessions that are here, and have turns in the backup that are not

    def _compare(self) -> None:
        """Find what is not there yet."""
        here = {row["sha256"]: row for row in self._store.database.rows("SELECT * FROM documents")}
        rows = {table: self._source.rows(f"SELECT * FROM {table} ORDER BY rowid") for table in NAMES.values()}
        for row in rows["documents"]:
            known = here.get(row["sha256"])
            if known is None:
                continue
            if known["content_sha256"] != row["content_sha256"]:
                raise StoreError(
                    f"{row['title']!r} is here with another text, as another version of Stockpot opened its file: "
                    "restore the backup into a new home (--home), or delete that document here first."
                )
            self._documents[row["id"]] = known["id"]
        rows["documents"] = [row for row in rows["documents"] if row["id"] not in self._documents]
        self._new = {table: [row for row in rows[table] if not self._is_here(table, row)] for table in rows}
        new = {row["id"] for row in self._new["sessions"]}
        self._branched = [row for row in rows["sessions"] if row["id"] not in new and self._goes_on(row["id"])]

    def _is_here(self, table: str, row: Row) -> bool:
        found = self._store.database.rows(f"SELECT created_at FROM {table} WHERE id = ?", [row["id"]])
        if found and found[0]["created_at"] != row["created_at"]:
            raise StoreError(
                f"The id {row['id']} is taken here by something else: restore the backup into a new home (--home)."
            )
        return bool(found)

    def _goes_on(self, session_id: str) -> bool:
        """Return whether a session has turns in the backup that are nowhere here."""
        return any(not self._is_here("turns", turn) for turn in self._turns(session_id))

    def _turns(self, session_id: str) -> list[Row]:
        return self._source.rows("SELECT * FROM turns WHERE session_id = ? ORDER BY position", [session_id])

    def add(self) -> Backup:
        """Move the new folders into place and add the rows, all or none."""
        store = self._store
        with store.database.transaction():
            self._compare()
            noted = self._ids()
            store.folders.note(noted)  # should this be killed, they are swept up
        moved: list[str] = []
        try:
            with store.database.transaction():  # no other program adds or sweeps in between
                self._compare()
                ids = self._ids()
                size = tree_bytes(*(self._folder(id) for id in ids))
                for id in ids:
                    remove_tree(store.folders.path(id))  # of a program that was killed
                    if self._folder(id).is_dir():
                        os.rename(self._folder(id), store.folders.path(id))
                        moved.append(id)
                self._insert()
                branches = tuple(self._branch(row) for row in self._branched)
                store.folders.keep(noted)
        except BaseException:
            store.folders.remove(moved)
            raise
        store.recover()  # an answer that was under way ends
        counts = {kind: len(self._new[table]) for kind, table in NAMES.items()}
        return Backup(counts["document"], counts["context"], counts["session"], size, branches)

    def _ids(self) -> list[str]:
        return [row["id"] for rows in self._new.values() for row in rows]

    def _folder(self, id: str) -> Path:
        return self._source.home / self._store.folders.path(id).relative_to(self._store.home)

    def _insert(self) -> None:
        for table, rows in self._new.items():
            for row in rows:
                self._insert_row(table, row)
        contexts = {row["id"] for row in self._new["contexts"]}
        for row in self._source.rows("SELECT * FROM context_documents"):
            if row["context_id"] in contexts:
                document = self._documents.get(row["document_id"], row["document_id"])
                self._store.database.connection.table("context_documents").insert({**row, "document_id": document})
        for session in self._new["sessions"]:
            self._insert_turns(session["id"], session["id"])

    def _branch(self, session: Row) -> str:
        """Add a session with the turns that one has in the backup, and return its title.

        Its memory is made anew from its turns when it is asked, as that of any branch.
        """
        database, context = self._store.database, session["context_id"]
        id, title = database.new_id("session"), unused_title(database, context, session["title"])
        database.connection.table("sessions").insert({**session, "id": id, "title": title})
        self._insert_turns(session["id"], id)
        return title

    def _insert_turns(self, session_id: str, new_id: str) -> None:
        """Add the turns of a session in the backup to one here. Those that are here too get other ids."""
        for turn in self._turns(session_id):
            here = self._is_here("turns", turn)
            id = self._store.database.new_id("turn") if here else turn["id"]
            self._insert_row("turns", {**turn, "id": id, "session_id": new_id}, turn["id"])

    def _insert_row(self, table: str, row: Row, source_id: str | None = None) -> None:
        """Add a row without what is only true in the home that it comes from."""
        own = {name: value for name, value in row.items() if name not in ("key", "owner", "searchable")}
        self._store.database.connection.table(table).insert(own)
        if self._is_altered(table, source_id or row["id"]):  # it stays known as damaged
            wrong = "UPDATE checksums SET value = value + 1 WHERE id = ?"
            self._store.database.connection.execute(wrong, [row["id"]])

    def _is_altered(self, table: str, id: str) -> bool:
        return bool(self._source.rows(f"{altered(table)} AND id = ?", [id]))
