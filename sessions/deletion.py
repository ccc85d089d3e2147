"""Deleting: rows in one transaction, then files; and sweeping up what a crash in between left behind."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sessions.database import ID, TABLES, kind_of
from sessions.errors import DiskFull, InUse, NotFound, StoreError
from sessions.files import remove_tree, tree_bytes
from sessions.jobs import Jobs
from sessions.processes import is_alive

_FOLDERS = {"document": "documents", "context": "contexts", "session": "sessions"}
_INCOMING_SEC = 600.0  # far longer than copying a file takes


class Deletion(Jobs):
    """What goes, and everything derived from it."""

    def delete_document(self, *ids: str) -> None:
        """Delete documents with every context that read one, their tensors, sessions, turns and index entries.

        Raises:
            InUse: a live worker is reading or answering from one; nothing was deleted.
        """
        self._delete("document", [self.document(id).id for id in ids])

    def delete_context(self, *ids: str) -> None:
        """Delete contexts with their tensors and sessions; InUse as for `delete_document`."""
        self._delete("context", [self.context(id).id for id in ids])

    def delete_session(self, *ids: str) -> None:
        """Delete sessions with their turns and tensors; InUse as for `delete_document`."""
        self._delete("session", [self.session(id).id for id in ids])

    def delete_job(self, *ids: str) -> None:
        """Delete jobs that have ended; what they are about stays. StoreError for one that has not."""
        with self._write() as db:
            for id in ids:
                if (job := self.job(id)).finished_at is None:
                    raise StoreError(f"Job {id} is {job.status}: cancel it, or wait for it, then delete.")
                db.execute("DELETE FROM measurements WHERE subject_id = ?", [id])
                db.execute("DELETE FROM jobs WHERE id = ?", [id])
        self._empty_log()

    def _delete(self, kind: str, ids: list[str]) -> None:
        try:
            gone = self._delete_rows(kind, ids)
        except DiskFull:  # to note that rows are gone takes room as well, which their files have
            with self._write():
                self._remove_folders(self._idle(kind, ids))
            gone = self._delete_rows(kind, ids)
        self._remove_folders(gone)
        self._empty_log()

    def _empty_log(self) -> None:
        """Write what is in SQLite's log into the database, so that nothing deleted is left in it."""
        with suppress(sqlite3.OperationalError):  # others are reading: the log is emptied later
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _delete_rows(self, kind: str, ids: list[str]) -> dict[str, list[str]]:
        """Delete things of a kind and what derives from them; the ids of both by their kind."""
        with self._write() as db:
            gone = self._idle(kind, ids)
            subjects = [id for ids in gone.values() for id in ids]
            jobs = self._ids("id", "jobs", "subject_id", subjects)
            # What made a context names the files that it was made of.
            jobs += self._ids("id", "jobs", "json_extract(progress, '$.context')", gone["context"])
            for table, column, ids in (
                ("measurements", "subject_id", [*subjects, *jobs]),
                ("jobs", "id", jobs),
                *((TABLES[kind], "id", gone[kind]) for kind in ("turn", "session", "context", "document")),
            ):
                for each in ids:
                    db.execute(f"DELETE FROM {table} WHERE {column} = ?", [each])
            if gone["turn"]:
                # The index only notes that an entry is gone; merging takes its words out of the file.
                db.execute("INSERT INTO turns_fts (turns_fts) VALUES ('optimize')")
        return gone

    def _idle(self, kind: str, ids: list[str]) -> dict[str, list[str]]:
        """Things and what derives from them, as ids by their kind; InUse if somebody works with any. In `_write`."""
        documents = ids if kind == "document" else []
        read = self._ids("context_id", "context_documents", "document_id", documents)
        contexts = ids if kind == "context" else read
        sessions = ids if kind == "session" else self._ids("id", "sessions", "context_id", contexts)
        turns = self._ids("id", "turns", "session_id", sessions)
        self._check_idle([*documents, *contexts, *sessions, *turns])
        return {"document": documents, "context": contexts, "session": sessions, "turn": turns}

    def _remove_folders(self, gone: dict[str, list[str]]) -> None:
        for kind in _FOLDERS:
            for id in gone[kind]:
                remove_tree(self._folder(kind, id))

    def _ids(self, column: str, table: str, key: str, values: Sequence[str]) -> list[str]:
        found = [
            row[column] for v in values for row in self._rows(f"SELECT {column} FROM {table} WHERE {key} = ?", [v])
        ]
        return list(dict.fromkeys(found))

    def _check_idle(self, subjects: list[str]) -> None:
        for subject in subjects:
            for job in self._rows("SELECT * FROM jobs WHERE subject_id = ? AND status = 'running'", [subject]):
                if is_alive(job["owner"], job["updated_at"]):
                    raise InUse(
                        f"Worker {job['worker']} is busy with {subject} (job {job['id']}, {job['kind']}): "
                        "cancel that job, or wait for it, then delete."
                    )
        for subject in self._held_by_others(subjects):
            raise InUse(f"Another program is busy with {subject}: stop it, or wait for it, then delete.")

    def _folder(self, kind: str, id: str) -> Path:
        return self.home / _FOLDERS[kind] / id

    def size_on_disk(self, id: str) -> int:
        """Bytes of files kept for a document, context or session itself (not for what derives from it)."""
        kind = kind_of(id)
        if kind not in _FOLDERS:
            raise NotFound(f"A {kind} has no files of its own; ask for the size of its session or context.")
        self._one(f"SELECT id FROM {_FOLDERS[kind]} WHERE id = ?", id, kind)
        return tree_bytes(self._folder(kind, id))

    def sweep(self) -> list[Path]:
        """Remove folders that a crash left without a row; returns them. Done when a store is opened.

        Documents and contexts get their folder and their row under the write lock, held here too. Only folders named
        like our ids are looked at, and none that is older than the database: whoever points a home at a folder of
        their own, or starts a new database beside old files, loses nothing.
        """
        with self._write():
            orphans = self._orphans()
        for folder in orphans:  # none of them gets a row any more, so nobody has to wait for it
            remove_tree(folder)
        return orphans

    def _orphans(self) -> list[Path]:
        """Folders without a row; in `_write`."""
        orphans: list[Path] = []
        born = self._rows("SELECT min(applied_at) AS born FROM _sqlite_migrations")[0]["born"]
        born_at = datetime.fromisoformat(born).timestamp()
        for kind, name in _FOLDERS.items():
            kept = {row["id"] for row in self._rows(f"SELECT id FROM {name}")}
            for folder in (self.home / name).iterdir():
                named_like_id = ID.fullmatch(folder.name) and kind_of(folder.name) == kind
                with suppress(FileNotFoundError):  # who deleted it has come to its folder
                    if named_like_id and folder.name not in kept and folder.stat().st_mtime >= born_at:
                        orphans.append(folder)
        for folder in (self.home / "incoming").iterdir():
            ours = ID.fullmatch(folder.name.partition(".")[0])
            with suppress(FileNotFoundError):  # its owner has just put it in its place
                if ours and time.time() - folder.stat().st_mtime > _INCOMING_SEC:
                    orphans.append(folder)
        return orphans
