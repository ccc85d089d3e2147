"""Folders beside the database: sweeping and strays."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sessions import Part, Store
from tests.sessions.helpers import Filled


def test_the_sweep_takes_crash_leftovers_and_nothing_else(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_folders_that_an_older_database_does_not_know_are_kept(filled: Filled, tmp_path: Path) -> None:
    """The next start removed all documents that were newer than a restored database."""
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


def test_a_sweep_ignores_folders_that_vanish(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process moves its new document out of `incoming` during the sweep."""
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


def test_folders_are_removed_outside_the_write_lock(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing a large folder took longer than others wait for the lock."""
    left, free = filled.store.home / "contexts" / "c-222222", list[bool]()
    left.mkdir()
    filled.store.folders.note([left.name])

    def remove(folder: Path) -> None:
        free.append(not filled.store.database.connection.conn.in_transaction)
        folder.rmdir()

    monkeypatch.setattr("sessions.folders.remove_tree", remove)
    assert filled.store.folders.sweep() == [left]
    assert free == [True]
