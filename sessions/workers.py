"""Workers: the processes that do jobs, and the signs of life by which a dead one is told from a busy one."""

import time
from collections.abc import Sequence
from typing import Any

from sessions.database import Database
from sessions.processes import is_alive, stamp
from sessions.rows import UNDER_WAY, WorkerRow, make_row


class Workers:
    """The table of workers, and which turns and contexts live processes work on."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def heartbeat(self, worker: str) -> None:
        """Record that a worker of this process is alive, and remove dead workers.

        Processes that cannot inspect this one rely on the record.
        """
        with self._database.transaction(passing=True) as db:
            db.table("workers").upsert({"name": worker, "owner": stamp(), "heartbeat_at": time.time()}, pk="name")
            for dead in [each for each in self.all() if not each.alive]:
                db.execute("DELETE FROM workers WHERE name = ?", [dead.name])

    def all(self) -> list[WorkerRow]:
        """Return all workers that claimed a job or sent a heartbeat, most recent first."""
        rows = self._database.rows("SELECT * FROM workers ORDER BY heartbeat_at DESC")
        return [make_row(WorkerRow, {**row, "alive": is_alive(row["owner"], row["heartbeat_at"])}) for row in rows]

    def is_alive(self, owner: str | None, seen_at: float) -> bool:
        """Return `processes.is_alive`, counting the heartbeats of the process's workers as signs of life."""
        (beat,) = self._database.rows("SELECT max(heartbeat_at) AS at FROM workers WHERE owner = ?", [owner])
        return is_alive(owner, max(seen_at, beat["at"] or 0.0))

    def without_jobs(self) -> list[dict[str, Any]]:
        """Return turns being answered and contexts being read without a job (as by the command line).

        Keys: id, owner, alive.
        """
        active = f"(SELECT subject_id FROM jobs WHERE status IN {UNDER_WAY})"
        rows = self._database.rows(f"""
            SELECT turns.id, turns.owner, coalesce(drafts.updated_at, turns.created_at) AS seen_at FROM turns
            LEFT JOIN drafts ON turn_key = turns.key WHERE status = 'answering' AND turns.id NOT IN {active}
            UNION ALL
            SELECT id, owner, updated_at FROM contexts WHERE status = 'reading' AND id NOT IN {active}""")
        return [{**row, "alive": self.is_alive(row["owner"], row["seen_at"])} for row in rows]

    def held_by_others(self, subjects: Sequence[str]) -> list[str]:
        """Return those of these turns and contexts that another live process works on without a job."""
        held = (row for row in self.without_jobs() if row["alive"] and row["owner"] != stamp())
        return [row["id"] for row in held if row["id"] in subjects]
