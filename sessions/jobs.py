"""Jobs: work that one worker claims, reports on and may be asked to stop; and what is done when a worker dies."""

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
    """What is to be done."""

    def add_job(
        self,
        kind: str,
        subject_id: str,
        payload: dict[str, Any] | None = None,
        progress: dict[str, Any] | None = None,
    ) -> JobRow:
        """Queue work. `subject_id` is the context, session or turn it is about, and goes with it when deleted."""
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
        """Queue a context to be read, and set it to "reading"; a job of this kind that is queued or running stays.

        Where that was asked to stop, it is no longer: its worker goes on, or has stopped already and queues it again.

        Raises:
            AlreadyRead: it has been read to its end.
            InUse: another process reads it without a job.
        """
        with self._write():
            self._check_unread(context_id)  # also where the job that read it is about to end
            if job := self.work_on(context_id, kind):
                self._update("job", job.id, {"cancel_requested": 0})
                return self.job(job.id)
            if self._held_by_others([context_id]):
                raise InUse(f"Another program is reading {context_id}: wait for it, or stop it there first.")
            self.update_context(context_id, status="reading", error=None)
            return self.add_job(kind, context_id)

    def take_reading(self, context_id: str) -> ContextRow:
        """Set a context to "reading", by this process and without a job, one in the queue too; one that is ready stays.

        Raises:
            InUse: it is being read, or the job that read it is yet to end.
        """
        with self._write():
            self.requeue_interrupted()  # so that a job that runs is of somebody alive
            for job in self.jobs(status="queued", subject_id=context_id):
                self.request_cancel(job.id)
            row = self.context(context_id)
            if row.status == "ready":
                return row
            if row.status == "reading" or self.work_on(context_id):
                raise InUse(f"This is being read right now (context {context_id}); wait for it, or cancel it first.")
            return self.update_context(context_id, status="reading")

    def job(self, id: str) -> JobRow:
        """One job; NotFound if there is none with this id."""
        return make_row(JobRow, self._one("SELECT * FROM jobs WHERE id = ?", id, "job"))

    def jobs(self, status: str | None = None, subject_id: str | None = None, kind: str | None = None) -> list[JobRow]:
        """Jobs, oldest first, with this status and subject if given."""
        wanted = {"status = ?": status, "subject_id = ?": subject_id, "kind = ?": kind}
        given = {clause: value for clause, value in wanted.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        return [
            make_row(JobRow, row) for row in self._rows(f"SELECT * FROM jobs {where} ORDER BY key", [*given.values()])
        ]

    def work_on(self, subject_id: str, kind: str | None = None) -> JobRow | None:
        """The job (of a kind, if given) that is queued or running for a subject."""
        jobs = self.jobs(subject_id=subject_id, kind=kind)
        return next((job for job in reversed(jobs) if job.status in UNDER_WAY), None)

    def next_job(self, worker: str, kind: str | None = None) -> JobRow | None:
        """Claim the oldest queued job (of a kind, if given) that this worker can do; None if there is none.

        Two workers never get the same job. A turn is not for anybody before those ahead of it are answered; a job whose
        payload has a `holder` is for that process alone, by its `stamp`, for as long as it lives.
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
        """As `processes.is_alive`; where it cannot be looked at, a heartbeat of its workers is a sign of life too."""
        (beat,) = self._rows("SELECT max(heartbeat_at) AS at FROM workers WHERE owner = ?", [owner])
        return is_alive(owner, max(seen_at, beat["at"] or 0.0))

    def _is_for_others(self, row: dict[str, Any]) -> bool:
        holder = json.loads(row["payload"]).get("holder")
        return holder not in (None, stamp()) and self._is_alive(holder, row["updated_at"])

    def is_behind(self, turn_id: str) -> bool:
        """Whether another turn of the same session has to end first.

        That is an earlier one that somebody alive has asked or answers, and a later one that somebody alive answers:
        it may be, where the program that was to answer this one first has died.
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
        behind = False  # whether somebody alive waits for an earlier turn, or answers it
        for row in rows:
            asked, answered = (self._is_alive(owner, row["seen_at"]) for owner in (row["owner"], row["worker"]))
            if row["id"] == turn_id:
                if behind:
                    return True
            elif answered or (asked and row["job"] is None and not behind):  # without a job: its turn has come
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
        """Report on a job; what is None stays as it is. A job that has ended does not begin again.

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
        """Queue a job that was claimed again, for whoever comes next; that it was claimed does not count."""
        with self._write() as db:
            self.update_job(id, status="queued")
            db.execute("UPDATE jobs SET owner = NULL, attempts = max(0, attempts - 1) WHERE id = ?", [id])
        return self.job(id)

    def update_context(self, id: str, **changes: Any) -> ContextRow:
        """As without jobs; where more has been read, the attempts before no longer count against the job at it."""
        with self._write() as db:
            before = self.context(id)
            after = super().update_context(id, **changes)
            if after.tokens_read > before.tokens_read:
                db.execute("UPDATE jobs SET attempts = 1 WHERE subject_id = ? AND status = 'running'", [id])
        return after

    def end_job(self, id: str, status: str, error: str | None = None) -> JobRow:
        """End a job, and with it the turn or the reading that it leaves unfinished; one that has ended stays as it is.

        Args:
            status: done, failed or cancelled. What was read of a cancelled reading can be gone on with: it is paused.
        """
        with self._write():
            job = self.job(id)
            if job.status in UNDER_WAY:
                self.update_job(id, status=status, error=error)
                self._end_subject(job.subject_id, status, error)
        return self.job(id)

    def request_cancel(self, id: str) -> JobRow:
        """Ask for a job to stop. One that nobody has claimed is cancelled at once; one that has ended stays."""
        with self._write():
            job = self.job(id)
            if job.status == "queued":
                self._update("job", id, {"cancel_requested": 1})
                self.end_job(id, "cancelled")
            elif job.status == "running":
                self._update("job", id, {"cancel_requested": 1})
        return self.job(id)

    def cancel_requested(self, id: str) -> bool:
        """Whether the worker should stop: it was asked to, or the job is gone."""
        rows = self._rows("SELECT cancel_requested FROM jobs WHERE id = ?", [id])
        return not rows or bool(rows[0]["cancel_requested"])

    def heartbeat(self, worker: str) -> None:
        """Say that a worker of this process is there, also to who cannot look at the process; forget who went."""
        with self._write(passing=True) as db:
            db.table("workers").upsert({"name": worker, "owner": stamp(), "heartbeat_at": time.time()}, pk="name")
            for dead in [each for each in self.workers() if not each.alive]:
                db.execute("DELETE FROM workers WHERE name = ?", [dead.name])

    def workers(self) -> list[WorkerRow]:
        """Everybody who claimed a job or gave a heartbeat, the most recent first."""
        rows = self._rows("SELECT * FROM workers ORDER BY heartbeat_at DESC")
        return [make_row(WorkerRow, {**row, "alive": is_alive(row["owner"], row["heartbeat_at"])}) for row in rows]

    def requeue_interrupted(self) -> list[JobRow]:
        """Put right what dead processes left behind; also done when a store is opened.

        Running jobs of dead workers are queued again, with their progress, so that a reading goes on from its last
        checkpoint; after MAX_ATTEMPTS without a new one, or if they were asked to stop, they end. A job whose subject
        is a turn is not repeated: the turn keeps its partial answer and is failed (or cancelled). Turns and readings
        that nobody alive works on and no job waits for end as failed and paused.

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
        """Turns being answered and contexts being read that no job is for, as by the command line: id, owner, alive."""
        active = f"(SELECT subject_id FROM jobs WHERE status IN {UNDER_WAY})"
        rows = self._rows(f"""
            SELECT turns.id, turns.owner, coalesce(drafts.updated_at, turns.created_at) AS seen_at FROM turns
            LEFT JOIN drafts ON turn_key = turns.key WHERE status = 'answering' AND turns.id NOT IN {active}
            UNION ALL
            SELECT id, owner, updated_at FROM contexts WHERE status = 'reading' AND id NOT IN {active}""")
        return [{**row, "alive": self._is_alive(row["owner"], row["seen_at"])} for row in rows]

    def _held_by_others(self, subjects: Sequence[str]) -> list[str]:
        """Those of these turns and contexts that another process, which lives, works on without a job."""
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
