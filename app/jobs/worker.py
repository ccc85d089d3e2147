"""The worker: a thread that reads and answers, and writes what happens to the store as it goes.

Jobs are rows, so whoever asked may go away and come back. Three kinds: "ingest" (`upload_jobs.py`), "read" and
"answer". One job uses the model at a time, but a reading lets waiting questions go first between two of its steps, and
where another model is to answer, it saves a checkpoint and waits until that is done. A program that stops leaves its
readings queued, and they go on from their checkpoint when it starts again.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from app.asking import turns
from app.asking.answer_options import AnswerOptions
from app.errors import AppError
from app.jobs.job_runner import READ
from app.jobs.upload_jobs import UPLOAD_THREADS, UploadJobs
from app.reading import readings
from app.reading.progress import Report
from app.reading.readings import Stopped
from sessions import INTERRUPTED, InUse, JobRow, NotFound, TurnRow

ANSWER = "answer"
MEASURE_SEC = 1.0
"""A reading adds one measurement to its history at most this often."""
HISTORY = 400
"""Measurements that are left of a finished reading."""


class Worker(UploadJobs):
    """Claims jobs from the store until it is told to stop."""

    # Asking for work: called from any thread.

    def ask(self, session: Callable[[], str], question: str, options: AnswerOptions, pages: str = "") -> TurnRow:
        """Keep a question and queue it, in one step.

        Args:
            session: gives the id of the session, which may be found or made for the question: nobody else asks in it
                meanwhile, and if the question cannot be asked, nothing was made.
            pages: see `turns.keep_question`.

        Raises:
            UsageError: the question is empty, or too long, or there are no such pages.
            AppError: nothing of the context has been read yet.
        """
        store = self.service.store
        with store.together():
            turn = turns.keep_question(self.service, session(), question, pages)
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

    # Doing it: the thread itself.

    def run(self) -> None:
        """Work until stopped; an error in one job never ends the thread."""
        targets = (self._beat, *[self._take_in] * UPLOAD_THREADS)
        beside = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in beside:
            thread.start()
        try:
            self._work(self._wake, self._work_once)
        finally:
            self._stopping.set()
            self._call()
            for thread in beside:
                thread.join()
            self._let_go_all()

    def _work_once(self) -> bool:
        """Do the next job that needs a model, questions first; whether there was one."""
        self._put_right()
        if job := self._claimed(ANSWER):
            self._do(job, self._answer)
        elif upload := self._next_waiting():
            self._do(upload.job, lambda job: next(upload.rest, None))
        elif job := self._claimed(READ):
            self._do(job, self._read)
        else:
            return False
        return True

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
        stage = ""

        def should_stop() -> bool:
            nonlocal asked
            if time.monotonic() - asked < 0.1:
                return False
            asked = time.monotonic()
            if self._stopping.is_set():  # which nobody has asked of this answer
                raise AppError(INTERRUPTED)
            return store.cancel_requested(job.id)

        def on_stage(words: str) -> None:
            nonlocal stage, told
            if words != stage and (time.monotonic() - told > 0.2 or not words):
                told, stage = time.monotonic(), words
                store.update_job(job.id, stage=words)

        options = AnswerOptions(**job.payload)
        turn = turns.answer(self.service, job.subject_id, options, should_stop=should_stop, on_stage=on_stage)
        self._end(job, turn.status)


def _memory() -> dict[str, int]:
    import engine

    report = engine.memory_report()
    return {name: report[name] for name in ("process_bytes", "gpu_bytes")}
