"""Claims: the jobs that a worker has taken from the store, from their beginning to their end.

A job that fails ends alone, with a sentence. What other programs left that died is put right, and how a job ended is
told to a store that could not take it (a full disk, a locked database) until it does.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from app.errors import AppError, expected, log_error, phrase
from app.service import Service
from sessions import JobRow, NotFound, StoreError

READ = "read"
"""The kind of a reading's job."""
IDLE_SEC = 0.5
LOOK_SEC = 10.0
"""How often the worker cleans up after dead processes, and says that it is alive."""

log = logging.getLogger(__name__)


class JobRunner(threading.Thread):
    """A thread that claims jobs until it is told to stop; what it does with them comes on top of this."""

    def __init__(self, service: Service) -> None:
        """service: the home to work for."""
        super().__init__(name=f"worker-{os.getpid()}-{secrets.token_hex(2)}", daemon=True)  # one of its home's several
        self.service = service
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._late: list[Callable[[], object]] = []  # writes that the store is still to take
        self._late_lock = threading.Lock()
        self._look_at = 0.0

    def _call(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def read(self, context_id: str) -> JobRow:
        """Queue a reading that was begun; one that is queued or running goes on, also if it was asked to stop.

        Raises:
            sessions.AlreadyRead: it is finished.
            sessions.InUse: another program is at it.
        """
        job = self.service.store.add_reading(READ, context_id)
        self._call()
        return job

    def stop(self, timeout_sec: float = 20.0) -> None:
        """Let the job at hand save its checkpoint, then end the thread."""
        self._stopping.set()
        self._call()
        if self.is_alive():
            self.join(timeout_sec)

    def _beat(self) -> None:
        """Let others of this home know of the worker, however long what it does takes."""
        while True:
            self._taken(lambda: self.service.store.heartbeat(self.name))
            if self._stopping.wait(LOOK_SEC):
                return

    def _work(self, reload: threading.Event, work_once: Callable[[], bool]) -> None:
        while not self._stopping.is_set():
            reload.clear()
            try:
                if work_once():
                    continue
            except Exception:
                # The store itself failed (a full disk, a locked database): wait, and look again.
                log.exception("the worker could not claim a job")
                time.sleep(IDLE_SEC)
            reload.wait(IDLE_SEC)

    def _claimed(self, kind: str) -> JobRow | None:
        store = self.service.store
        return store.next_job(self.name, kind) if store.jobs(status="queued", kind=kind) else None

    def _do(self, job: JobRow, do: Callable[[JobRow], object]) -> None:
        try:
            do(job)
        except NotFound as error:
            log.info("job %s has lost its subject: %s", job.id, error)
            self._end(job, "failed", phrase(error))
        except Exception as error:
            log_error(log, f"job {job.id} failed", error)
            if threading.current_thread() is self and not isinstance(error, AppError | StoreError):
                self.service.forget_open()  # after an out-of-memory above all
            self._end(job, "failed", phrase(error))

    def _end(self, job: JobRow, status: str, error: str | None = None) -> None:
        """End a job, with the turn or reading that it left unfinished, as soon as the store takes that."""
        self._write(lambda: self.service.store.end_job(job.id, status, error))

    def _leave(self, job: JobRow) -> None:
        """End a job that was asked to stop; one that makes room, or whose program ends, is queued again."""
        if self.service.store.cancel_requested(job.id):
            self._end(job, "cancelled")
        else:
            self.service.store.release_job(job.id)

    def _write(self, write: Callable[[], object]) -> None:
        """Write what must not be lost: now, or when the store can."""
        with self._late_lock:
            if self._late or not self._taken(write):  # after what waits already
                self._late.append(write)

    def _taken(self, write: Callable[[], object]) -> bool:
        try:
            with suppress(NotFound):  # deleted meanwhile
                write()
        except Exception as error:
            log.warning("the store cannot be written to now: %s", error, exc_info=None if expected(error) else error)
            return False
        return True

    def _put_right(self) -> None:
        """Now and then: write what the store could not take, end what processes that died left unfinished, and let go
        of what others deleted.
        """
        if time.monotonic() >= self._look_at:
            with self._late_lock:
                self._late = [write for write in self._late if not self._taken(write)]
            self._taken(self.service.store.requeue_interrupted)
            self._taken(self.service.forget_deleted)
            self._look_at = time.monotonic() + LOOK_SEC
