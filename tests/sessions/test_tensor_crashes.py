"""TensorFolder: a crash or a full disk during a save leaves the old state or the new one."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from safetensors import SafetensorError

from sessions import DiskFull, NotFound, Store, StoreError, TensorFolder
from sessions import tensors as tensors_module
from tests.sessions.helpers import Filled, part, values


def _instants(save: Callable[[], object], folder: Path, copies: Path) -> list[Path]:
    """Return copies of a folder before and after each change on the disk during a save.

    A copy does not exist if the folder did not.
    """
    found: list[Path] = []

    def keep() -> None:
        found.append(copies / str(len(found)))
        if folder.exists():
            shutil.copytree(folder, found[-1])

    def watched(real: Callable) -> Callable:
        def call(*arguments: Any, **named: Any) -> Any:
            keep()
            try:
                return real(*arguments, **named)
            finally:
                keep()
                if real is real_save:  # half a file
                    half = found[-1] / Path(arguments[1]).name
                    os.truncate(half, half.stat().st_size // 2)

        return call

    real_save = safetensors.torch.save_file
    with pytest.MonkeyPatch.context() as patch:
        for where, name in ((safetensors.torch, "save_file"), (os, "fsync"), (os, "replace")):
            patch.setattr(where, name, watched(getattr(where, name)))
        for name in ("unlink", "open"):
            patch.setattr(Path, name, watched(getattr(Path, name)))
        save()
    keep()
    return found


@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
def test_a_crash_at_any_instant_leaves_the_old_or_the_new_state(
    folder: TensorFolder, tmp_path: Path, first: bool
) -> None:
    old = {"slab-0": part(1, sealed=True), "window": part(10), "gone": part(20)}
    new = {"slab-0": part(1, sealed=True), "slab-1": part(2, sealed=True), "window": part(11)}
    expected = {"old": {"slab-0": 1, "window": 10, "gone": 20}, "new": {"slab-0": 1, "slab-1": 2, "window": 11}}
    if not first:
        folder.save(old, {"state": "old"}, "f")
    instants = _instants(lambda: folder.save(new, {"state": "new"}, "f"), folder.path, tmp_path)
    seen: list[str] = []
    for instant in instants:
        shutil.rmtree(folder.path, ignore_errors=True)
        if instant.exists():
            instant.rename(folder.path)
        if first and not folder.exists():
            with pytest.raises(NotFound):
                folder.load()
            seen.append("nothing")
        else:
            state = folder.load("f")[1]["state"]
            assert values(folder) == expected[state]
            seen.append(state)
        folder.save(new, {"state": "after"}, "f")  # life goes on, and the leftovers go
        assert values(folder) == expected["new"]
        assert len(list(folder.path.iterdir())) == 4
    assert len(instants) > 20
    assert set(seen) == {"nothing" if first else "old", "new"}
    assert seen == sorted(seen, key=["nothing", "old", "new"].index)  # and never back


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space (os error 28)")],
    ids=["from the system", "from safetensors"],
)
@pytest.mark.parametrize("where", ["first file", "second file", "manifest"])
def test_a_full_disk_leaves_the_old_state(
    folder: TensorFolder, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    folder.save({"slab": part(1, sealed=True), "window": part(10)}, {}, "f")
    before = sorted(folder.path.iterdir())
    real = safetensors.torch.save_file
    files: list[Path] = []

    def full(tensors: dict, file: Path) -> None:
        files.append(file)
        if (where == "first file" and len(files) == 1) or (where == "second file" and len(files) == 2):
            file.write_bytes(b"half")
            raise error
        real(tensors, file)

    def no_manifest(path: Path, data: bytes) -> None:
        path.with_name(path.name + ".tmp").write_bytes(data[:5])
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", full)
        if where == "manifest":
            patch.setattr(tensors_module, "write_whole", no_manifest)
        with pytest.raises(DiskFull, match="What was saved before is intact") as caught:
            folder.save({"slab": part(1, sealed=True), "next": part(2, sealed=True), "window": part(11)}, {}, "f")
    assert caught.value.needed_bytes
    assert caught.value.free_bytes > 0
    assert sorted(folder.path.iterdir()) == before
    assert values(folder) == {"slab": 1, "window": 10}


def test_missing_room_is_noticed_before_the_first_write(folder: TensorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.save({"a": part(1, sealed=True, size=1 << 18)}, {}, "f")
    monkeypatch.setattr(tensors_module, "disk_free", lambda _: 1 << 21)
    folder.save({"a": part(1, sealed=True, size=1 << 18), "b": part(2)}, {}, "f")  # the sealed part needs no room
    with pytest.raises(DiskFull, match="2,097,152 are free"):
        folder.save({"a": part(3, size=1 << 18)}, {}, "f")
    assert values(folder) == {"a": 1, "b": 2}


def test_an_error_after_the_new_manifest_is_valid_keeps_the_new_state(
    folder: TensorFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save({"a": part(1)}, {}, "f")
    real = tensors_module.write_whole

    def late(path: Path, data: bytes) -> None:
        real(path, data)
        raise OSError(errno.EIO, "the directory could not be flushed")

    monkeypatch.setattr(tensors_module, "write_whole", late)
    with pytest.raises(StoreError, match="could not be flushed"):
        folder.save({"a": part(2)}, {}, "f")
    assert values(folder) == {"a": 2}


def test_files_of_a_killed_save_are_removed_at_the_next_opening(filled: Filled) -> None:
    """safetensors writes to `.tmpAbCdEf`, which no save removed: gigabytes stayed until the deletion of the context."""
    context = filled.context(status="reading")
    folder = filled.store.contexts.state(context.id)
    folder.save({"window": part(1)}, {}, "print")
    kept = sorted(folder.path.iterdir())
    unlisted = [folder.path / name for name in (".tmpAbCdEf", "window.000009.safetensors", "manifest.json.tmp")]
    seen: list[bool] = []

    def open_the_home() -> None:
        for file in unlisted:
            file.write_bytes(b"half")
        with Store(filled.store.home):
            seen.append(any(file.exists() for file in unlisted))

    open_the_home()
    assert sorted(folder.path.iterdir()) == kept
    TensorFolder(folder.path, guard=open_the_home).save({"window": part(2)}, {}, "print")
    assert seen == [False, False, True]  # files of a save that is running stay
    assert len([*folder.path.iterdir()]) == len(kept)
    (folder.path / ".tmpAbCdEf").write_bytes(b"half")
    folder.save({"window": part(3)}, {}, "print")
    assert not (folder.path / ".tmpAbCdEf").exists()
    assert values(folder) == {"window": 3}
