"""Jobs: work that one worker claims, reports on and may be asked to stop; and recovery after a worker dies."""

import json
import time
from collections.abc import Sequence
from typing import Any

from sessions.database import kind_of
from sessions.errors import InUse, StoreError
from sessions.measurements import Measurements
from sessions.processes import is_alive, stamp
from sessions.rows import ENDED, JOB_STATUSES, UNDER_WAY, ContextRow, JobRow, WorkerRow, make_row, to_json

MAX_ATTEMPTS = 3
INTERRUPTED = "The program stopped while this was being answered; ask again."


class Jobs(Measurements):
    """Adds jobs and workers to the store."""

    def add_job(
        self,
        kind: str,
        subject_id: str,
        payload: dict[str, Any] | None = None,
        progress: dict[str, Any] | None = None,
    ) -> JobRow:
        """Queue a job and return it. `subject_id` is its context, session or turn; deleting that deletes the job."""
        now = time.time()
        with self._write() as db:
            id = self._new_id("job")
            db.table("jobs").insert(
                {
                    "id": id,
                    "kind": kind,
                    "subject_id": subject_id,
                    "payload": to_json(payload or {}),
                    "status": "queued",
                    "stage": "",
                    "done": 0,
                    "total": 0,
                    "progress": to_json(progress or {}),
                    "cancel_requested": 0,
                    "attempts": 0,
                    "created_at": now,
                    "updated_at": now,
                }
            )
        return self.job(id)

    def add_reading(self, kind: str, context_id: str) -> JobRow:
        """Queue the reading of a context and set it to "reading". A queued or running job of this kind is kept.

        If that job was asked to stop, the request is withdrawn: its worker continues, or has stopped and queues it
        again.

        Raises:
            AlreadyRead: the context is ready.
            InUse: another process reads it without a job.
        """
        with self._write():
            self._check_unread(context_id)  # even if its finished job has not ended yet
            if job := self.work_on(context_id, kind):
                self._update("job", job.id, {"cancel_requested": 0})
                return self.job(job.id)
            if self._held_by_others([context_id]):
                raise InUse(f"Another program is reading {context_id}: wait for it, or stop it there first.")
            self.update_context(context_id, status="reading", error=None)
            return self.add_job(kind, context_id)

    def take_reading(self, context_id: str) -> ContextRow:
        """Set a context to "reading" by this process, without a job, and cancel its queued jobs.

        A ready context stays ready.

        Raises:
            InUse: it is being read, or its job has not ended yet.
        """
        with self._write():
            self.requeue_interrupted()  # so that every running job has a live worker
            for job in self.jobs(status="queued", subject_id=context_id):
                self.request_cancel(job.id)
            row = self.context(context_id)
            if row.status == "ready":
                return row
            if row.status == "reading" or self.work_on(context_id):
                raise InUse(f"This is being read right now (context {context_id}); wait for it, or cancel it first.")
            return self.update_context(context_id, status="reading")

    def job(self, id: str) -> JobRow:
        """Return one job; NotFound if there is none with this id."""
        return make_row(JobRow, self._one("SELECT * FROM jobs WHERE id = ?", id, "job"))

    def jobs(self, status: str | None = None, subject_id: str | None = None, kind: str | None = None) -> list[JobRow]:
        """Return jobs with this status, subject and kind, if given; oldest first."""
        wanted = {"status = ?": status, "subject_id = ?": subject_id, "kind = ?": kind}
        given = {clause: value for clause, value in wanted.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        return [
            make_row(JobRow, row) for row in self._rows(f"SELECT * FROM jobs {where} ORDER BY key", [*given.values()])
        ]

    def work_on(self, subject_id: str, kind: str | None = None) -> JobRow | None:
        """Return the queued or running job of a subject (and kind, if given), or None."""
        jobs = self.jobs(subject_id=subject_id, kind=kind)
        return next((job for job in reversed(jobs) if job.status in UNDER_WAY), None)

    def next_job(self, worker: str, kind: str | None = None) -> JobRow | None:
        """Claim the oldest queued job (of a kind, if given) that this worker may do; None if there is none.

        Two workers never get the same job. Turns of a session are answered in order. A job with a `holder` in its
        payload is reserved for the process with that stamp while it lives.
        """
        now = time.time()
        with self._write() as db:
            self.heartbeat(worker)
            where, values = ("", []) if kind is None else ("AND kind = ?", [kind])
            rows = self._rows(f"SELECT * FROM jobs WHERE status = 'queued' {where} ORDER BY key", values)
            ours = (row for row in rows if not self._is_for_others(row) and not self.is_behind(row["subject_id"]))
            row = next(ours, None)
            if row is None:
                return None
            db.execute(
                "UPDATE jobs SET status = 'running', worker = ?, owner = ?, attempts = attempts + 1, "
                "started_at = coalesce(started_at, ?), updated_at = ? WHERE id = ?",
                [worker, stamp(), now, now, row["id"]],
            )
        return self.job(row["id"])

    def _is_alive(self, owner: str | None, seen_at: float) -> bool:
        """Return `processes.is_alive`, counting the heartbeats of the process's workers as signs of life."""
        (beat,) = self._rows("SELECT max(heartbeat_at) AS at FROM workers WHERE owner = ?", [owner])
        return is_alive(owner, max(seen_at, beat["at"] or 0.0))

    def _is_for_others(self, row: dict[str, Any]) -> bool:
        holder = json.loads(row["payload"]).get("holder")
        return holder not in (None, stamp()) and self._is_alive(holder, row["updated_at"])

    def is_behind(self, turn_id: str) -> bool:
        """Return whether another turn of the same session has to end first.

        That is an earlier turn that a live process waits for or answers, or a later turn that a live process answers
        (after the process that should have answered this one died).
        """
        rows = self._rows(
            f"""
            SELECT turns.id, turns.owner, jobs.status AS job, jobs.owner AS worker,
                max(coalesce(drafts.updated_at, 0), coalesce(jobs.updated_at, 0), turns.created_at) AS seen_at
            FROM turns JOIN turns AS this ON this.session_id = turns.session_id
            LEFT JOIN drafts ON drafts.turn_key = turns.key
            LEFT JOIN jobs ON jobs.subject_id = turns.id AND jobs.status IN {UNDER_WAY}
            WHERE this.id = ? AND turns.status = 'answering' ORDER BY turns.position""",
            [turn_id],
        )
        behind = False  # True once a live process waits for an earlier turn or answers it
        for row in rows:
            asked, answered = (self._is_alive(owner, row["seen_at"]) for owner in (row["owner"], row["worker"]))
            if row["id"] == turn_id:
                if behind:
                    return True
            elif answered or (asked and row["job"] is None and not behind):  # no job: it comes next
                return True
            behind = behind or asked or answered
        return False

    def update_job(
        self,
        id: str,
        *,
        status: str | None = None,
        stage: str | None = None,
        done: int | None = None,
        total: int | None = None,
        progress: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> JobRow:
        """Report on a job; None leaves a field unchanged. A finished job stays finished.

        Raises:
            NotFound: the job was deleted with its subject, so its worker should stop.
            ValueError: an unknown status.
        """
        if status is not None and status not in JOB_STATUSES:
            raise ValueError(f"{status!r} is not one of {JOB_STATUSES}.")
        now = time.time()
        given = {"status": status, "stage": stage, "done": done, "total": total, "error": error}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if progress is not None:
            changes["progress"] = to_json(progress)
        if status in ENDED:
            changes["finished_at"] = now
        with self._write(passing=status is None):
            before = self.job(id)
            if before.status in ENDED and status not in (None, before.status):
                raise StoreError(f"Job {id} is {before.status} and cannot become {status}; add a new job.")
            self._update("job", id, {**changes, "updated_at": now})
        return self.job(id)

    def release_job(self, id: str) -> JobRow:
        """Put a claimed job back into the queue; the claim does not count as an attempt."""
        with self._write() as db:
            self.update_job(id, status="queued")
            db.execute("UPDATE jobs SET owner = NULL, attempts = max(0, attempts - 1) WHERE id = ?", [id])
        return self.job(id)

    def update_context(self, id: str, **changes: Any) -> ContextRow:
        """Update a context (see `Contexts.update_context`); progress in tokens_read resets its job's attempts."""
        with self._write() as db:
            before = self.context(id)
            after = super().update_context(id, **changes)
            if after.tokens_read > before.tokens_read:
                db.execute("UPDATE jobs SET attempts = 1 WHERE subject_id = ? AND status = 'running'", [id])
        return after

    def end_job(self, id: str, status: str, error: str | None = None) -> JobRow:
        """End a job, and its unfinished turn or reading with it; a finished job stays as it is.

        Args:
            status: done, failed or cancelled. A cancelled reading is paused if some of it was read, so that it can
                be continued.
        """
        with self._write():
            job = self.job(id)
            if job.status in UNDER_WAY:
                self.update_job(id, status=status, error=error)
                self._end_subject(job.subject_id, status, error)
        return self.job(id)

    def request_cancel(self, id: str) -> JobRow:
        """Ask a job to stop. A queued job is cancelled at once; a finished one stays as it is."""
        with self._write():
            job = self.job(id)
            if job.status == "queued":
                self._update("job", id, {"cancel_requested": 1})
                self.end_job(id, "cancelled")
            elif job.status == "running":
                self._update("job", id, {"cancel_requested": 1})
        return self.job(id)

    def cancel_requested(self, id: str) -> bool:
        """Return whether the worker should stop, because it was asked to or the job is gone."""
        rows = self._rows("SELECT cancel_requested FROM jobs WHERE id = ?", [id])
        return not rows or bool(rows[0]["cancel_requested"])

    def heartbeat(self, worker: str) -> None:
        """Record that a worker of this process is alive, and remove dead workers.

        Processes that cannot inspect this one rely on the record.
        """
        with self._write(passing=True) as db:
            db.table("workers").upsert({"name": worker, "owner": stamp(), "heartbeat_at": time.time()}, pk="name")
            for dead in [each for each in self.workers() if not each.alive]:
                db.execute("DELETE FROM workers WHERE name = ?", [dead.name])

    def workers(self) -> list[WorkerRow]:
        """Return all workers that claimed a job or sent a heartbeat, most recent first."""
        rows = self._rows("SELECT * FROM workers ORDER BY heartbeat_at DESC")
        return [make_row(WorkerRow, {**row, "alive": is_alive(row["owner"], row["heartbeat_at"])}) for row in rows]

    def requeue_interrupted(self) -> list[JobRow]:
        """Recover from dead processes; also done when a store is opened.

        Running jobs of dead workers are queued again with their progress, so that a reading continues from its last
        checkpoint. They end instead if they were asked to stop, or after MAX_ATTEMPTS without a new checkpoint. The job
        of a turn is not repeated: the turn keeps its partial answer and becomes failed (or cancelled). Turns and
        readings without a job and without a live process become failed and paused.

        Returns:
            The jobs that were queued again.
        """
        requeued = []
        with self._write():
            for row in self._dead_jobs():
                cancelled, is_turn = bool(row["cancel_requested"]), row["subject_id"].startswith("t-")
                if not cancelled and not is_turn and row["attempts"] < MAX_ATTEMPTS:
                    self._update("job", row["id"], {"status": "queued", "owner": None, "updated_at": time.time()})
                    requeued.append(row["id"])
                    continue
                status, error = ("cancelled", None) if cancelled else ("failed", INTERRUPTED)
                if not cancelled and not is_turn:
                    error = f"The program stopped {row['attempts']} times while working on this; it is not tried again."
                self.end_job(row["id"], status, error)
            self._end_orphans()
        return [self.job(id) for id in requeued]

    def _dead_jobs(self) -> list[dict[str, Any]]:
        rows = self._rows("""
            SELECT jobs.*, max(jobs.updated_at, coalesce(drafts.updated_at, 0)) AS seen_at FROM jobs
            LEFT JOIN turns ON turns.id = jobs.subject_id LEFT JOIN drafts ON drafts.turn_key = turns.key
            WHERE jobs.status = 'running' ORDER BY jobs.key""")
        return [row for row in rows if not self._is_alive(row["owner"], row["seen_at"])]

    def _without_jobs(self) -> list[dict[str, Any]]:
        """Return turns being answered and contexts being read without a job (as by the command line).

        Keys: id, owner, alive.
        """
        active = f"(SELECT subject_id FROM jobs WHERE status IN {UNDER_WAY})"
        rows = self._rows(f"""
            SELECT turns.id, turns.owner, coalesce(drafts.updated_at, turns.created_at) AS seen_at FROM turns
            LEFT JOIN drafts ON turn_key = turns.key WHERE status = 'answering' AND turns.id NOT IN {active}
            UNION ALL
            SELECT id, owner, updated_at FROM contexts WHERE status = 'reading' AND id NOT IN {active}""")
        return [{**row, "alive": self._is_alive(row["owner"], row["seen_at"])} for row in rows]

    def _held_by_others(self, subjects: Sequence[str]) -> list[str]:
        """Return those of these turns and contexts that another live process works on without a job."""
        held = (row for row in self._without_jobs() if row["alive"] and row["owner"] != stamp())
        return [row["id"] for row in held if row["id"] in subjects]

    def _end_orphans(self) -> None:
        for row in self._without_jobs():
            if row["alive"]:
                continue
            if kind_of(row["id"]) == "turn":
                self._end_turn(row["id"], "failed", INTERRUPTED)
            else:
                self.update_context(row["id"], status="paused")

    def _end_subject(self, id: str, status: str, error: str | None) -> None:
        self._end_turn(id, status, error)
        with self._write() as db:
            db.execute(
                "UPDATE contexts SET error = :error, updated_at = :now, status = CASE WHEN :status = 'failed' "
                "THEN 'failed' WHEN tokens_read > 0 THEN 'paused' ELSE 'cancelled' END "
                "WHERE id = :id AND status = 'reading'",
                {"id": id, "status": status, "error": error, "now": time.time()},
            )

    def _end_turn(self, turn_id: str, status: str, error: str | None) -> None:
        if self._rows("SELECT 1 FROM turns WHERE id = ? AND status = 'answering'", [turn_id]):
            self.finish_turn(turn_id, status=status, error=error)
