"""Backups: written beside running programs, and restored only if no file was altered."""

import errno
import os
import random
import shutil
import stat
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from sessions import (
    INTERRUPTED,
    DiskFull,
    NotFound,
    Part,
    Store,
    StoreCorrupt,
    StoreError,
    back_up,
    restore,
)
from sessions.files import remove_tree
from tests.sessions.helpers import Filled, contents, part, values


def test_a_restored_home_is_the_one_that_was_backed_up(kept: Store, tmp_path: Path) -> None:
    backup = back_up(kept, tmp_path / "backup.tar")
    assert (backup.documents, backup.contexts, backup.sessions) == (2, 2, 1)
    assert stat.S_IMODE((tmp_path / "backup.tar").stat().st_mode) == 0o600
    assert list((kept.home / "incoming").iterdir()) == []
    assert restore(tmp_path / "backup.tar", tmp_path / "restored") == backup
    with Store(tmp_path / "restored") as again:
        assert contents(again) == contents(kept)
        assert [line for line in again.damage() if "original" not in line] == []  # their hashes are made up
        id = again.documents.all()[1].id
        assert again.documents.file(id).read_bytes() == kept.documents.file(id).read_bytes()
        files = [path for path in again.home.rglob("*") if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files} == {0}
        slabs = [path.stat().st_ino for path in files if path.name.startswith("slab")]
        assert (len(slabs), len(set(slabs))) == (2, 1)  # contexts still share one file
    assert back_up(kept, tmp_path / "second.tar").bytes == backup.bytes


def test_nothing_is_overwritten(kept: Store, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    back_up(kept, file)
    written = file.read_bytes()
    with pytest.raises(StoreError, match="is there already"):
        back_up(kept, file)
    with pytest.raises(StoreError, match="is not empty"):
        restore(file, kept.home)
    with pytest.raises(StoreError, match="There is no file"):
        restore(tmp_path / "other.tar", tmp_path / "restored")
    assert file.read_bytes() == written
    (tmp_path / "empty").mkdir()
    restore(file, tmp_path / "empty")
    assert (tmp_path / "empty" / "stockpot.db").exists()


def test_an_altered_backup_is_refused(kept: Store, tmp_path: Path) -> None:
    """Bytes that only fill up a block, or that nothing of the home depends on, may change."""
    file, expected, refused = tmp_path / "backup.tar", contents(kept), 0
    back_up(kept, file)
    data, chance = file.read_bytes(), random.Random(0)
    for number in range(60):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        file.write_bytes(damaged)
        home = tmp_path / f"restored {number}"
        try:
            restore(file, home)
        except StoreCorrupt:
            assert not home.exists()
            refused += 1
            continue
        with Store(home) as again:
            assert contents(again) == expected
    assert refused > 30
    assert not [path for path in tmp_path.iterdir() if "restoring" in path.name]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
def test_a_truncated_backup_is_refused(kept: Store, tmp_path: Path, share: float) -> None:
    file = tmp_path / "backup.tar"
    back_up(kept, file)
    with tarfile.open(file) as tar:
        end = tar.getmember("SHA256SUMS").offset_data
    os.truncate(file, int(end * share))
    with pytest.raises(StoreCorrupt, match="no whole backup"):
        restore(file, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_restored_home_belongs_to_no_running_process(filled: Filled, tmp_path: Path) -> None:
    store, context = filled.store, filled.context(status="failed")
    job = store.readings.queue("reading", context.id)
    store.jobs.add("ingest", "upload", {"files": ["uploads/1/Xylophonequartz.pdf"]})
    assert store.jobs.claim("worker").id == job.id
    turn = store.turns.add(filled.session().id, "Who?")
    store.turns.append_answer(turn.id, "It was")
    back_up(store, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "restored")
    with Store(tmp_path / "restored") as again:
        assert again.jobs.all() == again.workers.all() == []
        assert again.contexts.get(context.id).status == "paused"  # so that its reading can be continued
        ended = again.turns.get(turn.id)
        assert (ended.status, ended.answer, ended.error) == ("failed", "It was", INTERRUPTED)
    assert (store.jobs.get(job.id).status, store.turns.get(turn.id).status) == ("running", "answering")
    assert b"Xylophonequartz" not in (tmp_path / "backup.tar").read_bytes()  # what a job names is in no file


def test_a_home_can_be_backed_up_while_others_write(filled: Filled, tmp_path: Path) -> None:
    store, stop, failures = filled.store, threading.Event(), list[BaseException]()
    context = filled.context(status="reading")
    store.contexts.state(context.id).save({"window": part(0)}, {"n": 0}, "print")

    def save() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            sealed = {f"slab-{each}": part(each, sealed=True) for each in range(number % 50)}
            store.contexts.state(context.id).save({**sealed, "window": part(number)}, {"n": number}, "print")

    def add_and_delete() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            document = filled.document(f"{number:064}", f"Book {number}")
            made = filled.context(document, status="reading")
            store.contexts.state(made.id).save({"kv": Part({"k": torch.ones(9)})}, {}, "print")
            filled.answered(store.sessions.add(made.id), "Who?", "Nobody.")
            if number % 3:
                store.documents.delete(document.id)

    def watched(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=watched, args=[work]) for work in (save, add_and_delete)]
    for thread in threads:
        thread.start()
    try:
        for number in range(6):
            backup = back_up(store, tmp_path / f"{number}.tar")
            assert backup.documents > 0
            restore(tmp_path / f"{number}.tar", tmp_path / f"restored {number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    for number in range(6):
        with Store(tmp_path / f"restored {number}") as again:
            assert [*again.damage()] == again.folders.strays() == []
            parts, meta = again.contexts.state(context.id).load("print")
            assert parts["window"]["k"][0, 0] == meta["n"]


def test_a_save_in_the_middle_of_a_backup_does_not_mix(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = filled.context(status="reading")
    state = filled.store.contexts.state(context.id)
    state.save({"window": part(1)}, {"n": 1}, "print")

    def overtaken(folder: Path) -> None:  # called between a look at the manifest and at the files
        if folder.name == context.id and state.load()[1] == {"n": 1}:
            state.save({"window": part(2)}, {"n": 2}, "print")
        remove_tree(folder)

    monkeypatch.setattr("sessions.backup.remove_tree", overtaken)
    back_up(filled.store, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "restored")
    with Store(tmp_path / "restored") as again:
        assert values(again.contexts.state(context.id)) == {"window": 2}
        assert again.contexts.state(context.id).load()[1] == {"n": 2}


def test_files_are_copied_where_links_are_not_supported(
    kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    back_up(kept, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "restored")
    with Store(tmp_path / "restored") as again:
        assert contents(again) == contents(kept)


def test_a_full_disk_leaves_nothing_behind(kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "addfile", full)
        with pytest.raises(DiskFull):
            back_up(kept, tmp_path / "backup.tar")
    assert sorted(tmp_path.iterdir()) == before
    assert list((kept.home / "incoming").iterdir()) == []
    back_up(kept, tmp_path / "backup.tar")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(DiskFull):
        restore(tmp_path / "backup.tar", tmp_path / "restored")
    assert sorted(tmp_path.iterdir()) == before


def test_a_part_has_no_word_of_anything_else(filled: Filled, tmp_path: Path) -> None:
    kept, other = filled.session(), filled.session()
    filled.answered(kept, "Who is Emma?", "A handsome woman.")
    filled.answered(other, "What is the secret?", "Xylophonequartz.")
    unread = filled.document("c" * 64, "Zanzibarplan")
    filled.store.search.index(unread.id, [(1, 0, "Zanzibarplan, the text")])
    backup = back_up(filled.store, tmp_path / "part.tar", [kept.id])
    assert (backup.documents, backup.contexts, backup.sessions) == (1, 1, 1)
    data = (tmp_path / "part.tar").read_bytes().lower()
    assert b"handsome" in data
    assert b"xylophon" not in data
    assert b"zanzibar" not in data
    whole = back_up(filled.store, tmp_path / "whole.tar", [kept.context_id, other.context_id])
    assert (whole.contexts, whole.sessions) == (2, 2)
    for id in ("c-222222", "s-222222", "d-222222"):
        with pytest.raises(NotFound):
            back_up(filled.store, tmp_path / "none.tar", [id])
    assert not (tmp_path / "none.tar").exists()
