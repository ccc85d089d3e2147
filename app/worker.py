"""The worker: a thread that reads and answers, and writes what happens to the store as it goes.

Jobs are rows, so whoever asked may go away and come back. Three kinds: "ingest" (files become documents, and these or
others that are kept a context to be read), "read" and "answer". One job uses the model at a time, but a reading lets
waiting questions go first between two of its steps, and where another model is to answer, it saves a checkpoint and
waits until that is done. Files become documents in a thread beside it, so that nobody waits for a long reading to hear
that a file is encrypted or broken. A job that fails ends alone, with a sentence; a program that stops leaves its
readings queued, and they go on from their checkpoint when it starts again. What other programs left that died is put
right, and how a job ended is told to a store that could not take it (a full disk, a locked database) until it does.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from app import readings, turns
from app.answer_options import AnswerOptions
from app.documents import LEFT_OUT, Added, OnPage, Options, add_documents
from app.errors import AppError, expected, phrase
from app.progress import Report
from app.readings import Stopped
from app.service import Service
from app.uploads import EXTRACTED, INGEST, discard, discard_locked, files_of, forget_unread, is_locked, remove_uploads
from app.words import plural
from ingest import PasswordNeeded, WrongPassword, fingerprint
from sessions import DocumentRow, InUse, JobRow, NotFound, StoreError, TurnRow, stamp

READ, ANSWER = "read", "answer"
UPLOAD = "upload"
LOCKED = (PasswordNeeded, WrongPassword)
"""What an encrypted file ends with until it is given its password."""
IDLE_SEC = 0.5
LOOK_SEC = 10.0
"""How often the worker cleans up after dead processes, and says that it is alive."""
MEASURE_SEC = 1.0
"""A reading adds one measurement to its history at most this often."""
HISTORY = 400
"""Measurements that are left of a finished reading."""

log = logging.getLogger(__name__)


class Upload(NamedTuple):
    """An upload whose files have become documents, and what is to be done once a model is at hand."""

    job: JobRow
    rest: Generator[None]


class Worker(threading.Thread):
    """Claims jobs from the store until it is told to stop."""

    def __init__(self, service: Service) -> None:
        """service: the home to work for."""
        super().__init__(name=f"worker-{os.getpid()}-{secrets.token_hex(2)}", daemon=True)  # one of its home's several
        self.service = service
        self._wake = threading.Event()
        self._wake_intake = threading.Event()
        self._stopping = threading.Event()
        self._extracted: dict[str, Upload] = {}  # uploads that wait for the model, by their jobs, oldest first
        self._late: list[Callable[[], object]] = []  # writes that the store is still to take
        self._late_lock = threading.Lock()
        self._look_at = 0.0
        self._passwords: dict[str, str] = {}  # of uploads, by their jobs; never on disk

    # Asking for work: called from any thread.

    def ingest(
        self,
        files: list[Path],
        method: str,
        settings: dict[str, Any],
        options: Options,
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
        payload = {
            "files": [str(path.relative_to(self.service.home)) for path in files],
            "documents": list(documents),
            "method": method,
            "settings": settings,
            "title": options.title,
            "ocr": options.ocr,
            "model": model,
            "wait": wait,
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

    def read(self, context_id: str) -> JobRow:
        """Queue a reading that was begun; one that is queued or running goes on, also if it was asked to stop.

        Raises:
            sessions.AlreadyRead: it is finished.
            sessions.InUse: another program is at it.
        """
        job = self.service.store.add_reading(READ, context_id)
        self._call()
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

    def ask(self, session: Callable[[], str], question: str, options: AnswerOptions) -> TurnRow:
        """Keep a question and queue it, in one step.

        Args:
            session: gives the id of the session, which may be found or made for the question: nobody else asks in it
                meanwhile, and if the question cannot be asked, nothing was made.

        Raises:
            UsageError: the question is empty, or too long.
            AppError: nothing of the context has been read yet.
        """
        store = self.service.store
        with store.together():
            turn = turns.keep_question(self.service, session(), question)
            store.add_job(ANSWER, turn.id, vars(options))
        self._call()
        return turn

    def stop_answer(self, *turn_ids: str) -> None:
        """Ask for the answers to turns to be stopped; those that have ended stay as they are.

        Raises:
            sessions.InUse: another program answers one of them, without a job; the others are stopped all the same.
        """
        store, theirs = self.service.store, []
        for id in turn_ids:
            if work := store.work_on(id, ANSWER):
                self.cancel(work.id)
            elif store.turn(id).status == "answering":
                theirs.append(id)
        if theirs:
            raise InUse(f"A command, or another program, answers {', '.join(theirs)}: stop it there (Ctrl-C).")

    def stop(self, timeout_sec: float = 20.0) -> None:
        """Let the job at hand save its checkpoint, then end the thread."""
        self._stopping.set()
        self._call()
        if self.is_alive():
            self.join(timeout_sec)

    def _call(self) -> None:
        self._wake.set()
        self._wake_intake.set()

    # Doing it: the thread itself, and the one that takes files in.

    def run(self) -> None:
        """Work until stopped; an error in one job never ends the thread."""
        beside = [threading.Thread(target=target, daemon=True) for target in (self._beat, self._take_in)]
        for thread in beside:
            thread.start()
        try:
            self._work(self._wake, self._work_once)
        finally:
            self._stopping.set()
            self._wake_intake.set()
            for thread in beside:
                thread.join()
            for job_id in list(self._extracted):
                self._taken(partial(self._let_go, job_id))

    def _beat(self) -> None:
        """Let others of this home know of the worker, however long what it does takes."""
        while True:
            self._taken(lambda: self.service.store.heartbeat(self.name))
            if self._stopping.wait(LOOK_SEC):
                return

    def _work(self, wake: threading.Event, work_once: Callable[[], bool]) -> None:
        while not self._stopping.is_set():
            wake.clear()
            try:
                if work_once():
                    continue
            except Exception:
                # The store itself failed (a full disk, a locked database): wait, and look again.
                log.exception("the worker could not claim a job")
                time.sleep(IDLE_SEC)
            wake.wait(IDLE_SEC)

    def _work_once(self) -> bool:
        """Do the next job that needs a model, questions first; whether there was one."""
        self._put_right()
        if job := self._claimed(ANSWER):
            self._do(job, self._answer)
        elif (job_id := next(iter(self._extracted), None)) and (upload := self._extracted.pop(job_id, None)):
            self._do(upload.job, lambda job: next(upload.rest, None))
        elif job := self._claimed(READ):
            self._do(job, self._read)
        else:
            return False
        return True

    def _claimed(self, kind: str) -> JobRow | None:
        store = self.service.store
        return store.next_job(self.name, kind) if store.jobs(status="queued", kind=kind) else None

    def _take_in(self) -> None:
        """The thread beside: turn the files of uploads into documents, up to where a model is needed."""
        self._work(self._wake_intake, self._take_in_once)

    def _take_in_once(self) -> bool:
        for job_id in list(self._extracted):
            if self.service.store.cancel_requested(job_id):
                self._let_go(job_id)
        job = self._claimed(INGEST)
        if job is None:
            return False
        self._do(job, self._extract)
        return True

    def _extract(self, job: JobRow) -> None:
        rest = self._ingest(job)
        for _ in rest:  # once, unless it has come to its end
            self._extracted[job.id] = Upload(job, rest)
            self._wake.set()
            return

    def _let_go(self, job_id: str) -> None:
        """End an upload that waits for the model, unless it does so no longer."""
        if upload := self._extracted.pop(job_id, None):
            upload.rest.close()

    def _do(self, job: JobRow, do: Callable[[JobRow], object]) -> None:
        try:
            do(job)
        except NotFound as error:
            log.info("job %s has lost its subject: %s", job.id, error)
            self._end(job, "failed", phrase(error))
        except Exception as error:
            log.log(
                logging.INFO if expected(error) else logging.ERROR,
                "job %s failed: %s",
                job.id,
                error,
                exc_info=None if expected(error) else error,
            )
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

    def _ingest(self, job: JobRow) -> Generator[None]:
        """Yields once, where a model is needed: what comes then is for the thread that uses it."""
        payload, store = job.payload, self.service.store
        files = files_of(self.service, job)
        options = Options(payload["title"], self._passwords.pop(job.id, None), payload["ocr"])
        last, locked, failed, added = 0.0, False, False, Added()

        def look_for_stop() -> None:
            if self._stopping.is_set() or store.cancel_requested(job.id):
                raise Stopped

        def made() -> list[str]:
            return list(dict.fromkeys([*job.progress.get("documents", []), *(row.id for row in added.documents)]))

        def on_page(name: str, done: int, total: int) -> None:
            nonlocal last
            look_for_stop()
            if time.monotonic() - last > 0.2 or done == total:
                last = time.monotonic()
                stage, progress = f"extracting text: {name}", {"documents": made()}
                store.update_job(job.id, stage=stage, done=done, total=total, progress=progress)

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
            store.update_job(job.id, stage=EXTRACTED, progress={"documents": made()})
            yield
            context = readings.begin(
                self.service,
                [row.id for row in added.documents],
                payload["method"],
                payload["settings"],
                payload["model"],
                added.warnings,
                on_stage,
                added.title,
            )
        except (Stopped, GeneratorExit):
            self._leave(job)
        except LOCKED:
            locked = bool(payload.get("wait"))
            if locked:  # the files stay, so that a password is all that is missing
                hashes = [each for each in map(fingerprint, files) if store.find_document(each) is None]
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
                if store.context(context_id).status != "ready":
                    made["reading"] = self.read(context_id).id
                if "reading" in made and store.cancel_requested(job.id):  # while the text was turned into tokens
                    store.request_cancel(made["reading"])
                store.update_job(job.id, stage="done", progress=made)
                store.end_job(job.id, "done")
        except NotFound as error:  # the context was deleted, and will not come back
            store.end_job(job.id, "failed", phrase(error))

    def _add_documents(
        self, sources: Sequence[Path | DocumentRow], options: Options, on_page: OnPage, added: Added, wait: bool
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

    def _read(self, job: JobRow) -> None:
        store, history, leaving = self.service.store, 0.0, False
        model = store.context(job.subject_id).model

        def report(now: Report) -> None:
            nonlocal history, leaving
            store.update_job(
                job.id, stage=now.stage, done=now.tokens_done, total=now.tokens_total, progress=asdict(now)
            )
            if now.usage and (time.monotonic() - history >= MEASURE_SEC or now.stage == "ready"):
                history = time.monotonic()
                store.add_measurement("reading", job.subject_id, {**asdict(now), **_memory()})
            leaving = self._answer_waiting(model)

        def should_stop() -> bool:
            return leaving or self._stopping.is_set() or store.cancel_requested(job.id)

        try:
            readings.read(self.service, job.subject_id, report, should_stop)
        except Stopped:
            if not store.cancel_requested(job.id):
                store.update_context(job.subject_id, status="reading")
            self._leave(job)
            return
        store.thin_measurements("reading", job.subject_id, HISTORY)
        self._end(job, "done")

    def _another_is_asked(self, model: str) -> bool:
        """Whether a question waits that another model is to answer, and can."""
        store = self.service.store
        for job in store.jobs(status="queued", kind=ANSWER):
            with suppress(NotFound):  # deleted meanwhile
                session = store.session(store.turn(job.subject_id).session_id)
                if store.context(session.context_id).model != model and not store.is_behind(job.subject_id):
                    return True
        return False

    def _answer_waiting(self, model: str) -> bool:
        """Let waiting questions go before the reading that calls this; it goes on however they end.

        Args:
            model: the one that reads.

        Returns:
            Whether a question waits for another model: two may not fit, so the reading makes room, and goes on later.
        """
        self._put_right()
        store = self.service.store
        while not self._stopping.is_set() and store.jobs(status="queued", kind=ANSWER):
            with store.together():  # nobody asks between the look and the claim
                if self._another_is_asked(model):
                    return True
                job = store.next_job(self.name, ANSWER)
            if job is None:
                return False
            self._do(job, self._answer)
        return False

    def _answer(self, job: JobRow) -> None:
        store = self.service.store
        asked = told = 0.0

        def should_stop() -> bool:
            nonlocal asked
            if time.monotonic() - asked < 0.1:
                return False
            asked = time.monotonic()
            return self._stopping.is_set() or store.cancel_requested(job.id)

        def on_turn(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > 0.2 or done == total:
                told = time.monotonic()
                store.update_job(job.id, done=done, total=total)

        options = AnswerOptions(**job.payload)
        turn = turns.answer(self.service, job.subject_id, options, should_stop=should_stop, on_turn=on_turn)
        self._end(job, turn.status)


def _memory() -> dict[str, int]:
    import engine

    report = engine.memory_report()
    return {"process_bytes": int(report["process_bytes"]), "gpu_bytes": int(report["gpu_bytes"])}
