"""Recovery after processes died, and how they are told from busy ones."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from sessions import InUse, Store, StoreError, processes
from tests.sessions.helpers import Filled, dead_stamp, part


@pytest.fixture
def crashed(filled: Filled, other_process: Callable) -> Callable[[str], Any]:
    """Run code in another process and kill it; return the first line that it printed."""

    def run(code: str) -> str:
        process = other_process(
            "s = Store(home)\n" + code + "\nprint('ready', flush=True)\nimport time; time.sleep(600)"
        )
        lines = []
        while (line := process.stdout.readline().strip()) != "ready":
            assert line, process.stderr.read()
            lines.append(line)
        assert filled.store.recover() == []  # while it lives, nothing is taken away from it
        assert all(job.status != "queued" or job.attempts == 0 for job in filled.store.jobs.all())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return lines[0]

    return run


def test_an_answer_that_was_saved_with_its_conversation_is_done(filled: Filled) -> None:
    """It was shown as failed until the next question, and the question might be asked again."""
    store, session = filled.store, filled.session()
    saved, lost = store.turns.add(session.id, "Who?"), store.turns.add(session.id, "When?")
    with store.database.transaction() as db:
        db.execute("UPDATE turns SET owner = ?", [dead_stamp()])
        db.execute("UPDATE drafts SET updated_at = 0")
    turn = {"id": saved.id, "answer": "Ada.", "sources": [], "measurements": {"answer_tokens": 2}}
    store.sessions.state(session.id).save({"slots": part(1.0)}, {"turn": turn}, "print")
    store.recover()
    first, second = store.turns.all(session.id)
    assert (first.status, first.answer, first.measurements, first.error) == ("done", "Ada.", turn["measurements"], None)
    assert (second.status, second.id) == ("failed", lost.id)


def test_the_work_of_a_killed_process_is_recovered(filled: Filled, crashed: Callable) -> None:
    store, session = filled.store, filled.session()
    reading = filled.context(filled.document("c" * 64), status="reading")
    stopped = filled.context(filled.document("d" * 64), status="reading")
    asked = store.turns.add(session.id, "answered by a job")
    for kind, subject in (("reading", reading.id), ("reading", stopped.id), ("answering", asked.id)):
        store.jobs.add(kind, subject)
    mine = store.turns.add(session.id, "mine")
    lone = crashed(
        "jobs = [s.jobs.claim('w') for _ in range(3)]\n"
        "s.jobs.update(jobs[0].id, stage='reading', done=7, total=10)\n"
        "s.jobs.request_cancel(jobs[1].id)\n"
        "for job in jobs[:2]: s.contexts.update(job.subject_id, status='reading', tokens_read=7)\n"
        "s.turns.append_answer(jobs[2].subject_id, 'half')\n"
        f"turn = s.turns.add('{session.id}', 'answered without a job')\n"
        "s.turns.append_answer(turn.id, 'some')\n"
        "print(turn.id)"
    )
    with Store(store.home):  # opening is enough
        pass
    read, cancelled, answered = store.jobs.all()
    assert (read.status, read.stage, read.done, read.attempts) == ("queued", "reading", 7, 1)
    assert (cancelled.status, answered.status) == ("cancelled", "failed")
    assert store.contexts.get(reading.id).status == "reading"  # its job is queued again
    assert store.contexts.get(stopped.id).status == "paused"
    for id, partial in ((asked.id, "half"), (lone, "some")):
        turn = store.turns.get(id)
        assert (turn.status, turn.answer) == ("failed", partial)
        assert "ask again" in turn.error
    assert store.turns.get(mine.id).status == "answering"  # this process is alive
    assert [worker.alive for worker in store.workers.all()] == [False]
    assert store.recover() == []
    assert store.jobs.claim("me").attempts == 2


def test_a_job_that_kills_its_worker_is_given_up(filled: Filled) -> None:
    store, context = filled.store, filled.context(status="reading")
    job = store.jobs.add("reading", context.id)
    dead = dead_stamp()  # this PID, but a process that started at another time
    outcomes = []
    for _ in range(3):
        assert store.jobs.claim("w").id == job.id
        with store.database.transaction() as db:
            db.execute("UPDATE jobs SET owner = ?", [dead])
        outcomes.append([each.id for each in store.recover()])
    assert outcomes == [[job.id], [job.id], []]
    assert store.jobs.get(job.id).status == "failed"
    assert "3 times" in store.jobs.get(job.id).error
    assert (store.contexts.get(context.id).status, store.contexts.get(context.id).error) == (
        "failed",
        store.jobs.get(job.id).error,
    )


def test_released_jobs_and_progress_do_not_count_as_attempts(filled: Filled) -> None:
    """A reading failed after four clean restarts, however far each had come."""
    store, context = filled.store, filled.context(status="reading")
    job = store.jobs.add("reading", context.id)
    for _ in range(5):
        store.jobs.claim("w")
        assert (store.jobs.release(job.id).status, store.jobs.get(job.id).attempts) == ("queued", 0)
    dead = dead_stamp()
    for read in (0, 10, 10, 20, 30):  # tokens in the checkpoint when the worker dies
        store.jobs.claim("w")
        store.contexts.update(context.id, tokens_read=read)
        with store.database.transaction() as db:
            db.execute("UPDATE jobs SET owner = ?", [dead])
        assert [each.id for each in store.recover()] == [job.id]
    assert store.jobs.get(job.id).attempts == 1
    store.jobs.end(job.id, "done")
    with pytest.raises(StoreError, match="cannot become queued"):
        store.jobs.release(job.id)


def test_processes_that_cannot_be_seen_are_judged_by_their_silence() -> None:
    mine = processes.stamp()
    assert processes.is_alive(mine, last_seen=0.0)
    assert not processes.is_alive(mine.replace(f"|{os.getpid()}|", "|999999999|"), last_seen=time.time())
    elsewhere = "another-boot/pid:[1]|" + mine.partition("|")[2]
    assert processes.is_alive(elsewhere, last_seen=time.time() - 1)
    assert not processes.is_alive(elsewhere, last_seen=time.time() - 2 * processes.STALE_SEC)
    assert not processes.is_alive(elsewhere, last_seen=time.time() + 2 * processes.STALE_SEC)  # the clock was set back
    assert not processes.is_alive(None, last_seen=time.time())


def test_a_growing_answer_keeps_a_distant_worker_alive(filled: Filled) -> None:
    """An answer of more than a minute failed when a program in another container looked."""
    store, session = filled.store, filled.session()
    turn = store.turns.add(session.id, "q")
    job = store.jobs.add("answering", turn.id)
    store.jobs.claim("w")
    distant = "another-boot/pid:[1]|5|5"
    with store.database.transaction() as db:
        db.execute("UPDATE jobs SET owner = ?, updated_at = 0", [distant])
        db.execute("DELETE FROM workers")
    store.turns.append_answer(turn.id, "so far")
    assert store.recover() == []
    assert store.jobs.get(job.id).status == "running"
    with store.database.transaction() as db:
        db.execute("UPDATE drafts SET updated_at = updated_at - 1000")
    store.recover()
    assert (store.jobs.get(job.id).status, store.turns.get(turn.id).answer) == ("failed", "so far")


def test_work_of_a_distant_process_with_a_heartbeat_is_left_to_it(filled: Filled) -> None:
    """A server in another container counted as dead while it loaded its model for more than a minute."""
    store, context = filled.store, filled.context()
    session = store.sessions.add(context.id)
    first, second = store.turns.add(session.id, "one"), store.turns.add(session.id, "two")
    store.jobs.add("answer", first.id)
    store.jobs.claim("distant")
    theirs = "another-machine|1|1"
    for table in ("jobs", "workers", "turns"):
        with store.database.transaction() as db:
            db.execute(f"UPDATE {table} SET owner = ?", [theirs])
    for table in ("jobs", "drafts"):
        with store.database.transaction() as db:
            db.execute(f"UPDATE {table} SET updated_at = updated_at - 1000")
    with store.database.transaction() as db:
        db.execute("UPDATE turns SET created_at = created_at - 1000")
    assert store.jobs.is_behind(second.id)
    with pytest.raises(InUse):
        store.contexts.delete(context.id)
    with store.database.transaction() as db:
        db.execute("UPDATE workers SET heartbeat_at = heartbeat_at - 1000")
    assert not store.jobs.is_behind(second.id)
    store.contexts.delete(context.id)


def test_a_heartbeat_keeps_a_distant_worker_alive(store: Store) -> None:
    job = store.jobs.add("reading", "c-222222")
    store.jobs.claim("w")
    distant = "another-boot/pid:[1]|5|5"
    with store.database.transaction() as db:
        db.execute("UPDATE jobs SET owner = ?, updated_at = 0", [distant])
        db.execute("UPDATE workers SET owner = ?", [distant])
    assert store.recover() == []
    with store.database.transaction() as db:
        db.execute("UPDATE workers SET heartbeat_at = heartbeat_at - 1000")
    assert [each.id for each in store.recover()] == [job.id]
