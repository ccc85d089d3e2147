"""A thread that runs jobs of the store from beginning to end.

A job that fails ends alone, with a sentence. Jobs of programs that died are queued again. If the store cannot be
written (a full disk, a locked database), the end of a job is written later.
"""

import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from app.errors import AppError, expected, log_error, phrase
from app.service import Service
from sessions import JobRow, NotFound, StoreError

READ = "read"
"""Kind of the jobs that read a context."""
IDLE_SEC = 0.5
"""Time between two looks whether the store was written to."""
LOOK_SEC = 10.0
"""Time between two clean-ups after dead processes, between two signs of life, and most between two looks for jobs."""

log = logging.getLogger(__name__)


class JobRunner(threading.Thread):
    """A thread that takes jobs until it is told to stop; subclasses run them."""

    def __init__(self, service: Service) -> None:
        """Prepare the thread. service: the home to work for."""
        super().__init__(name=f"worker-{os.getpid()}-{secrets.token_hex(2)}", daemon=True)  # unique in its home
        self.service = service
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._late: list[Callable[[], object]] = []  # writes that the store has not taken yet
        self._late_lock = threading.Lock()
        self._look_at = 0.0
        self._version = 0

    @property
    def version(self) -> str:
        """Return words that change soon after the store was written to, and with each start of the program."""
        return f"{self.name} {self._version}"

    def _call(self) -> None:
        """Wake the thread: there may be a job."""
        self._wake.set()

    def read(self, context_id: str) -> JobRow:
        """Queue a reading that was begun. One that is queued or running goes on, even if it was asked to stop.

        Raises:
            sessions.AlreadyRead: it is finished.
            sessions.InUse: another program is reading it.
        """
        job = self.service.store.readings.queue(READ, context_id)
        self._call()
        return job

    def stop(self, timeout_sec: float = 20.0) -> None:
        """Let the present job save its checkpoint, then end the thread."""
        self._stopping.set()
        self._call()
        if self.is_alive():
            self.join(timeout_sec)

    def _watch(self) -> None:
        """Wake the threads when the store was written to. Send signs of life to other programs of this home, however
        long a job takes, and give freed memory back.
        """
        beat_at = 0.0
        while True:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + LOOK_SEC
                self._taken(lambda: self.service.store.workers.heartbeat(self.name))
                if "engine" in sys.modules:  # before it is loaded there is little to give back
                    from engine.memory_usage import give_back

                    give_back()
            self._taken(self._notice)
            if self._stopping.wait(IDLE_SEC):
                return

    def _notice(self) -> None:
        """Wake the threads if the store was written to. Signs of life do not count, as this thread writes them."""
        version = self.service.store.version()
        if version != self._version:
            self._version = version
            self._call()

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
                continue
            reload.wait(LOOK_SEC)

    def _claimed(self, kind: str) -> JobRow | None:
        store = self.service.store
        return store.jobs.claim(self.name, kind) if store.jobs.all(status="queued", kind=kind) else None

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
        """End a job, and the turn or reading that it left unfinished, as soon as the store can be written."""
        self._write(lambda: self.service.store.jobs.end(job.id, status, error))

    def _leave(self, job: JobRow) -> None:
        """End a job that was asked to stop; queue it again if it only makes room or its program ends."""
        if self.service.store.jobs.cancel_requested(job.id):
            self._end(job, "cancelled")
        else:
            self.service.store.jobs.release(job.id)

    def _write(self, write: Callable[[], object]) -> None:
        """Write something that must not be lost, now or when the store can be written."""
        with self._late_lock:
            if self._late or not self._taken(write):  # after earlier writes
                self._late.append(write)

    def _taken(self, write: Callable[[], object]) -> bool:
        try:
            with suppress(NotFound):  # deleted meanwhile
                write()
        except Exception as error:
            log.warning("the store cannot be used now: %s", error, exc_info=None if expected(error) else error)
            return False
        return True

    def _put_right(self) -> None:
        """Write what the store could not take before, queue jobs of dead processes again, and drop deleted things from
        memory.
        """
        if time.monotonic() >= self._look_at:
            with self._late_lock:
                self._late = [write for write in self._late if not self._taken(write)]
            self._taken(self.service.store.recover)
            self._taken(self.service.forget_deleted)
            self._look_at = time.monotonic() + LOOK_SEC
