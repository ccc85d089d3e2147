"""Deletion of items with everything derived from them: rows in one transaction, then files."""

from collections.abc import Sequence

from sessions.database import Database
from sessions.errors import DiskFull, InUse
from sessions.folders import NAMES, Folders
from sessions.ids import TABLES
from sessions.rows import INTRODUCE, RECAP
from sessions.workers import Workers


class Deletion:
    """Deletes documents, contexts and sessions for their tables."""

    def __init__(self, database: Database, folders: Folders, workers: Workers) -> None:
        self._database, self._folders, self._workers = database, folders, workers

    def delete(self, kind: str, ids: Sequence[str]) -> None:
        """Delete items of one kind, the rows derived from them, their files and their entries in the search index.

        Raises:
            NotFound: there is no such item. Nothing was deleted.
            InUse: a live worker is reading or answering from one. Nothing was deleted.
        """
        for id in ids:
            self._database.one(f"SELECT id FROM {TABLES[kind]} WHERE id = ?", id, kind)
        try:
            gone = self._delete_rows(kind, ids)
        except DiskFull:  # deleting rows needs space too; removing their files frees it
            with self._database.transaction():
                self._folders.remove(_with_folders(self._idle(kind, ids)))
            gone = self._delete_rows(kind, ids)
        self._folders.remove(_with_folders(gone))
        self._database.empty_log()

    def _delete_rows(self, kind: str, ids: Sequence[str]) -> dict[str, list[str]]:
        """Delete rows and the rows derived from them, and return the ids of both by kind."""
        with self._database.transaction() as db:
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
            self._folders.note(_with_folders(gone))
            if gone["turn"]:
                # The index only marks an entry as deleted; merging removes its words from the file. SQLite's own option
                # for that (secure-delete) needs 3.42 and makes files that older versions refuse.
                db.execute("INSERT INTO turns_fts (turns_fts) VALUES ('optimize')")
            if gone["document"]:
                db.execute("INSERT INTO pieces_fts (pieces_fts) VALUES ('optimize')")
        return gone

    def _idle(self, kind: str, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return ids and the ids derived from them, by kind; InUse if a live worker uses one.

        Only inside a transaction.
        """
        documents = [*ids] if kind == "document" else []
        read = self._ids("context_id", "context_documents", "document_id", documents)
        contexts = [*ids] if kind == "context" else read
        sessions = [*ids] if kind == "session" else self._ids("id", "sessions", "context_id", contexts)
        turns = self._ids("id", "turns", "session_id", sessions)
        self._check_idle([*documents, *contexts, *sessions, *turns])
        return {"document": documents, "context": contexts, "session": sessions, "turn": turns}

    def _ids(self, column: str, table: str, key: str, values: Sequence[str]) -> list[str]:
        select = f"SELECT {column} FROM {table} WHERE {key} = ?"
        found = [row[column] for value in values for row in self._database.rows(select, [value])]
        return list(dict.fromkeys(found))

    def _check_idle(self, subjects: list[str]) -> None:
        others = f"kind <> '{INTRODUCE}' AND kind <> '{RECAP}'"
        running = f"SELECT * FROM jobs WHERE subject_id = ? AND status = 'running' AND {others}"
        for subject in subjects:
            for job in self._database.rows(running, [subject]):
                if self._workers.is_alive(job["owner"], job["updated_at"]):
                    raise InUse(
                        f"Work on {subject} is under way (job {job['id']}, {job['kind']}): "
                        "stop it, or wait for it, then delete."
                    )
        for subject in self._workers.held_by_others(subjects):
            raise InUse(f"Another program is busy with {subject}: stop it, or wait for it, then delete.")


def _with_folders(ids: dict[str, list[str]]) -> list[str]:
    """Return the ids of documents, contexts and sessions, which have folders."""
    return [id for kind in NAMES for id in ids[kind]]
