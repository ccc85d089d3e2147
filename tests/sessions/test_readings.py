"""Readings: one reader for each context."""

from collections.abc import Callable

import pytest

from sessions import AlreadyRead, InUse, StoreError
from tests.sessions.helpers import Filled, dead_stamp


def test_a_reading_is_queued_once_or_nothing_changes(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    store, context = filled.store, filled.context(status="failed")
    with monkeypatch.context() as full:
        full.setattr(
            store.database, "new_id", lambda kind: store.database.connection.execute("INSERT INTO nowhere VALUES (1)")
        )
        with pytest.raises(StoreError, match="nowhere"):
            store.readings.queue("reading", context.id)
    assert store.contexts.get(context.id).status == "failed"
    job = store.readings.queue("reading", context.id)
    assert store.contexts.get(context.id).status == "reading"
    assert store.readings.queue("reading", context.id) == job
    store.jobs.end(job.id, "failed")
    assert store.readings.queue("reading", context.id).id != job.id


def test_a_finished_or_busy_reading_is_not_queued(filled: Filled, other_process: Callable) -> None:
    """A finished reading began again, and one that a command was doing got a second reader."""
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


def test_one_process_takes_a_reading(filled: Filled, other_process: Callable) -> None:
    """Two processes that saw it paused both read it, and the second overwrote the finished state."""
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


def test_a_reading_is_not_taken_before_its_job_has_ended(filled: Filled) -> None:
    """Worker and command both read it, and a stop for the worker paused the command."""
    store, context = filled.store, filled.context(status="failed")
    job = store.readings.queue("reading", context.id)
    assert store.jobs.claim("w")
    for status in ("paused", "failed"):  # as the worker notes it before its job ends
        store.contexts.update(context.id, status=status)
        with pytest.raises(InUse, match="being read right now"):
            store.readings.take(context.id)
        assert store.contexts.get(context.id).status == status
    with store.database.transaction() as db:
        db.execute("UPDATE jobs SET owner = ?", [dead_stamp()])
    assert store.readings.take(context.id).status == "reading"  # the worker has died
    assert store.jobs.get(job.id).status == "cancelled"
    ready = filled.context(filled.document("b" * 64))
    store.jobs.add("reading", ready.id)
    assert store.jobs.claim("w")
    assert store.readings.take(ready.id) == ready  # whether or not its worker has come to end the job
