"""Deleting: rows in one transaction, then files; and sweeping up what a crash in between left behind."""

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
_INCOMING_SEC = 600.0  # far longer than copying a file takes, or beginning a reading


def _with_folders(ids: dict[str, list[str]]) -> list[str]:
    """Of ids by their kind, those of what has a folder."""
    return [id for kind in _FOLDERS for id in ids[kind]]


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
                self._remove_folders(_with_folders(self._idle(kind, ids)))
            gone = self._delete_rows(kind, ids)
        self._remove_folders(_with_folders(gone))
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
            self._note_leftovers(_with_folders(gone))
            if gone["turn"]:
                # The index only notes that an entry is gone; merging takes its words out of the file. SQLite's own way
                # to take out those of one entry (secure-delete) needs 3.42, and makes files that older ones refuse.
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

    def _remove_folders(self, ids: list[str]) -> None:
        for id in ids:
            remove_tree(self._folder(id))
        self._forget_gone(ids)

    def _forget_gone(self, ids: list[str]) -> None:
        """No longer note those of these as leftovers that have no folder."""
        if gone := [id for id in ids if not self._folder(id).exists()]:
            with suppress(DiskFull):  # then the next sweep forgets them
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
        """Bytes of files kept for a document, context or session itself (not for what derives from it)."""
        return tree_bytes(self._folder_of(id))

    def bytes_to_free(self, ids: Iterable[str]) -> int:
        """Bytes of files that go with documents, contexts and sessions themselves, and with nothing else."""
        return tree_bytes(*map(self._folder_of, ids), freed=True)

    def _folder_of(self, id: str) -> Path:
        kind = kind_of(id)
        if kind not in _FOLDERS:
            raise NotFound(f"A {kind} has no files of its own; ask for the size of its session or context.")
        self._one(f"SELECT id FROM {_FOLDERS[kind]} WHERE id = ?", id, kind)
        return self._folder(id)

    def sweep(self) -> list[Path]:
        """Remove folders that a crash left of what was deleted, or was not yet made; returns them. Done at opening.

        So are files of saves that were killed, in folders that stay.

        Only what the database notes goes: beside one of last week, back from a backup, lies what was read since
        (`strays`).
        """
        with self._write():
            noted = self._rows("SELECT id, noted_at FROM leftovers")
            left = [row["id"] for row in noted if self._folder(row["id"]).exists()]
            incoming = [each for each in (self.home / "incoming").iterdir() if self._is_left(each)]
        # None of them gets a row any more, so nobody has to wait for it.
        self._remove_folders(left)
        for folder in incoming:
            remove_tree(folder)
        for name in ("contexts", "sessions"):
            for folder in (each for each in (self.home / name).iterdir() if ID.fullmatch(each.name)):
                with suppress(OSError):  # deleted meanwhile, or somebody else's: they stay until it can be done
                    TensorFolder(folder).sweep()
        self._forget_gone([row["id"] for row in noted if time.time() - row["noted_at"] > _INCOMING_SEC])
        return [*map(self._folder, left), *incoming]

    @staticmethod
    def _is_left(incoming: Path) -> bool:
        with suppress(FileNotFoundError):  # its owner has just put it in its place
            ours = ID.fullmatch(incoming.name.partition(".")[0])
            return bool(ours) and time.time() - incoming.stat().st_mtime > _INCOMING_SEC
        return False

    def strays(self) -> list[Path]:
        """Folders named like our ids that the database does not know, as after an older one was put in its place."""
        found = []
        with self._write():  # documents and contexts get their folder and their row under the write lock
            noted = {row["id"] for row in self._rows("SELECT id FROM leftovers")}
            for kind, name in _FOLDERS.items():
                known = noted | {row["id"] for row in self._rows(f"SELECT id FROM {name}")}
                named = (each for each in (self.home / name).iterdir() if ID.fullmatch(each.name))
                found += [each for each in named if kind_of(each.name) == kind and each.name not in known]
        return found
