"""Readings: a context is read by one job or by one process at a time."""

from sessions.contexts import Contexts
from sessions.database import Database
from sessions.errors import InUse
from sessions.jobs import Jobs
from sessions.recovery import Recovery
from sessions.rows import ContextRow, JobRow
from sessions.workers import Workers


class Readings:
    """Begins the reading of contexts that are not ready."""

    def __init__(
        self, database: Database, contexts: Contexts, workers: Workers, jobs: Jobs, recovery: Recovery
    ) -> None:
        self._database, self._contexts, self._workers = database, contexts, workers
        self._jobs, self._recovery = jobs, recovery

    def queue(self, kind: str, context_id: str) -> JobRow:
        """Queue the reading of a context and set it to "reading". A queued or running job of this kind is kept.

        If that job was asked to stop, the request is withdrawn: its worker continues, or has stopped and queues it
        again.

        Raises:
            AlreadyRead: the context is ready.
            InUse: another process reads it without a job.
        """
        with self._database.transaction():
            self._contexts.check_unread(context_id)  # even if its finished job has not ended yet
            if job := self._jobs.work_on(context_id, kind):
                self._database.update("job", job.id, {"cancel_requested": 0})
                return self._jobs.get(job.id)
            if self._workers.held_by_others([context_id]):
                raise InUse(f"Another program is reading {context_id}: wait for it, or stop it there first.")
            self._contexts.update(context_id, status="reading", error=None)
            return self._jobs.add(kind, context_id)

    def take(self, context_id: str) -> ContextRow:
        """Set a context to "reading" by this process, without a job, and cancel its queued jobs.

        A ready context stays ready.

        Raises:
            InUse: it is being read, or its job has not ended yet.
        """
        with self._database.transaction():
            self._recovery.run()  # so that every running job has a live worker
            for job in self._jobs.all(status="queued", subject_id=context_id):
                self._jobs.request_cancel(job.id)
            row = self._contexts.get(context_id)
            if row.status == "ready":
                return row
            if row.status == "reading" or self._jobs.work_on(context_id):
                raise InUse(f"This is being read right now (context {context_id}); wait for it, or cancel it first.")
            return self._contexts.update(context_id, status="reading")
