"""A thread that fetches models from the hub, one at a time, beside readings and answers."""

import logging
import time

from app.errors import log_error, phrase
from app.jobs.job_runner import JobRunner
from app.jobs.work import Stopped
from app.machine.fetching import fetch
from app.machine.recommended import form_in
from app.service import Service
from sessions import UNDER_WAY, JobRow

FETCH = "fetch"
"""Kind of the jobs that fetch a model. Their subject is its hub id, and `done` and `total` are bytes. In the end
`progress` has the path of the model, and its name for readings."""
RECENT_SEC = 600.0
"""Time that the end of a fetch is shown."""
REPORT_SEC = 0.3
"""Least time between two reports of progress."""

log = logging.getLogger(__name__)


def last_fetch(service: Service) -> JobRow | None:
    """Return the job of the model that is being fetched, or was fetched a short while ago; None without any."""
    jobs = service.store.jobs.all(kind=FETCH)
    fresh = [job for job in jobs if job.status in UNDER_WAY or time.time() - job.updated_at < RECENT_SEC]
    return fresh[-1] if fresh else None


class ModelFetcher(JobRunner):
    """Fetches models until it is told to stop. What has come of one stays, and the next try goes on from there."""

    def fetch(self, name: str, *, mirror: bool = False, choose: bool = False) -> JobRow:
        """Queue a model to be fetched; one that is under way stays as it is.

        Args:
            name: see `fetching.fetch`.
            mirror: see `fetching.fetch`.
            choose: whether to make it the model for new readings when it is here.
        """
        jobs = self.service.store.jobs
        with self.service.store.transaction():
            work = jobs.work_on(name, FETCH)
            if work is None or work.cancel_requested:
                jobs.delete(*(job.id for job in jobs.all(kind=FETCH) if job.status not in UNDER_WAY))
                work = jobs.add(FETCH, name, {"mirror": mirror, "choose": choose})
        self._call()
        return work

    def run(self) -> None:
        """Fetch what is asked for until stopped."""
        self._work(self._wake, self._fetch_next)

    def _fetch_next(self) -> bool:
        job = self._claimed(FETCH)
        if job is None:
            return False
        self._fetch(job)
        return True

    def _fetch(self, job: JobRow) -> None:
        jobs, shown = self.service.store.jobs, 0.0

        def show(line: str, done: int = 0, total: int = 0) -> None:
            nonlocal shown
            if self._stopping.is_set() or jobs.cancel_requested(job.id):
                raise Stopped
            if time.monotonic() - shown >= REPORT_SEC or (total and done >= total):
                shown = time.monotonic()
                jobs.update(job.id, stage=line, done=done, total=total)

        try:
            mirror = bool(job.payload.get("mirror"))
            fetched = fetch(job.subject_id, self.service.home, show, mirror=mirror)
        except Stopped:
            self._leave(job)
        except Exception as error:
            log_error(log, f"{job.subject_id} was not fetched", error)
            self._end(job, "failed", phrase(error))
        else:
            in_four_bits = form_in(self.service.models.device) == "int4"  # a GPU has 4 bits of its own
            name = f"{fetched.path}:int4" if in_four_bits else fetched.path
            jobs.update(job.id, progress={"path": fetched.path, "model": name})
            if job.payload.get("choose"):
                self.service.choose_model(name)
            self._end(job, "done")
