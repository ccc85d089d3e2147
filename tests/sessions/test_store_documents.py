"""Documents, contexts, deletion, sweeping."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sessions import AlreadyRead, DiskFull, InUse, NotFound, Part, Store, StoreCorrupt, StoreError
from sessions import documents as documents_module


def test_a_document_comes_back_as_it_was_given(filled: Any, tmp_path: Path) -> None:
    file = tmp_path / "Émile ../x.PDF".replace("/", "_")
    file.write_bytes(b"%PDF-1.7 bytes")
    content = {"pages": [{"text": "naïve \ud800 text", "boxes": [1.5, 2]}], "toc": []}
    row = filled.document(title="  Émile ", content=content, file=file, warnings=["page 2 has no text"])
    store = filled.store
    assert (row.title, row.pages, row.characters, row.warnings) == ("Émile", 3, 12, ["page 2 has no text"])
    assert (row.file_name, row.file_bytes) == (file.name, 14)
    (page,) = store.documents.content(row.id)["pages"]
    assert page == {"text": "naïve \ufffd text", "boxes": [1.5, 2]}  # what no UTF-8 can hold is no letter of it
    kept = store.documents.file(row.id)
    assert kept is not None
    assert kept.name == "original.pdf"
    assert kept.read_bytes() == file.read_bytes()
    assert kept.parent.parent == store.home / "documents"
    assert store.folders.size(row.id) == 14 + (kept.parent / "content.json").stat().st_size


def test_the_same_file_is_kept_once(filled: Any) -> None:
    first = filled.document(title="Emma")
    assert filled.document(title="Emma again", content={"other": 1}) == first
    assert filled.store.documents.find("a" * 64) == first
    assert filled.store.documents.find("b" * 64) is None
    assert filled.store.documents.file(first.id) is None
    assert len(filled.store.documents.all()) == 1
    assert len(list((filled.store.home / "documents").iterdir())) == 1


def test_altered_or_missing_text_is_not_given_out(filled: Any) -> None:
    row = filled.document()
    path = filled.store.home / "documents" / row.id / "content.json"
    path.write_bytes(path.read_bytes().replace(b"one", b"ONE"))
    with pytest.raises(StoreCorrupt, match="read its file again"):
        filled.store.documents.content(row.id)
    path.unlink()
    with pytest.raises(StoreCorrupt):
        filled.store.documents.content(row.id)


def test_a_warning_that_names_a_file_as_no_text_can_be_is_sent_all_the_same(filled: Any) -> None:
    """Such a name in one warning, and no list of contexts came any more: UTF-8 cannot hold it."""
    row = filled.document(warnings=["B\udcfccher.pdf was left out."])
    assert row.warnings == ["B\ufffdcher.pdf was left out."]
    assert filled.store.documents.get(row.id).warnings == row.warnings


def test_titles(filled: Any) -> None:
    row = filled.document(title="\udcff odd")
    assert row.title == "\ufffd odd"
    assert filled.store.documents.rename(row.id, " Emma, vol. 1 ").title == "Emma, vol. 1"
    with pytest.raises(StoreError, match="cannot be empty"):
        filled.store.documents.rename(row.id, "  ")


def test_no_room_for_a_document(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "disk_free", lambda _: 10)
    with pytest.raises(DiskFull, match="10 are free"):
        filled.document()
    assert filled.store.documents.all() == []
    assert not list((filled.store.home / "incoming").iterdir())


def test_a_document_takes_the_place_of_another_in_one_step(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other was deleted first, so that on a full disk there was neither."""
    store, old, file = filled.store, filled.document(file=Path(__file__)), Path(__file__)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    for name, fails, error in (("disk_free", lambda _: 10, DiskFull), ("os.rename", crash, KeyboardInterrupt)):
        with monkeypatch.context() as patch:
            patch.setattr(f"sessions.documents.{name}", fails)
            with pytest.raises(error):
                filled.document(content={"pages": ["new"]}, file=file, instead_of=old.id)
        store.folders.sweep()
        assert store.documents.all() == [old]
        assert store.documents.content(old.id) == {"pages": ["one", "two"]}
        assert store.documents.file(old.id).exists()
    new = filled.document(content={"pages": ["new"]}, file=file, instead_of=old.id)
    assert new.id != old.id
    assert store.documents.all() == [new]
    assert store.documents.content(new.id) == {"pages": ["new"]}
    assert [each.name for each in (store.home / "documents").iterdir()] == [new.id]
    assert filled.document(content={"pages": ["newer"]}, instead_of=old.id) == new  # another program was first


def test_a_document_that_was_read_is_not_replaced(filled: Any) -> None:
    store, context = filled.store, filled.context()
    [old] = store.documents.all()
    with pytest.raises(InUse, match=f"delete {old.id} with what was read of it"):
        filled.document(content={"pages": ["new"]}, instead_of=old.id)
    assert (store.documents.all(), store.contexts.all()) == ([old], [context])
    assert store.documents.content(old.id) == {"pages": ["one", "two"]}
    assert not list((store.home / "incoming").iterdir())


def test_contexts_know_their_documents_in_order(filled: Any) -> None:
    store = filled.store
    one, two = filled.document("1" * 64), filled.document("2" * 64)
    both = filled.context(one, two)
    assert both.document_ids == [one.id, two.id]
    assert store.contexts.documents(both.id) == [one, two]
    paused = filled.context(one, status="paused")
    assert store.contexts.all(two.id) == [both]
    assert store.contexts.all() == [paused, both]


def test_a_context_is_called_after_its_documents_until_it_gets_a_title(filled: Any) -> None:
    store = filled.store
    first, second = filled.document(sha256="1" * 64, title="Emma"), filled.document(sha256="2" * 64, title="Ada")
    both = filled.context(second, first)
    assert (both.title, store.contexts.all()[0].title) == ("Ada, Emma", "Ada, Emma")
    store.documents.rename(first.id, "Emma, vol. 1")
    assert store.contexts.get(both.id).title == "Ada, Emma, vol. 1"
    assert store.contexts.rename(both.id, " Two\nnovels ").title == "Two novels"
    assert store.contexts.update(both.id, warnings=["Odd."]).title == "Two novels"
    assert store.contexts.rename(both.id, " ").title == "Ada, Emma, vol. 1"
    with pytest.raises(NotFound):
        store.contexts.rename("c-222222", "Lost")


def test_a_context_changes_only_where_it_may(filled: Any) -> None:
    context = filled.context(status="reading")
    changed = filled.store.contexts.update(
        context.id,
        status="ready",
        tokens_read=1000,
        seconds=2.5,
        usage={"device": torch.tensor(7), "rate": float("nan")},
    )
    assert (changed.status, changed.tokens_read, changed.seconds) == ("ready", 1000, 2.5)
    assert changed.usage == {"device": 7, "rate": None}
    with pytest.raises(TypeError, match="fingerprint"):
        filled.store.contexts.update(context.id, fingerprint="x")
    with pytest.raises(ValueError, match="finished"):
        filled.store.contexts.update(context.id, status="finished")
    with pytest.raises(StoreError, match="different documents"):
        filled.store.contexts.add(
            model="m", method="m", settings={}, budget=None, fingerprint="f", document_ids=[], tokens=0
        )
    for status in ("reading", "paused", "failed"):
        with pytest.raises(AlreadyRead):
            filled.store.contexts.update(context.id, status=status)
    assert filled.store.contexts.get(context.id).status == "ready"


def _everything(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_deleting_a_document_leaves_no_row_and_no_file(filled: Any) -> None:
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


def test_deleting_a_context_or_session_leaves_what_is_above(filled: Any) -> None:
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


def test_deleting_looks_up_what_it_deletes(filled: Any) -> None:
    """All measurements were gone through for every turn and job: 3 s for 300 turns, while nobody else could write."""
    session = filled.session()
    turn = filled.answered(session, "Who?", "Emma.")
    filled.store.jobs.add("answer", turn)
    asked: list[str] = []
    filled.store.database.connection.conn.set_trace_callback(asked.append)
    filled.store.documents.delete(filled.store.contexts.documents(session.context_id)[0].id)
    filled.store.database.connection.conn.set_trace_callback(None)
    deleting = [statement for statement in asked if statement.startswith(("SELECT", "DELETE"))]
    assert any(statement.startswith("DELETE FROM measurements") and turn in statement for statement in deleting)
    gone_through = [
        statement
        for statement in deleting
        if any("SCAN" in step["detail"] for step in filled.store.database.rows(f"EXPLAIN QUERY PLAN {statement}"))
    ]
    (jobs,) = gone_through  # once for each context, as what made it says so in its progress alone
    assert "'$.context'" in jobs


def test_what_a_live_worker_holds_is_not_deleted(filled: Any) -> None:
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


def test_what_another_program_reads_or_answers_is_not_deleted(
    filled: Any, other_process: Callable[..., subprocess.Popen]
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


def test_saving_for_a_deleted_context_makes_no_folder(filled: Any) -> None:
    context = filled.context()
    state = filled.store.contexts.state(context.id)
    filled.store.contexts.delete(context.id)
    with pytest.raises(NotFound):
        state.save({"kv": Part({"k": torch.ones(3)})}, {}, "f")
    assert not state.path.exists()


def test_nothing_is_saved_over_a_reading_that_is_finished(filled: Any) -> None:
    """A second reader of it, which began before that, left a checkpoint where the context had been."""
    context = filled.context(status="reading")
    state = filled.store.contexts.state(context.id)
    state.save({"kv": Part({"k": torch.ones(3)})}, {}, "f")
    filled.store.contexts.update(context.id, status="ready")
    with pytest.raises(AlreadyRead):
        state.save({"kv": Part({"k": torch.zeros(3)})}, {}, "f")
    assert torch.equal(state.load()[0]["kv"]["k"], torch.ones(3))


def test_the_sweep_takes_crash_leftovers_and_nothing_else(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, document = filled.store, filled.document()
    gone = filled.context(filled.document("b" * 64, file=Path(__file__)), status="reading")
    store.contexts.state(gone.id).save({"kv": Part({"k": torch.ones(3)})}, {}, "f")
    crashed = [store.home / "documents" / gone.document_ids[0], store.home / "contexts" / gone.id]
    with monkeypatch.context() as patch:
        patch.setattr("sessions.folders.remove_tree", lambda folder: None)
        store.documents.delete(*gone.document_ids)
    foreign = [store.home / "documents" / "Taxes", store.home / "documents" / "c-222222", store.home / "notes"]
    old, fresh = store.home / "incoming" / "d-333333.1", store.home / "incoming" / "d-444444.2"
    unknown = store.home / "sessions" / "s-222222"
    for folder in (*foreign, old, fresh, unknown):
        folder.mkdir()
        (folder / "file").write_text("x")
    os.utime(old, (time.time() - 3600,) * 2)
    assert all(folder.exists() for folder in crashed)
    with Store(store.home) as again:
        assert again.documents.content(document.id)
        assert again.folders.strays() == [unknown]
    assert not any(folder.exists() for folder in (*crashed, old))
    assert all((folder / "file").exists() for folder in (*foreign, fresh, unknown))


def test_an_older_database_in_its_place_costs_nothing(filled: Any, tmp_path: Path) -> None:
    """With one of last week, back from a backup, originals of what was ingested since went at the next start."""
    store = filled.store
    kept = filled.document()
    store.database.empty_log()
    shutil.copy(store.database.path, tmp_path / "backup.db")
    since = filled.document("b" * 64, file=Path(__file__))
    store.close()
    shutil.copy(tmp_path / "backup.db", store.database.path)
    for end in ("-wal", "-shm"):
        store.database.path.with_name(store.database.path.name + end).unlink(missing_ok=True)
    with Store(store.home) as again:
        assert [row.id for row in again.documents.all()] == [kept.id]
        assert again.folders.strays() == [store.home / "documents" / since.id]
    assert (store.home / "documents" / since.id / "original.py").read_text() == Path(__file__).read_text()


def test_a_crash_between_rename_and_commit_leaves_no_document(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The last thing before the commit, after the folder has its final name.
        real = documents_module.flush_directory
        patch.setattr(documents_module, "flush_directory", lambda p: crash(p) if p.name == "documents" else real(p))
        with pytest.raises(KeyboardInterrupt):
            filled.document()
    assert len(list((filled.store.home / "documents").iterdir())) == 1
    assert filled.store.documents.all() == filled.store.folders.strays() == []
    with Store(filled.store.home) as again:
        assert list((again.home / "documents").iterdir()) == []
    assert filled.document().title == "Emma"


def test_a_sweep_does_not_mind_folders_that_go_meanwhile(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process moves its new document out of `incoming` while this one looks there."""
    passing = filled.store.home / "incoming" / "d-222222.1"
    passing.mkdir()
    real = Path.iterdir

    def listed_then_gone(path: Path) -> Any:
        found = list(real(path))
        if path == passing.parent:
            passing.rmdir()
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", listed_then_gone)
    assert filled.store.folders.sweep() == []
    assert not passing.exists()


def test_nobody_waits_for_what_is_swept_up(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing a large folder took longer than others wait for the database."""
    left, free = filled.store.home / "contexts" / "c-222222", list[bool]()
    left.mkdir()
    filled.store.folders.note([left.name])

    def remove(folder: Path) -> None:
        free.append(not filled.store.database.connection.conn.in_transaction)
        folder.rmdir()

    monkeypatch.setattr("sessions.folders.remove_tree", remove)
    assert filled.store.folders.sweep() == [left]
    assert free == [True]


def test_deleting_makes_room_where_there_is_none_to_note_it(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting rows takes room in the log; a full disk could not be emptied by deleting what is on it."""
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
