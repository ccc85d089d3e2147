"""The table of jobs: claiming, reporting, cancelling."""

import threading
from collections.abc import Callable

import pytest

from sessions import NotFound, Store, StoreError, stamp
from tests.sessions.helpers import Filled, dead_stamp


def test_a_job_from_queue_to_end(filled: Filled) -> None:
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


def test_turns_of_a_session_are_answered_one_after_another(filled: Filled, other_process: Callable) -> None:
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


def test_a_turn_of_a_dead_program_waits_for_a_later_turn(filled: Filled, other_process: Callable) -> None:
    """A command overtook a turn of a dead server, and the next server answered at the same time into one state."""
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
        dead = dead_stamp()
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


def test_a_job_is_left_to_the_process_that_holds_its_files(filled: Filled, other_process: Callable) -> None:
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


def test_work_on_a_subject_is_its_job_that_has_not_ended(filled: Filled) -> None:
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


def test_an_unfinished_turn_or_reading_ends_with_its_job(filled: Filled) -> None:
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


def test_only_a_job_that_has_ended_is_deleted(filled: Filled) -> None:
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


def test_cancelling(filled: Filled) -> None:
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
