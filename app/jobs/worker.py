"""The worker: a thread that reads and answers, and writes progress to the store.

Jobs are rows, so the page or program that asked may leave and come back. There are seven kinds: "ingest"
(`upload_jobs.py`), "read", "answer", "sweep" and "recap" (`sweeps.py`), "introduce", and "fetch" (`model_fetcher.py`).
Linked folders bring uploads of their own. One job uses the model at a time. A reading lets waiting questions go first
between two of its steps; if another model must answer, it saves a checkpoint and waits. A sweep makes way for questions
and readings, and an introduction for everything else. Readings and sweeps of a program that stops stay queued, and go
on when it starts again.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.asking import turns
from app.asking.answer_options import AnswerOptions
from app.asking.introduction import LOOK_SEC, can_introduce, introduce, load_introduction
from app.asking.recap import parts_of
from app.asking.sweep import Pace, sweep
from app.errors import AppError
from app.jobs.job_runner import READ
from app.jobs.linked_folders import LOOK_AGAIN_SEC, QUIET_SEC, look
from app.jobs.model_fetcher import ModelFetcher
from app.jobs.sweeps import SWEEP, progress_of, task_of
from app.jobs.upload_jobs import UPLOAD_THREADS, UploadJobs
from app.jobs.work import Stopped
from app.reading import readings
from app.reading.documents import IngestOptions
from app.reading.open_context import require_begun
from app.reading.progress import Report
from app.service import Service
from sessions import INTERRUPTED, INTRODUCE, RECAP, UNDER_WAY, InUse, JobRow, NotFound, TurnRow

ANSWER = "answer"
STOP_FETCHING_SEC = 2.0
"""Time that a model being fetched gets to stop. What has come is on disk, so it may be ended at any moment."""
MEASURE_SEC = 1.0
"""Least time between two measurements of a reading."""
HISTORY = 400
"""Measurements to keep of a finished reading."""


class Worker(UploadJobs):
    """Runs uploads, readings and answers of a home until it is told to stop."""

    def __init__(self, service: Service, *, introduces: bool = False) -> None:
        """Prepare the threads.

        Args:
            service: the home to work for.
            introduces: whether to introduce each context when it has been read.
        """
        super().__init__(service)
        self.introduces = introduces
        self.fetcher = ModelFetcher(service)
        self._wake_look = threading.Event()
        self._next_look: dict[tuple[str, float], float] = {}  # time by path of a linked folder and time of linking

    def _call(self) -> None:
        super()._call()
        self.fetcher._call()
        self._wake_look.set()

    # Public methods: called from any thread.

    def ask(self, session: Callable[[], str], question: str, options: AnswerOptions, pages: str = "") -> TurnRow:
        """Keep a question and queue it, in one step.

        Args:
            session: returns the id of the session, found or made for the question. No other question is asked in it
                meanwhile,
                and if this one cannot be asked, no session is made.
            question: the question as typed.
            options: options for the answer.
            pages: see `turns.keep_question`.

        Raises:
            UsageError: the question is empty or too long, or there are no such pages.
            AppError: none of the context has been read yet.
        """
        store = self.service.store
        with store.transaction():
            turn = turns.keep_question(self.service, session(), question, pages)
            store.jobs.add(ANSWER, turn.id, vars(options))
        self._call()
        return turn

    def stop_answer(self, *turn_ids: str) -> None:
        """Stop the answers to turns; those that have ended stay as they are.

        Raises:
            sessions.InUse: another program answers one of them without a job; the others are stopped all the same.
        """
        store, theirs = self.service.store, []
        for id in turn_ids:
            if work := store.jobs.work_on(id, ANSWER):
                self.cancel(work.id)
            elif store.turns.get(id).status == "answering":
                theirs.append(id)
        if theirs:
            raise InUse(f"A command, or another program, answers {', '.join(theirs)}: stop it there (Ctrl-C).")

    def introduce(self, context_id: str) -> JobRow | None:
        """Queue the introduction to a finished context; None if it is made already, or its model cannot make one.

        Raises:
            sessions.NotFound: there is no such context.
        """
        store = self.service.store
        with store.transaction():
            row, made = store.contexts.get(context_id), load_introduction(store, context_id)
            if row.status != "ready" or (made and made.done) or not can_introduce(row.model):
                return None
            job = store.jobs.work_on(context_id, INTRODUCE) or store.jobs.add(INTRODUCE, context_id)
        self._call()
        return job

    def recap(self, context_id: str, up_to: str = "") -> JobRow | None:
        """Queue a recap of a context; None if its model cannot sum up a text. One that is under way goes on.

        up_to: see `parts_of`.

        Raises:
            UsageError: there is no such page.
            AppError: none of the context has been read yet.
            sessions.NotFound: there is no such context.
        """
        store, cache = self.service.store, self.service.document_cache
        row = store.contexts.get(context_id)
        require_begun(self.service, row)
        parts_of(row, up_to, cache)
        if not can_introduce(row.model):
            return None
        with store.transaction():
            job = store.jobs.work_on(context_id, RECAP) or store.jobs.add(RECAP, context_id, {"up_to": up_to})
        self._call()
        return job

    def sweep(self, subject: str, payload: dict[str, Any]) -> JobRow:
        """Queue a sweep, see `sweeps.list_request` and `table_request`; the same one that is under way goes on."""
        jobs = self.service.store.jobs
        with self.service.store.transaction():
            same = (job for job in jobs.all(subject_id=subject, kind=SWEEP) if job.payload == payload)
            work = next((job for job in same if job.status in UNDER_WAY and not job.cancel_requested), None)
            work = work or jobs.add(SWEEP, subject, payload)
        self._call()
        return work

    # The work: in the thread itself.

    def run(self) -> None:
        """Work until stopped. An error in one job never ends the thread."""
        targets = (self._watch, self._follow_folders, *[self._take_in] * UPLOAD_THREADS)
        beside = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in beside:
            thread.start()
        self.fetcher.start()
        try:
            self._work(self._wake, self.work_once)
        finally:
            self._stopping.set()
            self._call()
            self.fetcher.stop(STOP_FETCHING_SEC)
            for thread in beside:
                thread.join()
            self._let_go_all()

    def _follow_folders(self) -> None:
        """Look at linked folders until stopped. Runs in a thread of its own."""
        self._work(self._wake_look, self.look_once)

    def look_once(self) -> bool:
        """Look at the linked folders whose time has come. Return False, as there is nothing to do before the next."""
        folders, now = self.service.store.linked_folders, time.monotonic()
        due = [each for each in folders.linked_at().items() if now >= self._next_look.get(each, 0.0)]
        for row in folders.all() if due else ():
            if (key := (row.folder, row.linked_at)) in due:
                self._next_look[key] = now + LOOK_AGAIN_SEC  # also if the look fails
                if look(self.service, self._read_as_usual, row, self._stopping.is_set):
                    self._next_look[key] = now + QUIET_SEC
        return False

    def _read_as_usual(self, files: list[Path]) -> JobRow:
        """Queue copies of files to be read as the page reads them without further choices."""
        import engine

        return self.ingest(files, engine.DEFAULT_METHOD, {}, IngestOptions())

    def work_once(self) -> bool:
        """Run the next job that needs a model, questions first. Return whether there was one."""
        self._put_right()
        if job := self._claimed(ANSWER):
            self._do(job, self._answer)
        elif upload := self._next_waiting():
            self._do(upload.job, lambda job: next(upload.rest, None))
        elif job := self._claimed(READ):
            self._do(job, self._read)
        elif not self._wanted() and (job := self._claimed(RECAP) or self._claimed(SWEEP)):
            self._do(job, self._sweep)
        elif not self._wanted() and (job := self._claimed(INTRODUCE)):
            self._do(job, self._introduce)
        else:
            return False
        return True

    def _read(self, job: JobRow) -> None:
        store, history, leaving = self.service.store, 0.0, False
        model = store.contexts.get(job.subject_id).model

        def report(now: Report) -> None:
            nonlocal history, leaving
            store.jobs.update(
                job.id, stage=now.stage, done=now.tokens_done, total=now.tokens_total, progress=asdict(now)
            )
            if now.usage and (time.monotonic() - history >= MEASURE_SEC or now.stage == "ready"):
                history = time.monotonic()
                store.measurements.add("reading", job.subject_id, {**asdict(now), **_memory()})
            leaving = self._answer_waiting(model)

        def should_stop() -> bool:
            return leaving or self._stopping.is_set() or store.jobs.cancel_requested(job.id)

        try:
            readings.read(self.service, job.subject_id, report, should_stop)
        except Stopped:
            if not store.jobs.cancel_requested(job.id):
                store.contexts.update(job.subject_id, status="reading")
            self._leave(job)
            return
        store.measurements.thin("reading", job.subject_id, HISTORY)
        self._end(job, "done")
        if self.introduces:
            self.introduce(job.subject_id)

    def _sweep(self, job: JobRow) -> None:
        """Sweep while nobody waits for an answer or a reading; go on later if somebody does."""
        jobs, pace, asked = self.service.store.jobs, Pace(), 0.0

        def on_pass() -> None:
            nonlocal asked
            pace.on_pass()
            if time.monotonic() - asked >= LOOK_SEC:
                asked = time.monotonic()
                if self._wanted() or self._stopping.is_set() or jobs.cancel_requested(job.id):
                    raise Stopped

        try:
            task = task_of(self.service, job)
            jobs.update(job.id, done=0, total=task.total, progress=progress_of(task, None))
            for done, _ in enumerate(sweep(self.service, task, on_pass), 1):
                jobs.update(job.id, done=done, progress=progress_of(task, pace.left(done, task.total)))
        except Stopped:
            self._leave(job)
            return
        self._end(job, "done")

    def _introduce(self, job: JobRow) -> None:
        """Introduce a context while there is nothing else to do; go on with it later if there is."""

        def should_stop() -> bool:
            jobs = self.service.store.jobs
            wanted = self._wanted() or any(jobs.all(status="queued", kind=kind) for kind in (RECAP, SWEEP))
            return wanted or self._stopping.is_set() or jobs.cancel_requested(job.id)

        try:
            introduce(self.service, job.subject_id, should_stop)
        except Stopped:
            self._leave(job)
            return
        self._end(job, "done")

    def _wanted(self) -> bool:
        """Return whether somebody waits for a model: a question, a reading or an upload."""
        jobs = self.service.store.jobs
        return bool(self._waiting) or any(jobs.all(status="queued", kind=kind) for kind in (ANSWER, READ))

    def _another_is_asked(self, model: str) -> bool:
        """Return whether a question waits that another model can answer now."""
        store = self.service.store
        for job in store.jobs.all(status="queued", kind=ANSWER):
            with suppress(NotFound):  # deleted meanwhile
                session = store.sessions.get(store.turns.get(job.subject_id).session_id)
                if store.contexts.get(session.context_id).model != model and not store.jobs.is_behind(job.subject_id):
                    return True
        return False

    def _answer_waiting(self, model: str) -> bool:
        """Answer waiting questions before the reading that calls this goes on.

        Args:
            model: name of the model that reads.

        Returns:
            Whether a question waits for another model. Two may not fit, so the reading must make room and go on later.
        """
        self._put_right()
        store = self.service.store
        while not self._stopping.is_set() and store.jobs.all(status="queued", kind=ANSWER):
            with store.transaction():  # no question arrives in between
                if self._another_is_asked(model):
                    return True
                job = store.jobs.claim(self.name, ANSWER)
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
            if self._stopping.is_set():  # the program ends, nobody stopped this answer
                raise AppError(INTERRUPTED)
            return store.jobs.cancel_requested(job.id)

        def on_stage(words: str) -> None:
            nonlocal stage, told
            if words != stage and (time.monotonic() - told > 0.2 or not words):
                told, stage = time.monotonic(), words
                store.jobs.update(job.id, stage=words)

        options = AnswerOptions(**job.payload)
        turn = turns.answer(self.service, job.subject_id, options, should_stop=should_stop, on_stage=on_stage)
        self._end(job, turn.status)


def _memory() -> dict[str, int]:
    import engine

    report = engine.memory_report()
    return {name: report[name] for name in ("process_bytes", "gpu_bytes")}
