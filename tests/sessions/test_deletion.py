"""Deletion of items with everything derived from them."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from sessions import DiskFull, InUse, NotFound, Part
from tests.sessions.helpers import Filled


def _everything(home: Path) -> bytes:
    """Return the bytes of all files in a home."""
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_deleting_a_document_leaves_no_row_and_no_file(filled: Filled) -> None:
    store = filled.store
    kept = filled.document("2" * 64, content={"text": "staying"})
    gone = filled.document("1" * 64, title="Zanzibarian", content={"text": "Zanzibarian"})
    other = filled.context(kept)
    alone, shared = filled.context(gone, status="reading"), filled.context(kept, gone, status="reading")
    for context in (alone, shared):
        session = store.sessions.add(context.id)
        turn = store.turns.add(session.id, "Where is the Zanzibarian?")
        store.turns.append_answer(turn.id, "The Zanzibarian is ")
        filled.answered(session, "Again: the Zanzibarian?", "At home, the Zanzibarian.")
        store.contexts.state(context.id).save({"kv": Part({"k": torch.ones(9)}, sealed=True)}, {}, "print")
        store.sessions.state(session.id).save({"tail": Part({"k": torch.ones(9)})}, {}, "print")
        job = store.jobs.add("reading", context.id)
        store.jobs.add("answering", turn.id)
        made_by = store.jobs.add("ingesting", "upload", {"files": ["Zanzibarian.txt"]})
        store.jobs.update(made_by.id, status="done", progress={"context": context.id})
        for subject in (context.id, session.id, turn.id, job.id, made_by.id):
            store.measurements.add("speed", subject, {"tokens": 1})
    stays = store.sessions.add(other.id, "stays")
    filled.answered(stays, "A question", "An answer")
    store.documents.delete(gone.id)

    assert (store.documents.all(), store.contexts.all(), store.sessions.all()) == (
        [kept],
        [other],
        [store.sessions.get(stays.id)],
    )
    counts = {
        table: store.database.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"]
        for table in ("context_documents", "turns", "drafts", "turns_fts_docsize", "jobs", "measurements")
    }
    assert counts == {
        "context_documents": 1, "turns": 1, "drafts": 0, "turns_fts_docsize": 1, "jobs": 0, "measurements": 0,
    }  # fmt: skip
    assert store.search.turns("Zanzibarian") == []
    assert len(store.search.turns("question")) == 1
    folders = sorted(
        path.name for name in ("documents", "contexts", "sessions") for path in (store.home / name).iterdir()
    )
    assert folders == [kept.id]
    assert store.database.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    left = _everything(store.home).lower()
    assert b"zanzibarian" not in left
    assert b"staying" in left


def test_deleting_a_context_or_session_keeps_its_documents(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    filled.answered(session, "q", "a")
    store.sessions.state(session.id).save({"tail": Part({"k": torch.ones(9)})}, {}, "f")
    store.sessions.delete(session.id)
    assert store.sessions.all() == []
    assert list((store.home / "sessions").iterdir()) == []
    assert store.contexts.get(session.context_id)
    store.contexts.delete(session.context_id)
    assert store.contexts.all() == []
    assert len(store.documents.all()) == 1
    with pytest.raises(NotFound):
        store.contexts.delete(session.context_id)


def test_deleting_uses_an_index_for_each_table(filled: Filled) -> None:
    """Every turn and job scanned all measurements: 3 s for 300 turns, under the write lock."""
    session = filled.session()
    turn = filled.answered(session, "Who?", "Emma.")
    filled.store.jobs.add("answer", turn)
    asked: list[str] = []
    filled.store.database.connection.conn.set_trace_callback(asked.append)
    filled.store.documents.delete(filled.store.contexts.documents(session.context_id)[0].id)
    filled.store.database.connection.conn.set_trace_callback(None)
    ours = [statement for statement in asked if "_fts_config" not in statement]  # SQLite's own, of one row
    deleting = [statement for statement in ours if statement.startswith(("SELECT", "DELETE"))]
    assert any(statement.startswith("DELETE FROM measurements") and turn in statement for statement in deleting)
    gone_through = [
        statement
        for statement in deleting
        if any("SCAN" in step["detail"] for step in filled.store.database.rows(f"EXPLAIN QUERY PLAN {statement}"))
    ]
    (jobs,) = gone_through  # once for each context, as the job that made it names it in its progress alone
    assert "'$.context'" in jobs


def test_the_subject_of_a_live_worker_is_not_deleted(filled: Filled) -> None:
    store, session = filled.store, filled.session()
    turn = store.turns.add(session.id, "q")
    job = store.jobs.add("answering", turn.id)
    assert store.jobs.claim("worker-1")
    document = store.contexts.get(session.context_id).document_ids[0]
    for delete, id in (
        (store.documents.delete, document),
        (store.contexts.delete, session.context_id),
        (store.sessions.delete, session.id),
    ):
        with pytest.raises(InUse, match=f"Work on {turn.id} is under way .*: stop it"):
            delete(id)
    assert store.turns.all(session.id) == [turn]
    store.jobs.update(job.id, status="done")
    store.documents.delete(document)
    assert store.documents.all() == []


def test_the_subject_of_another_program_is_not_deleted(
    filled: Filled, other_process: Callable[..., subprocess.Popen]
) -> None:
    store, context = filled.store, filled.context(status="paused")
    session, [document] = store.sessions.add(context.id), context.document_ids
    for begin, end, subject in (
        (
            f"print(store.contexts.update('{session.context_id}', status='reading').id, flush=True)",
            lambda id: store.contexts.update(id, status="ready"),
            session.context_id,
        ),
        (
            f"print(store.turns.add('{session.id}', 'q').id, flush=True)",
            lambda id: store.turns.finish(id, status="done", answer="a"),
            None,
        ),
    ):
        busy = other_process(f"import time\nstore = Store(home)\n{begin}\ntime.sleep(600)")
        try:
            id = busy.stdout.readline().strip()
            assert subject in (None, id)
            with pytest.raises(InUse, match=f"Another program is busy with {id}"):
                store.documents.delete(document)
            assert store.documents.get(document)
        finally:
            busy.kill()
            busy.communicate()
        end(id)
    store.documents.delete(document)
    assert store.documents.all() == []


def test_deleting_frees_files_first_on_a_full_disk(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting rows needs room in the log, so a full disk could not be emptied."""
    store, context = filled.store, filled.context(status="reading")
    session = store.sessions.add(context.id)
    store.contexts.state(context.id).save({"kv": Part({"k": torch.ones(9)})}, {}, "print")
    folder, real = store.contexts.state(context.id).path, store.folders.note

    def full(ids: Sequence[str]) -> None:
        if folder.exists():
            raise DiskFull(store.home, None, 0)
        real(ids)

    monkeypatch.setattr(store.folders, "note", full)
    turn = store.turns.add(session.id, "q")
    job = store.jobs.add("answering", turn.id)
    assert store.jobs.claim("worker-1")
    with pytest.raises(InUse, match="is under way"):
        store.contexts.delete(context.id)
    assert folder.exists()
    store.jobs.update(job.id, status="done")
    store.contexts.delete(context.id)
    assert (store.contexts.all(), store.sessions.all(), len(store.documents.all())) == ([], [], 1)
    assert not folder.exists()
