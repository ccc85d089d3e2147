"""Jobs: work that one worker claims, reports on and may be asked to stop."""

import json
import time
from typing import Any

from sessions.database import Database
from sessions.errors import StoreError
from sessions.processes import stamp
from sessions.rows import ENDED, JOB_STATUSES, UNDER_WAY, JobRow, make_row, to_json
from sessions.turns import Turns
from sessions.workers import Workers


class Jobs:
    """The table of jobs."""

    def __init__(self, database: Database, workers: Workers, turns: Turns) -> None:
        self._database, self._workers, self._turns = database, workers, turns

    def add(
        self,
        kind: str,
        subject_id: str,
        payload: dict[str, Any] | None = None,
        progress: dict[str, Any] | None = None,
    ) -> JobRow:
        """Queue a job and return it. `subject_id` is its context, session or turn; deleting that deletes the job."""
        now = time.time()
        with self._database.transaction() as db:
            id = self._database.new_id("job")
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
        return self.get(id)

    def get(self, id: str) -> JobRow:
        """Return one job; NotFound if there is none with this id."""
        return make_row(JobRow, self._database.one("SELECT * FROM jobs WHERE id = ?", id, "job"))

    def all(self, status: str | None = None, subject_id: str | None = None, kind: str | None = None) -> list[JobRow]:
        """Return jobs with this status, subject and kind, if given; oldest first."""
        wanted = {"status = ?": status, "subject_id = ?": subject_id, "kind = ?": kind}
        given = {clause: value for clause, value in wanted.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        rows = self._database.rows(f"SELECT * FROM jobs {where} ORDER BY key", [*given.values()])
        return [make_row(JobRow, row) for row in rows]

    def work_on(self, subject_id: str, kind: str | None = None) -> JobRow | None:
        """Return the queued or running job of a subject (and kind, if given), or None."""
        jobs = self.all(subject_id=subject_id, kind=kind)
        return next((job for job in reversed(jobs) if job.status in UNDER_WAY), None)

    def claim(self, worker: str, kind: str | None = None) -> JobRow | None:
        """Claim the oldest queued job (of a kind, if given) that this worker may do; None if there is none.

        Two workers never get the same job. Turns of a session are answered in order. A job with a `holder` in its
        payload is reserved for the process with that stamp while it lives.
        """
        now = time.time()
        with self._database.transaction() as db:
            self._workers.heartbeat(worker)
            where, values = ("", []) if kind is None else ("AND kind = ?", [kind])
            rows = self._database.rows(f"SELECT * FROM jobs WHERE status = 'queued' {where} ORDER BY key", values)
            ours = (row for row in rows if not self._is_for_others(row) and not self.is_behind(row["subject_id"]))
            row = next(ours, None)
            if row is None:
                return None
            db.execute(
                "UPDATE jobs SET status = 'running', worker = ?, owner = ?, attempts = attempts + 1, "
                "started_at = coalesce(started_at, ?), updated_at = ? WHERE id = ?",
                [worker, stamp(), now, now, row["id"]],
            )
        return self.get(row["id"])

    def _is_for_others(self, row: dict[str, Any]) -> bool:
        holder = json.loads(row["payload"]).get("holder")
        return holder not in (None, stamp()) and self._workers.is_alive(holder, row["updated_at"])

    def is_behind(self, turn_id: str) -> bool:
        """Return whether another turn of the same session has to end first.

        That is an earlier turn that a live process waits for or answers, or a later turn that a live process answers
        (after the process that should have answered this one died).
        """
        rows = self._database.rows(
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
            asked, answered = (self._workers.is_alive(owner, row["seen_at"]) for owner in (row["owner"], row["worker"]))
            if row["id"] == turn_id:
                if behind:
                    return True
            elif answered or (asked and row["job"] is None and not behind):  # no job: it comes next
                return True
            behind = behind or asked or answered
        return False

    def update(
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
        with self._database.transaction(passing=status is None):
            before = self.get(id)
            if before.status in ENDED and status not in (None, before.status):
                raise StoreError(f"Job {id} is {before.status} and cannot become {status}; add a new job.")
            self._database.update("job", id, {**changes, "updated_at": now})
        return self.get(id)

    def release(self, id: str) -> JobRow:
        """Put a claimed job back into the queue; the claim does not count as an attempt."""
        with self._database.transaction() as db:
            self.update(id, status="queued")
            db.execute("UPDATE jobs SET owner = NULL, attempts = max(0, attempts - 1) WHERE id = ?", [id])
        return self.get(id)

    def end(self, id: str, status: str, error: str | None = None) -> JobRow:
        """End a job, and its unfinished turn or reading with it; a finished job stays as it is.

        Args:
            id: the job.
            status: done, failed or cancelled. A cancelled reading is paused if some of it was read, so that it can
                be continued.
            error: why it failed, for its subject too.
        """
        with self._database.transaction():
            job = self.get(id)
            if job.status in UNDER_WAY:
                self.update(id, status=status, error=error)
                self._end_subject(job.subject_id, status, error)
        return self.get(id)

    def request_cancel(self, id: str) -> JobRow:
        """Ask a job to stop. A queued job is cancelled at once; a finished one stays as it is."""
        with self._database.transaction():
            job = self.get(id)
            if job.status == "queued":
                self._database.update("job", id, {"cancel_requested": 1})
                self.end(id, "cancelled")
            elif job.status == "running":
                self._database.update("job", id, {"cancel_requested": 1})
        return self.get(id)

    def cancel_requested(self, id: str) -> bool:
        """Return whether the worker should stop, because it was asked to or the job is gone."""
        rows = self._database.rows("SELECT cancel_requested FROM jobs WHERE id = ?", [id])
        return not rows or bool(rows[0]["cancel_requested"])

    def delete(self, *ids: str) -> None:
        """Delete finished jobs; their subjects stay.

        Raises:
            StoreError: a job has not ended.
        """
        with self._database.transaction() as db:
            for id in ids:
                if (job := self.get(id)).finished_at is None:
                    raise StoreError(f"Job {id} is {job.status}: cancel it, or wait for it, then delete.")
                db.execute("DELETE FROM measurements WHERE subject_id = ?", [id])
                db.execute("DELETE FROM jobs WHERE id = ?", [id])
        self._database.empty_log()

    def _end_subject(self, id: str, status: str, error: str | None) -> None:
        self._end_turn(id, status, error)
        with self._database.transaction() as db:
            db.execute(
                "UPDATE contexts SET error = :error, updated_at = :now, status = CASE WHEN :status = 'failed' "
                "THEN 'failed' WHEN tokens_read > 0 THEN 'paused' ELSE 'cancelled' END "
                "WHERE id = :id AND status = 'reading'",
                {"id": id, "status": status, "error": error, "now": time.time()},
            )

    def _end_turn(self, turn_id: str, status: str, error: str | None) -> None:
        if self._database.rows("SELECT 1 FROM turns WHERE id = ? AND status = 'answering'", [turn_id]):
            self._turns.finish(turn_id, status=status, error=error)
