"""Intake: the files of uploads become documents, and these, or others that are kept, a context to be read.

Files are opened and turned into tokens in threads beside the one that uses the model, so that nobody waits for a long
reading to hear that one is encrypted or broken, and the model for nothing but its turn. Several uploads are taken in
at a time, so that a slow file holds up none but those uploaded with it.
"""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from app.asking.turns import branch, said_in
from app.errors import AppError, phrase
from app.formatting import plural
from app.jobs.job_runner import JobRunner
from app.jobs.uploads import (
    INGEST,
    WAITING,
    discard,
    discard_locked,
    files_of,
    forget_unread,
    is_locked,
    remove_uploads,
)
from app.reading import readings
from app.reading.documents import LEFT_OUT, Added, IngestOptions, OnPage, add_documents
from app.reading.preparing import prepare, prepare_more
from app.reading.progress import Report
from app.reading.readings import Stopped
from app.service import Service
from ingest import PasswordNeeded, WrongPassword, fingerprint
from sessions import DocumentRow, JobRow, NotFound, stamp

UPLOAD = "upload"
UPLOAD_THREADS = 3
"""Uploads that are taken in at a time; each has a process of its own that extracts text."""
LOCKED = (PasswordNeeded, WrongPassword)
"""What an encrypted file ends with until it is given its password."""


class Upload(NamedTuple):
    """An upload that is ready to be read, and what is to be done once the model is at hand."""

    job: JobRow
    rest: Generator[None]


class UploadJobs(JobRunner):
    """Takes uploads in."""

    def __init__(self, service: Service) -> None:
        """service: the home to work for."""
        super().__init__(service)
        self._wake_intake = threading.Event()
        self._waiting: dict[str, Upload] = {}  # for the model, by their jobs, oldest first
        self._passwords: dict[str, str] = {}  # of uploads, by their jobs; never on disk

    def _call(self) -> None:
        """There may be something to do, for every thread."""
        super()._call()
        self._wake_intake.set()

    # Asking for work: called from any thread.

    def ingest(
        self,
        files: list[Path],
        method: str,
        settings: dict[str, Any],
        options: IngestOptions,
        model: str | None = None,
        wait: bool = False,
        documents: Sequence[str] = (),
    ) -> JobRow:
        """Queue files to be ingested and read. They are removed afterwards: pass copies in the home.

        Args:
            documents: ids of some that are kept already, to be read before the files, or without any.
            wait: for the password of an encrypted one, with all of them, even if the others could be read without it.
                Otherwise nobody will be asked, and they go also where a password is missing or wrong.
        """
        return self._queue(files, options, wait, documents, {"method": method, "settings": settings, "model": model})

    def add(
        self,
        files: list[Path],
        context_id: str,
        options: IngestOptions,
        wait: bool = False,
        documents: Sequence[str] = (),
        session: str | None = None,
    ) -> JobRow:
        """Queue files to be read behind what a context has read, as it has been read; else as `ingest`.

        session: a conversation over that context, which is to go on over the new one.
        """
        return self._queue(files, options, wait, documents, {"add_to": context_id, "session": session})

    def _queue(
        self, files: list[Path], options: IngestOptions, wait: bool, documents: Sequence[str], how: dict[str, Any]
    ) -> JobRow:
        payload = {
            "files": [str(path.relative_to(self.service.home)) for path in files],
            "documents": list(documents),
            "title": options.title,
            "ocr": options.ocr,
            "wait": wait,
            **how,
        }
        try:
            job = self._queue_ingest(payload, options.password)
        except BaseException:
            remove_uploads(files, self.service.home)
            raise
        self._call()
        return job

    def _queue_ingest(self, payload: dict[str, Any], password: str | None, made: Sequence[str] = ()) -> JobRow:
        """made: the documents that have been made of it before."""
        if password is not None:
            payload = {**payload, "holder": stamp()}  # nobody else knows it
        with self.service.store.together():  # before anybody can claim the job
            job = self.service.store.add_job(INGEST, UPLOAD, payload, {"documents": list(made)})
            if password is not None:
                self._passwords[job.id] = password
        return job

    def unlock(self, job_id: str, password: str | None) -> JobRow:
        """Queue an upload again that waits for a password; with None, to be read without the files that need one.

        Raises:
            AppError: its files are not kept any more.
        """
        with self.service.store.together():
            job = self.service.store.job(job_id)
            if not is_locked(self.service, job):
                raise AppError("That upload is not here any more: drop the file in again, with its password.")
            payload = {"since": job.started_at, **job.payload}
            payload["wait"] = bool(job.payload.get("wait")) and password is not None
            payload["refused"] = [] if password is not None else job.progress["sha256"]
            self.service.store.update_job(job_id, progress={"dismissed": True})
            job = self._queue_ingest(payload, password, job.progress["documents"])
        self._call()
        return job

    def cancel(self, job_id: str) -> JobRow:
        """Ask for a job to stop. Of an upload that nobody has begun with, nothing is kept."""
        job = self.service.store.request_cancel(job_id)
        self._let_go(job_id)
        if job.kind == INGEST and job.status == "cancelled":
            self._passwords.pop(job.id, None)
            discard(self.service, job)
        return job

    # Doing it: the thread beside, and what is left for the one that uses the model.

    def _take_in(self) -> None:
        """Turn the files of uploads into documents and tokens, up to where the model is needed, in a thread beside."""
        self._work(self._wake_intake, self._take_in_once)

    def _take_in_once(self) -> bool:
        for job_id in list(self._waiting):
            if self.service.store.cancel_requested(job_id):
                self._let_go(job_id)
        job = self._claimed(INGEST)
        if job is None:
            return False
        self._do(job, self._make_ready)
        return True

    def _make_ready(self, job: JobRow) -> None:
        rest = self._ingest(job)
        for _ in rest:  # once, unless it has come to its end
            self._waiting[job.id] = Upload(job, rest)
            self._wake.set()
            return

    def _next_waiting(self) -> Upload | None:
        """The upload that has waited longest for a model, which then waits no more."""
        job_id = next(iter(self._waiting), "")
        return self._waiting.pop(job_id, None)

    def _let_go(self, job_id: str) -> None:
        """End an upload that waits for the model, unless it does so no longer."""
        if upload := self._waiting.pop(job_id, None):
            upload.rest.close()

    def _let_go_all(self) -> None:
        """No model will come any more."""
        for job_id in list(self._waiting):
            self._taken(partial(self._let_go, job_id))

    def _ingest(self, job: JobRow) -> Generator[None]:
        """Yields once, where a model is needed to go on: what comes then is for the thread that uses it."""
        payload, store = job.payload, self.service.store
        files = files_of(self.service, job)
        base = payload.get("add_to")
        options = IngestOptions(
            payload["title"],
            self._passwords.pop(job.id, None),
            payload["ocr"],
            beside=base is not None,
            opened=frozenset(job.progress.get("documents", [])),
            refused=frozenset(payload.get("refused", [])),
        )
        last, locked, failed, added = 0.0, False, False, Added()

        def look_for_stop() -> None:
            if self._stopping.is_set() or store.cancel_requested(job.id):
                raise Stopped

        def made() -> list[str]:
            return list(dict.fromkeys([*job.progress.get("documents", []), *(row.id for row in added.documents)]))

        def so_far() -> dict[str, Any]:
            left_out = [phrase(each) for each in added.failures]
            return {"documents": made(), **({"left_out": left_out} if left_out else {})}

        def on_page(name: str, done: int, total: int) -> None:
            nonlocal last
            look_for_stop()
            if time.monotonic() - last > 0.2 or done == total:
                last = time.monotonic()
                store.update_job(job.id, stage=f"extracting text: {name}", done=done, total=total, progress=so_far())

        def on_stage(report: Report) -> None:
            look_for_stop()
            store.update_job(job.id, stage=report.stage)

        try:
            wanted = payload.get("documents", [])
            kept = store.documents(wanted)
            if len(kept) < len(wanted):
                added.warnings.append(f"{LEFT_OUT}{plural(len(wanted) - len(kept), 'document')} deleted meanwhile.")
            if not (kept or files):
                raise AppError("The documents were deleted before they were read.")
            self._add_documents([*kept, *files], options, on_page, added, bool(payload.get("wait")))
            store.update_job(job.id, progress=so_far())
            ids = [row.id for row in added.documents]
            if base is not None:
                prepared = prepare_more(self.service, base, ids, on_stage)
            else:
                how = payload["method"], payload["settings"], payload["model"]
                prepared = prepare(self.service, ids, *how, on_stage)
            context = readings.find_finished(self.service, prepared, added.warnings, added.title)
            if context is None:
                store.update_job(job.id, stage=WAITING)
                yield
                context = readings.begin(self.service, prepared, added.warnings, on_stage, added.title)
        except (Stopped, GeneratorExit):
            self._leave(job)
        except LOCKED:
            locked = bool(payload.get("wait"))
            if locked:  # the files stay, so that a password is all that is missing
                used = {row.sha256 for row in added.documents}
                hashes = [each for each in map(fingerprint, files) if each not in used]
                others = [phrase(each) for each in added.failures if not isinstance(each, LOCKED)]
                progress = {"locked": True, "sha256": hashes, "documents": made(), "left_out": others}
                store.update_job(job.id, progress=progress)
            raise
        except Exception:
            failed = True
            raise
        else:
            self._write(lambda: self._hand_over(job, context.id))
            self._taken(lambda: discard_locked(self.service, [row.sha256 for row in added.documents]))
        finally:
            if not (self._stopping.is_set() or locked):
                remove_uploads(files, self.service.home)
                if not failed:  # else what was made of it may be read in another way
                    forget_unread(self.service, made(), job)

    def _hand_over(self, job: JobRow, context_id: str) -> None:
        """An upload became a context: queue the reading, and end the upload's job with the ids of both."""
        store, made = self.service.store, {"context": context_id}
        try:
            with store.together():
                if along := job.payload.get("session"):
                    with suppress(NotFound):  # deleted meanwhile
                        self._take_along(along, context_id)
                if store.context(context_id).status != "ready":
                    made["reading"] = self.read(context_id).id
                if "reading" in made and store.cancel_requested(job.id):  # while the model was loaded
                    store.request_cancel(made["reading"])
                store.update_job(job.id, stage="done", progress=made)
                store.end_job(job.id, "done")
        except NotFound as error:  # the context was deleted, and will not come back
            store.end_job(job.id, "failed", phrase(error))

    def _take_along(self, session_id: str, context_id: str) -> None:
        """Let a conversation go on over another context, unless one there begins with all that was said in it."""
        store = self.service.store
        before = said_in(store.turns(session_id))
        there = (said_in(store.turns(row.id)) for row in store.sessions(context_id))
        if not any(said[: len(before)] == before for said in there):
            branch(self.service, session_id, store.session(session_id).turns, context_id)

    def _add_documents(
        self, sources: Sequence[Path | DocumentRow], options: IngestOptions, on_page: OnPage, added: Added, wait: bool
    ) -> None:
        """Turn files into documents. Raises the error of an encrypted one if it is waited for, or none can be used."""
        unusable: AppError | None = None
        try:
            add_documents(self.service, sources, options, on_page, added)
        except AppError as error:
            unusable = error
        for failure in added.failures:
            if isinstance(failure, LOCKED) and (wait or not added.documents):
                raise failure
        if unusable is not None:
            raise unusable
