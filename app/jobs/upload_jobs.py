"""Jobs of uploads: turn files into documents, and prepare a context from them or from kept documents.

Threads of their own open and encode files, so that a broken or encrypted file is reported at once, even during a long
reading. Several uploads are processed at a time, so that a slow file delays only its own upload.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from app.asking.turns import branch, said_in
from app.errors import AppError, phrase
from app.formatting import plural, whole_percent
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
from app.jobs.work import Stopped
from app.reading import readings
from app.reading.documents import LEFT_OUT, Added, IngestOptions, OnPage, add_documents
from app.reading.preparing import prepare, prepare_more
from app.reading.progress import Report
from app.service import Service
from ingest import PasswordNeeded, WrongPassword, fingerprint
from ingest.formats import formats_once
from sessions import UNDER_WAY, DocumentRow, JobRow, NotFound, stamp

UPLOAD = "upload"
UPLOAD_THREADS = 3
"""Uploads that are processed at a time; each has a process of its own that extracts text."""
LOOK_AT_FETCH_SEC = 0.5
FETCHING = "fetching the model"
"""Stage of an upload whose model is being fetched."""
NOT_FETCHED = "The model that was to read this was not fetched: read it with another, or get that one again."
LOCKED = (PasswordNeeded, WrongPassword)
"""Errors of an encrypted file without its password."""


class Upload(NamedTuple):
    """An upload that is ready to be read. rest: the work that needs the model."""

    job: JobRow
    rest: Generator[None]


class UploadJobs(JobRunner):
    """A job runner that processes uploads."""

    def __init__(self, service: Service) -> None:
        """Prepare the threads. service: the home to work for."""
        super().__init__(service)
        self._wake_intake = threading.Event()
        self._waiting: dict[str, Upload] = {}  # uploads that wait for the model by job id, oldest first
        self._passwords: dict[str, str] = {}  # by job id; never on disk

    def _call(self) -> None:
        """Wake every thread: there may be a job."""
        super()._call()
        self._wake_intake.set()

    # Public methods: called from any thread.

    def ingest(
        self,
        files: list[Path],
        method: str,
        settings: dict[str, Any],
        options: IngestOptions,
        model: str | None = None,
        wait: bool = False,
        documents: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> JobRow:
        """Queue files to be ingested and read. They are removed afterwards, so pass copies in the home.

        Args:
            files: copies of the files, in the home.
            method: name of the method.
            settings: its settings.
            options: options for turning files into documents.
            model: name of the model; None for the default one.
            wait: whether to keep all files until a missing password is given, even if other files could be read. If
                False,
                nobody is asked, and encrypted files are removed with the others.
            documents: ids of kept documents to read before the files.
            facts: more to keep in the payload of the job.
        """
        how = {"method": method, "settings": settings, "model": model, **(facts or {})}
        return self._queue(files, options, wait, documents, how)

    def add(
        self,
        files: list[Path],
        context_id: str,
        options: IngestOptions,
        wait: bool = False,
        documents: Sequence[str] = (),
        session: str | None = None,
    ) -> JobRow:
        """Queue files to be read after the end of a context, with its model and method.

        Args:
            files: copies of the files, in the home.
            context_id: the context to continue.
            options: options for turning files into documents.
            wait: see `ingest`.
            documents: ids of kept documents to read before the files.
            session: conversation over that context to continue over the new one.
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
        """Queue the job of an upload. made: documents that an earlier job has made of it."""
        if password is not None:
            payload = {**payload, "holder": stamp()}  # only this process knows the password
        with self.service.store.transaction():  # before another thread can take the job
            job = self.service.store.jobs.add(INGEST, UPLOAD, payload, {"documents": list(made)})
            if password is not None:
                self._passwords[job.id] = password
        return job

    def unlock(self, job_id: str, password: str | None) -> JobRow:
        """Queue an upload again that waits for a password. With None, leave out the files that need one.

        Raises:
            AppError: its files are gone.
        """
        with self.service.store.transaction():
            job = self.service.store.jobs.get(job_id)
            if not is_locked(self.service, job):
                raise AppError("That upload is not here any more: drop the file in again, with its password.")
            payload = {"since": job.started_at, **job.payload}
            payload["wait"] = bool(job.payload.get("wait")) and password is not None
            payload["refused"] = [] if password is not None else job.progress["sha256"]
            self.service.store.jobs.update(job_id, progress={"dismissed": True})
            job = self._queue_ingest(payload, password, job.progress["documents"])
        self._call()
        return job

    def cancel(self, job_id: str) -> JobRow:
        """Ask a job to stop. An upload that has not started is discarded."""
        job = self.service.store.jobs.request_cancel(job_id)
        self._let_go(job_id)
        if job.kind == INGEST and job.status == "cancelled":
            self._passwords.pop(job.id, None)
            discard(self.service, job)
        return job

    # The work: upload threads prepare, the main thread uses the model.

    def _take_in(self) -> None:
        """Turn the files of uploads into documents and tokens until the model is needed. Runs in a thread of
        its own.
        """
        self._work(self._wake_intake, self.take_in_once)

    def take_in_once(self) -> bool:
        """Turn the files of the next upload into documents. Return whether there was one."""
        for job_id in list(self._waiting):
            if self.service.store.jobs.cancel_requested(job_id):
                self._let_go(job_id)
        job = self._claimed(INGEST)
        if job is None:
            return False
        self._do(job, self._make_ready)
        return True

    def _make_ready(self, job: JobRow) -> None:
        rest = self._ingest(job)
        for _ in rest:  # yields at most once
            self._waiting[job.id] = Upload(job, rest)
            self._wake.set()
            return

    def _next_waiting(self) -> Upload | None:
        """Take the upload that has waited longest for the model, or None."""
        job_id = next(iter(self._waiting), "")
        return self._waiting.pop(job_id, None)

    def _let_go(self, job_id: str) -> None:
        """End an upload that waits for the model, if it still does."""
        if upload := self._waiting.pop(job_id, None):
            upload.rest.close()

    def _let_go_all(self) -> None:
        """End all uploads that wait for the model."""
        for job_id in list(self._waiting):
            self._taken(partial(self._let_go, job_id))

    def _ingest(self, job: JobRow) -> Generator[None]:
        """Process an upload. Yields once if the model is needed; the rest runs in the thread that uses the model."""
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
            if self._stopping.is_set() or store.jobs.cancel_requested(job.id):
                raise Stopped

        def made() -> list[str]:
            return list(dict.fromkeys([*job.progress.get("documents", []), *(row.id for row in added.documents)]))

        def so_far() -> dict[str, Any]:
            left_out = formats_once([phrase(each) for each in added.failures])
            return {"documents": made(), **({"left_out": left_out} if left_out else {})}

        def on_page(name: str, done: int, total: int) -> None:
            nonlocal last
            look_for_stop()
            if time.monotonic() - last > 0.2 or done == total:
                last = time.monotonic()
                store.jobs.update(job.id, stage=f"extracting text: {name}", done=done, total=total, progress=so_far())

        def on_stage(report: Report) -> None:
            look_for_stop()
            store.jobs.update(job.id, stage=report.stage)

        try:
            wanted = payload.get("documents", [])
            kept = store.documents.existing(wanted)
            if len(kept) < len(wanted):
                added.warnings.append(f"{LEFT_OUT}{plural(len(wanted) - len(kept), 'document')} deleted meanwhile.")
            if not (kept or files):
                raise AppError("The documents were deleted before they were read.")
            self._add_documents([*kept, *files], options, on_page, added, bool(payload.get("wait")))
            store.jobs.update(job.id, progress=so_far())
            ids = [row.id for row in added.documents]
            if base is not None:
                prepared = prepare_more(self.service, base, ids, on_stage)
            else:
                model = self._wait_for_model(job, look_for_stop)
                prepared = prepare(self.service, ids, payload["method"], payload["settings"], model, on_stage)
            context = readings.find_finished(self.service, prepared, added.warnings, added.title)
            if context is None:
                store.jobs.update(job.id, stage=WAITING)
                yield
                context = readings.begin(self.service, prepared, added.warnings, on_stage, added.title)
        except (Stopped, GeneratorExit):
            self._leave(job)
        except LOCKED:
            locked = bool(payload.get("wait"))
            if locked:  # the files stay, so that only a password is missing
                used = {row.sha256 for row in added.documents}
                hashes = [each for each in map(fingerprint, files) if each not in used]
                others = formats_once([phrase(each) for each in added.failures if not isinstance(each, LOCKED)])
                progress = {"locked": True, "sha256": hashes, "documents": made(), "left_out": others}
                store.jobs.update(job.id, progress=progress)
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
                if not failed:  # documents of a failed upload may be read in another way
                    forget_unread(self.service, made(), job)

    def _wait_for_model(self, job: JobRow, look_for_stop: Callable[[], None]) -> str | None:
        """Return the name of the model that reads an upload, once it has been fetched. None is the default one.

        Raises:
            AppError: it was not fetched.
            Stopped: the upload is stopped meanwhile.
        """
        store, awaited = self.service.store, job.payload.get("fetch")
        while awaited is not None:
            look_for_stop()
            try:
                fetch = store.jobs.get(awaited)
            except NotFound:
                raise AppError(NOT_FETCHED) from None
            if fetch.status == "done":
                return str(fetch.progress["model"])
            if fetch.status not in UNDER_WAY:
                raise AppError(f"{NOT_FETCHED} {fetch.error or ''}".strip())
            share = whole_percent(fetch.done / fetch.total if fetch.total else 0.0)
            store.jobs.update(job.id, stage=f"{FETCHING}: {share}")
            self._stopping.wait(LOOK_AT_FETCH_SEC)
        return cast(str | None, job.payload["model"])

    def _hand_over(self, job: JobRow, context_id: str) -> None:
        """Queue the reading of an upload's context, and end the upload's job with the ids of both."""
        store, made = self.service.store, {"context": context_id}
        try:
            with store.transaction():
                if along := job.payload.get("session"):
                    with suppress(NotFound):  # deleted meanwhile
                        self._take_along(along, context_id)
                if store.contexts.get(context_id).status != "ready":
                    made["reading"] = self.read(context_id).id
                if "reading" in made and store.jobs.cancel_requested(job.id):  # cancelled while the model was loaded
                    store.jobs.request_cancel(made["reading"])
                store.jobs.update(job.id, stage="done", progress=made)
                store.jobs.end(job.id, "done")
        except NotFound as error:  # the context was deleted
            store.jobs.end(job.id, "failed", phrase(error))

    def _take_along(self, session_id: str, context_id: str) -> None:
        """Continue a conversation over another context, unless a session there begins with the same turns."""
        store = self.service.store
        before = said_in(store.turns.all(session_id))
        there = (said_in(store.turns.all(row.id)) for row in store.sessions.all(context_id))
        if not any(said[: len(before)] == before for said in there):
            branch(self.service, session_id, store.sessions.get(session_id).turns, context_id)

    def _add_documents(
        self, sources: Sequence[Path | DocumentRow], options: IngestOptions, on_page: OnPage, added: Added, wait: bool
    ) -> None:
        """Turn files into documents; raise the error of an encrypted file if its password is waited for, or no file is
        usable.
        """
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
