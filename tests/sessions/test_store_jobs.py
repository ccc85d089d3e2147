"""Jobs: claiming, reporting, cancelling, and dead workers."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sessions import AlreadyRead, InUse, NotFound, Store, StoreError, processes, stamp


def test_a_job_from_queue_to_end(filled: Any) -> None:
    store, context = filled.store, filled.context()
    job = store.jobs.add("reading", context.id, {"file": "x"})
    assert (job.status, job.payload, job.attempts, job.worker) == ("queued", {"file": "x"}, 0, None)
    later = store.jobs.add("answering", context.id)
    claimed = store.jobs.claim("w")
    assert claimed
    assert (claimed.id, claimed.status, claimed.worker, claimed.attempts) == (job.id, "running", "w", 1)
    assert store.jobs.update(job.id, stage="reading", done=5, total=10, progress={"rate": 2}).done == 5
    job = store.jobs.update(job.id, done=6)
    assert (job.stage, job.total, job.progress, job.finished_at) == ("reading", 10, {"rate": 2}, None)
    done = store.jobs.update(job.id, status="done")
    assert done.finished_at is not None
    assert store.jobs.all("done") == [done]
    assert [each.id for each in store.jobs.all("queued", subject_id=context.id)] == [later.id]
    with pytest.raises(StoreError, match="cannot become running"):
        store.jobs.update(job.id, status="running")
    with pytest.raises(ValueError, match="finished"):
        store.jobs.update(job.id, status="finished")
    assert store.jobs.claim("w", kind="reading") is None
    assert store.jobs.claim("w", kind="answering").id == later.id
    assert store.jobs.claim("w") is None


def test_a_job_goes_to_one_worker_only(store: Store) -> None:
    ids = [store.jobs.add("reading", "c-222222").id for _ in range(30)]
    claimed: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    start = threading.Barrier(3)

    def work(name: str) -> None:
        start.wait()
        while job := store.jobs.claim(name):
            claimed[name].append(job.id)

    threads = [threading.Thread(target=work, args=[name]) for name in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(job for mine in claimed.values() for job in mine) == sorted(ids)
    assert all(mine == sorted(mine, key=ids.index) for mine in claimed.values())  # oldest first
    assert {worker.name for worker in store.workers.all() if worker.alive} == {"a", "b", "c"}


def test_turns_of_a_session_are_answered_one_after_another(filled: Any, other_process: Callable) -> None:
    store, session = filled.store, filled.session()
    turns = [store.turns.add(session.id, question) for question in ("first", "second")]
    jobs = [store.jobs.add("answer", turn.id) for turn in reversed(turns)]
    elsewhere = filled.store.turns.add(filled.session().id, "in another session")
    store.jobs.add("answer", elsewhere.id)
    assert [store.jobs.is_behind(turn.id) for turn in (*turns, elsewhere)] == [False, True, False]
    claimed = [store.jobs.claim(f"worker-{number}") for number in range(3)]
    assert [job and job.subject_id for job in claimed] == [turns[0].id, elsewhere.id, None]
    store.turns.finish(turns[0].id, answer="done")
    following = store.jobs.claim("worker-3")
    assert following
    assert following.id == jobs[0].id
    store.turns.finish(turns[1].id, answer="done")
    asking = other_process(f"store = Store(home)\nprint(store.turns.add('{session.id}', 'third').id)")
    asking.communicate()
    assert not store.jobs.is_behind(store.turns.add(session.id, "fourth").id)  # who asked the third has died


def test_a_turn_whose_program_died_waits_for_one_that_is_answered_meanwhile(
    filled: Any, other_process: Callable
) -> None:
    """A command went past what a dead server had queued, the next server began with that, and both had one tail."""
    store, session = filled.store, filled.session()
    first = store.turns.add(session.id, "asked on the page")
    store.jobs.add("answer", first.id)
    command = other_process(
        f"store = Store(home)\nturn = store.turns.add('{session.id}', 'asked by a command')\n"
        "while input():\n    print(turn.id, store.jobs.is_behind(turn.id), flush=True)"
    )

    def waits() -> bool:
        command.stdin.write("look\n")
        command.stdin.flush()
        return bool(command.stdout.readline().split()[1] == "True")

    try:
        assert waits()
        assert not store.jobs.is_behind(first.id)
        dead = processes.stamp().rpartition("|")[0] + "|1"
        with store.database.transaction() as db:
            db.execute("UPDATE turns SET owner = ? WHERE id = ?", [dead, first.id])
        assert not waits()
        assert store.jobs.is_behind(first.id)
        assert store.jobs.claim("worker") is None
    finally:
        command.kill()
        command.communicate()
    store.recover()
    assert store.jobs.claim("worker").subject_id == first.id


def test_a_job_that_one_process_holds_something_for_is_left_to_it(filled: Any, other_process: Callable) -> None:
    store = filled.store
    other = other_process("from sessions import stamp\nprint(stamp(), flush=True)\nimport time\ntime.sleep(600)")
    try:
        store.jobs.add("ingest", "upload", {"holder": other.stdout.readline().strip()})
        mine = store.jobs.add("ingest", "upload", {"holder": stamp()})
        claimed = store.jobs.claim("worker-1")
        assert claimed
        assert claimed.id == mine.id
        assert store.jobs.claim("worker-1") is None
    finally:
        other.kill()
        other.communicate()
    assert store.jobs.claim("worker-1") is not None  # nobody is left to wait for


def test_a_reading_is_queued_once_and_nothing_is_changed_if_it_cannot_be(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, context = filled.store, filled.context(status="failed")
    with monkeypatch.context() as full:
        full.setattr(
            store.database, "new_id", lambda kind: store.database.connection.execute("INSERT INTO nowhere VALUES (1)")
        )
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            store.readings.queue("reading", context.id)
    assert store.contexts.get(context.id).status == "failed"
    job = store.readings.queue("reading", context.id)
    assert store.contexts.get(context.id).status == "reading"
    assert store.readings.queue("reading", context.id) == job
    store.jobs.end(job.id, "failed")
    assert store.readings.queue("reading", context.id).id != job.id


def test_only_a_reading_that_nobody_does_and_that_is_not_finished_is_queued(
    filled: Any, other_process: Callable
) -> None:
    """A finished one was read anew from its beginning, and one that a command was reading was read by both."""
    store, ready = filled.store, filled.context()
    done = store.jobs.add("reading", ready.id)
    assert store.jobs.claim("w")
    for _ in range(2):  # whether or not its worker has come to end the job
        with pytest.raises(AlreadyRead, match="has been read"):
            store.readings.queue("reading", ready.id)
        store.jobs.end(done.id, "done")
    other = other_process(
        f"s = Store(home)\nids = {ready.document_ids!r}\n"
        "row = s.contexts.add(model='m', method='full', settings={}, budget=None, fingerprint='f', document_ids=ids, "
        "tokens=9)\nprint(row.id, flush=True)\nimport time\ntime.sleep(600)"
    )
    try:
        held = other.stdout.readline().strip()
        with pytest.raises(InUse, match="Another program is reading"):
            store.readings.queue("reading", held)
        assert [job.id for job in store.jobs.all()] == [done.id]
    finally:
        other.kill()
        other.communicate()
    assert store.readings.queue("reading", held).status == "queued"  # nobody is at it any more
    assert store.contexts.get(ready.id) == ready


def test_a_reading_is_taken_by_one_process_only(filled: Any, other_process: Callable) -> None:
    """Two that had seen it paused both read it, and the second wrote over what the first had finished."""
    store, context = filled.store, filled.context(status="paused")
    code = f"""
store, context = Store(home), {context.id!r}
print(store.contexts.get(context).status, flush=True)
input()
try:
    print(store.readings.take(context).status, flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
input()
"""
    others = [other_process(code) for _ in range(2)]
    try:
        assert [each.stdout.readline() for each in others] == ["paused\n"] * 2
        for each in others:
            each.stdin.write("\n")
            each.stdin.flush()
        assert sorted(each.stdout.readline() for each in others) == ["InUse\n", "reading\n"]
        with pytest.raises(InUse, match="being read right now"):
            store.readings.take(context.id)
    finally:
        for each in others:
            each.kill()
            each.communicate()
    store.recover()
    queued = store.readings.queue("reading", context.id)
    assert store.readings.take(context.id).status == "reading"
    assert store.jobs.get(queued.id).status == "cancelled"
    ready = store.contexts.update(context.id, status="ready")
    assert store.readings.take(context.id) == ready


def test_a_reading_is_not_taken_from_a_worker_that_is_just_leaving_it(filled: Any) -> None:
    """Both read it, and a stop meant for the worker paused what a command was reading."""
    store, context = filled.store, filled.context(status="failed")
    job = store.readings.queue("reading", context.id)
    assert store.jobs.claim("w")
    for status in ("paused", "failed"):  # as the worker notes it before its job ends
        store.contexts.update(context.id, status=status)
        with pytest.raises(InUse, match="being read right now"):
            store.readings.take(context.id)
        assert store.contexts.get(context.id).status == status
    with store.database.transaction() as db:
        db.execute("UPDATE jobs SET owner = ?", [processes.stamp().rpartition("|")[0] + "|1"])
    assert store.readings.take(context.id).status == "reading"  # the worker has died
    assert store.jobs.get(job.id).status == "cancelled"
    ready = filled.context(filled.document("b" * 64))
    store.jobs.add("reading", ready.id)
    assert store.jobs.claim("w")
    assert store.readings.take(ready.id) == ready  # whether or not its worker has come to end the job


def test_the_work_on_a_subject_is_what_has_not_ended(filled: Any) -> None:
    store, context = filled.store, filled.context()
    assert store.jobs.work_on(context.id) is None
    ended, job = (store.jobs.add("reading", context.id) for _ in range(2))
    store.jobs.end(ended.id, "failed")
    for _ in range(2):
        assert store.jobs.work_on(context.id) == store.jobs.work_on(context.id, "reading") == store.jobs.get(job.id)
        assert store.jobs.work_on(context.id, "answering") is None
        store.jobs.claim("w")
    store.jobs.end(job.id, "done")
    assert store.jobs.work_on(context.id) is None


def test_what_a_job_leaves_unfinished_ends_with_it(filled: Any) -> None:
    store, session = filled.store, filled.session()
    for status, tokens_read, expected in (("failed", 7, "failed"), ("cancelled", 7, "paused"), ("cancelled", 0, None)):
        context = filled.context(filled.document("c" * 64), status="reading")
        store.contexts.update(context.id, tokens_read=tokens_read)
        turn = store.turns.add(session.id, "q")
        for subject in (context.id, turn.id):
            job = store.jobs.add("any", subject)
            store.jobs.claim("w")
            assert store.jobs.end(job.id, status, "No room.").status == status
            assert store.jobs.end(job.id, "done").status == status  # it has ended
        assert store.contexts.get(context.id).status == expected or status
        assert store.contexts.get(context.id).error == store.turns.get(turn.id).error == "No room."
        assert store.turns.get(turn.id).status == status
    ready, answered = filled.context(), store.turns.get(filled.answered(session, "q", "a"))
    for subject in (ready.id, answered.id):
        store.jobs.end(store.jobs.add("any", subject).id, "failed", "Too late.")
    assert (store.contexts.get(ready.id), store.turns.get(answered.id)) == (ready, answered)


def test_only_a_job_that_has_ended_is_deleted(filled: Any) -> None:
    store = filled.store
    ended, waits = (store.jobs.add("ingesting", "upload", {"files": ["Zanzibarian.txt"]}) for _ in range(2))
    store.jobs.end(ended.id, "failed", "Zanzibarian.txt is empty.")
    store.measurements.add("speed", ended.id, {"tokens": 1})
    with pytest.raises(StoreError, match="cancel it, or wait"):
        store.jobs.delete(ended.id, waits.id)
    assert [each.id for each in store.jobs.all()] == [ended.id, waits.id]
    store.jobs.delete(ended.id)
    assert [each.id for each in store.jobs.all()] == [waits.id]
    assert store.measurements.newest("speed", ended.id) == []


def test_cancelling(filled: Any) -> None:
    store, session = filled.store, filled.session()
    reading = filled.context(filled.document("c" * 64), status="reading")
    queued, turn = store.jobs.add("reading", reading.id), store.turns.add(session.id, "q")
    asked = store.jobs.add("answering", turn.id)
    assert store.jobs.request_cancel(queued.id).status == "cancelled"
    assert store.contexts.get(reading.id).status == "cancelled"
    assert store.jobs.request_cancel(asked.id).status == "cancelled"
    assert store.turns.get(turn.id).status == "cancelled"
    running = store.jobs.add("reading", session.context_id)
    assert store.jobs.claim("w").id == running.id
    assert not store.jobs.cancel_requested(running.id)
    job = store.jobs.request_cancel(running.id)
    assert (job.status, job.cancel_requested) == ("running", True)
    assert store.jobs.cancel_requested(running.id)
    assert store.contexts.get(session.context_id).status == "ready"
    ended = store.jobs.update(running.id, status="cancelled")
    assert store.jobs.request_cancel(running.id) == ended
    store.sessions.delete(session.id)
    assert store.jobs.cancel_requested(asked.id)  # deleted with its turn: stop
    with pytest.raises(NotFound):
        store.jobs.request_cancel(asked.id)


@pytest.fixture
def crashed(filled: Any, other_process: Callable) -> Callable[[str], Any]:
    """Run code in another process that is then killed without any chance to tidy up."""

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


def test_what_a_killed_process_left_is_put_right(filled: Any, crashed: Callable) -> None:
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


def test_a_job_that_kills_its_worker_is_given_up(filled: Any) -> None:
    store, context = filled.store, filled.context(status="reading")
    job = store.jobs.add("reading", context.id)
    dead = processes.stamp().rpartition("|")[0] + "|1"  # this PID, but a process that started at another time
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


def test_what_is_given_back_or_has_got_on_is_no_failed_attempt(filled: Any) -> None:
    """A reading failed after four clean restarts, however far each of them had come."""
    store, context = filled.store, filled.context(status="reading")
    job = store.jobs.add("reading", context.id)
    for _ in range(5):
        store.jobs.claim("w")
        assert (store.jobs.release(job.id).status, store.jobs.get(job.id).attempts) == ("queued", 0)
    dead = processes.stamp().rpartition("|")[0] + "|1"
    for read in (0, 10, 10, 20, 30):  # what the checkpoint holds when the worker dies
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


def test_an_answer_that_grows_keeps_a_distant_worker_alive(filled: Any) -> None:
    """One of more than a minute was taken for dead by a program in another container, and failed."""
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


def test_what_a_distant_process_with_a_heartbeat_works_on_is_not_taken_from_it(filled: Any) -> None:
    """A server in another container that loaded its model for more than a minute was taken for dead by some."""
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
