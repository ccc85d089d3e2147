"""Deletion: rows in one transaction, then files; and removal of files that a crash in between left behind."""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from sessions.database import ID, TABLES, kind_of
from sessions.errors import DiskFull, InUse, NotFound, StoreError
from sessions.files import remove_tree, tree_bytes
from sessions.jobs import Jobs
from sessions.tensors import TensorFolder

_FOLDERS = {"document": "documents", "context": "contexts", "session": "sessions"}
_INCOMING_SEC = 600.0  # far longer than it takes to copy a file or to start a reading


def _with_folders(ids: dict[str, list[str]]) -> list[str]:
    """Return the ids of documents, contexts and sessions, which have folders."""
    return [id for kind in _FOLDERS for id in ids[kind]]


class Deletion(Jobs):
    """Adds deletion to the store, together with everything derived from the deleted item."""

    def delete_document(self, *ids: str) -> None:
        """Delete documents with every context that read one, their tensors, sessions, turns and index entries.

        Raises:
            InUse: a live worker is reading or answering from one. Nothing was deleted.
        """
        self._delete("document", [self.document(id).id for id in ids])

    def delete_context(self, *ids: str) -> None:
        """Delete contexts with their tensors and sessions. Raises InUse as `delete_document` does."""
        self._delete("context", [self.context(id).id for id in ids])

    def delete_session(self, *ids: str) -> None:
        """Delete sessions with their turns and tensors. Raises InUse as `delete_document` does."""
        self._delete("session", [self.session(id).id for id in ids])

    def delete_job(self, *ids: str) -> None:
        """Delete finished jobs; their subjects stay.

        Raises:
            StoreError: a job has not ended.
        """
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
        except DiskFull:  # deleting rows needs space too; removing their files frees it
            with self._write():
                self._remove_folders(_with_folders(self._idle(kind, ids)))
            gone = self._delete_rows(kind, ids)
        self._remove_folders(_with_folders(gone))
        self._empty_log()

    def _empty_log(self) -> None:
        """Write SQLite's log into the database and truncate it, so that no deleted text is left in it."""
        with suppress(sqlite3.OperationalError):  # other readers: a later call empties the log
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _delete_rows(self, kind: str, ids: list[str]) -> dict[str, list[str]]:
        """Delete rows and the rows derived from them, and return the ids of both by kind."""
        with self._write() as db:
            gone = self._idle(kind, ids)
            subjects = [id for ids in gone.values() for id in ids]
            jobs = self._ids("id", "jobs", "subject_id", subjects)
            # Upload jobs that made a context name its files.
            jobs += self._ids("id", "jobs", "json_extract(progress, '$.context')", gone["context"])
            for table, column, ids in (
                ("measurements", "subject_id", [*subjects, *jobs]),
                ("jobs", "id", jobs),
                *((TABLES[kind], "id", gone[kind]) for kind in ("turn", "session", "context", "document")),
            ):
                for each in ids:
                    db.execute(f"DELETE FROM {table} WHERE {column} = ?", [each])
            self._note_leftovers(_with_folders(gone))
            if gone["turn"]:
                # The index only marks an entry as deleted; merging removes its words from the file. SQLite's own option
                # for that (secure-delete) needs 3.42 and makes files that older versions refuse.
                db.execute("INSERT INTO turns_fts (turns_fts) VALUES ('optimize')")
        return gone

    def _idle(self, kind: str, ids: list[str]) -> dict[str, list[str]]:
        """Return ids and the ids derived from them, by kind; InUse if a live worker uses one. Only inside `_write`."""
        documents = ids if kind == "document" else []
        read = self._ids("context_id", "context_documents", "document_id", documents)
        contexts = ids if kind == "context" else read
        sessions = ids if kind == "session" else self._ids("id", "sessions", "context_id", contexts)
        turns = self._ids("id", "turns", "session_id", sessions)
        self._check_idle([*documents, *contexts, *sessions, *turns])
        return {"document": documents, "context": contexts, "session": sessions, "turn": turns}

    def _remove_folders(self, ids: list[str]) -> None:
        for id in ids:
            remove_tree(self._folder(id))
        self._forget_gone(ids)

    def _forget_gone(self, ids: list[str]) -> None:
        """Remove the leftover notes of those ids whose folder is gone."""
        if gone := [id for id in ids if not self._folder(id).exists()]:
            with suppress(DiskFull):  # the next sweep removes the notes
                self._forget_leftovers(gone)

    def _ids(self, column: str, table: str, key: str, values: Sequence[str]) -> list[str]:
        found = [
            row[column] for v in values for row in self._rows(f"SELECT {column} FROM {table} WHERE {key} = ?", [v])
        ]
        return list(dict.fromkeys(found))

    def _check_idle(self, subjects: list[str]) -> None:
        for subject in subjects:
            for job in self._rows("SELECT * FROM jobs WHERE subject_id = ? AND status = 'running'", [subject]):
                if self._is_alive(job["owner"], job["updated_at"]):
                    raise InUse(
                        f"Work on {subject} is under way (job {job['id']}, {job['kind']}): "
                        "stop it, or wait for it, then delete."
                    )
        for subject in self._held_by_others(subjects):
            raise InUse(f"Another program is busy with {subject}: stop it, or wait for it, then delete.")

    def _folder(self, id: str) -> Path:
        return self.home / _FOLDERS[kind_of(id)] / id

    def size_on_disk(self, id: str) -> int:
        """Return the bytes of the files of a document, context or session, without those derived from it."""
        return tree_bytes(self._folder_of(id))

    def bytes_to_free(self, ids: Iterable[str]) -> int:
        """Return the bytes that removing the files of these documents, contexts and sessions would free."""
        return tree_bytes(*map(self._folder_of, ids), freed=True)

    def _folder_of(self, id: str) -> Path:
        kind = kind_of(id)
        if kind not in _FOLDERS:
            raise NotFound(f"A {kind} has no files of its own; ask for the size of its session or context.")
        self._one(f"SELECT id FROM {_FOLDERS[kind]} WHERE id = ?", id, kind)
        return self._folder(id)

    def sweep(self) -> list[Path]:
        """Remove folders left by a crash, of deleted items or of items not finished yet, and return them.

        Done at opening.

        Temporary files of killed saves are removed too. Only folders noted in the database are removed: beside a
        database restored from a backup there are folders it does not know (`strays`).
        """
        with self._write():
            noted = self._rows("SELECT id, noted_at FROM leftovers")
            left = [row["id"] for row in noted if self._folder(row["id"]).exists()]
            incoming = [each for each in (self.home / "incoming").iterdir() if self._is_left(each)]
        # Outside the write lock: none of them can get a row any more.
        self._remove_folders(left)
        for folder in incoming:
            remove_tree(folder)
        for name in ("contexts", "sessions"):
            for folder in (each for each in (self.home / name).iterdir() if ID.fullmatch(each.name)):
                with suppress(OSError):  # deleted meanwhile, or owned by another user: a later sweep tries again
                    TensorFolder(folder).sweep()
        self._forget_gone([row["id"] for row in noted if time.time() - row["noted_at"] > _INCOMING_SEC])
        return [*map(self._folder, left), *incoming]

    @staticmethod
    def _is_left(incoming: Path) -> bool:
        with suppress(FileNotFoundError):  # its owner has just moved it into place
            ours = ID.fullmatch(incoming.name.partition(".")[0])
            return bool(ours) and time.time() - incoming.stat().st_mtime > _INCOMING_SEC
        return False

    def strays(self) -> list[Path]:
        """Return folders named like ids that the database does not know, as after a restore of an older database."""
        found = []
        with self._write():  # documents and contexts get folder and row under the write lock
            noted = {row["id"] for row in self._rows("SELECT id FROM leftovers")}
            for kind, name in _FOLDERS.items():
                known = noted | {row["id"] for row in self._rows(f"SELECT id FROM {name}")}
                named = (each for each in (self.home / name).iterdir() if ID.fullmatch(each.name))
                found += [each for each in named if kind_of(each.name) == kind and each.name not in known]
        return found
