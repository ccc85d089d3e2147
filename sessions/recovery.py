"""Recovery after processes died in the middle of their work."""

import time
from typing import Any

from sessions.contexts import Contexts
from sessions.database import Database
from sessions.ids import kind_of
from sessions.jobs import Jobs
from sessions.rows import JobRow
from sessions.turns import Turns
from sessions.workers import Workers

MAX_ATTEMPTS = 3
INTERRUPTED = "The program stopped while this was being answered; ask again."


class Recovery:
    """Puts right the jobs, turns and contexts of dead processes."""

    def __init__(self, database: Database, contexts: Contexts, turns: Turns, workers: Workers, jobs: Jobs) -> None:
        self._database, self._workers = database, workers
        self._contexts, self._turns, self._jobs = contexts, turns, jobs

    def run(self) -> list[JobRow]:
        """Recover from dead processes; also done when a store is opened.

        Running jobs of dead workers are queued again with their progress, so that a reading continues from its last
        checkpoint. They end instead if they were asked to stop, or after MAX_ATTEMPTS without a new checkpoint. The job
        of a turn is not repeated: the turn keeps its partial answer and becomes failed (or cancelled). Turns and
        readings without a job and without a live process become failed and paused.

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
            if kind_of(row["id"]) == "turn":
                self._turns.finish(row["id"], status="failed", error=INTERRUPTED)
            else:
                self._contexts.update(row["id"], status="paused")
