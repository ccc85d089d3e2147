"""Recovery after processes died in the middle of their work."""

import time
from typing import Any

from sessions.contexts import Contexts
from sessions.database import Database
from sessions.errors import StoreError
from sessions.folders import Folders
from sessions.ids import kind_of
from sessions.jobs import Jobs
from sessions.rows import JobRow
from sessions.tensors import TensorFolder
from sessions.turns import Turns
from sessions.workers import Workers

MAX_ATTEMPTS = 3
INTERRUPTED = "The program stopped while this was being answered; ask again."


class Recovery:
    """Puts right the jobs, turns and contexts of dead processes."""

    def __init__(
        self,
        database: Database,
        folders: Folders,
        contexts: Contexts,
        turns: Turns,
        workers: Workers,
        jobs: Jobs,
    ) -> None:
        self._database, self._folders, self._workers = database, folders, workers
        self._contexts, self._turns, self._jobs = contexts, turns, jobs

    def run(self) -> list[JobRow]:
        """Recover from dead processes; also done when a store is opened.

        Running jobs of dead workers are queued again with their progress, so that a reading continues from its last
        checkpoint. They end instead if they were asked to stop, or after MAX_ATTEMPTS without a new checkpoint. The job
        of a turn is not repeated: the turn keeps its partial answer and becomes failed (or cancelled), unless its whole
        answer was saved with the conversation. Turns and readings without a job and without a live process become
        failed and paused.

        Returns:
            The jobs that were queued again.
        """
        requeued = []
        with self._database.transaction():
            for row in self._dead_jobs():
                cancelled, is_turn = bool(row["cancel_requested"]), row["subject_id"].startswith("t-")
                if not cancelled and not is_turn and row["attempts"] < MAX_ATTEMPTS:
                    queued = {"status": "queued", "owner": None, "updated_at": time.time()}
                    self._database.update("job", row["id"], queued)
                    requeued.append(row["id"])
                    continue
                if is_turn and self._finished_as_saved(row["subject_id"]):
                    self._jobs.end(row["id"], "done")
                    continue
                status, error = ("cancelled", None) if cancelled else ("failed", INTERRUPTED)
                if not cancelled and not is_turn:
                    error = f"The program stopped {row['attempts']} times while working on this; it is not tried again."
                self._jobs.end(row["id"], status, error)
            self._end_orphans()
        return [self._jobs.get(id) for id in requeued]

    def _dead_jobs(self) -> list[dict[str, Any]]:
        rows = self._database.rows("""
            SELECT jobs.*, max(jobs.updated_at, coalesce(drafts.updated_at, 0)) AS seen_at FROM jobs
            LEFT JOIN turns ON turns.id = jobs.subject_id LEFT JOIN drafts ON drafts.turn_key = turns.key
            WHERE jobs.status = 'running' ORDER BY jobs.key""")
        return [row for row in rows if not self._workers.is_alive(row["owner"], row["seen_at"])]

    def _end_orphans(self) -> None:
        for row in self._workers.without_jobs():
            if row["alive"]:
                continue
            if kind_of(row["id"]) != "turn":
                self._contexts.update(row["id"], status="paused")
            elif not self._finished_as_saved(row["id"]):
                self._turns.finish(row["id"], status="failed", error=INTERRUPTED)

    def _finished_as_saved(self, turn_id: str) -> bool:
        """Finish a turn whose whole answer was saved with its conversation; return whether it was."""
        session = self._turns.get(turn_id).session_id
        try:
            _, meta = TensorFolder(self._folders.path(session)).load(only=())
            saved = meta["turn"]
            if saved["id"] != turn_id:
                return False
            self._turns.finish_as_saved(saved)
        except (StoreError, KeyError, TypeError, ValueError, AttributeError):  # none is saved, or it is damaged
            return False
        return True
