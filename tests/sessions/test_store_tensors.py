"""TensorFolder: what was saved comes back, whatever happens in between."""

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError

from sessions import DiskFull, FingerprintMismatch, NotFound, Part, Store, StoreCorrupt, StoreError, TensorFolder
from sessions import tensors as tensors_module
from sessions.files import tree_bytes
from tests.sessions.conftest import Filled


@pytest.fixture
def folder(tmp_path: Path) -> TensorFolder:
    return TensorFolder(tmp_path / "state")


def part(value: float, sealed: bool = False, size: int = 8) -> Part:
    return Part({"k": torch.full((2, size), value), "v": torch.arange(size)}, sealed)


def values(folder: TensorFolder) -> dict[str, float]:
    parts, _ = folder.load()
    return {name: tensors["k"][0, 0].item() for name, tensors in parts.items()}


def test_every_kind_of_tensor_comes_back(folder: TensorFolder) -> None:
    base = torch.randn(4, 6)
    tensors = {
        "bf16": torch.randn(3, 5).bfloat16(),
        "half": torch.randn(2).half(),
        "packed": torch.randint(0, 255, (7,), dtype=torch.uint8),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(2, 0, 64),
        "gradient": torch.ones(3, requires_grad=True),
        "transposed": base.t(),
        "strided": base[:, ::2],
        "top": base[:3],
        "overlapping": base[1:],
        "same": base,
    }
    meta = {"tokens": 7, "nested": {"a": [1, 2.5, None, "ü"]}}
    folder.save({"layer.0": Part(tensors), "nothing": Part({})}, meta, "print")
    parts, loaded = TensorFolder(folder.path).load("print")
    assert list(parts) == ["layer.0", "nothing"]
    assert parts["nothing"] == {}
    assert loaded == meta
    assert parts["layer.0"].keys() == tensors.keys()
    for name, tensor in parts["layer.0"].items():
        assert tensor.dtype == tensors[name].dtype, name
        assert torch.equal(tensor, tensors[name]), name


def test_nothing_is_taken_over_from_what_was_discarded(tmp_path: Path) -> None:
    folder = TensorFolder(tmp_path / "s-222222")
    folder.save({"slab": Part({"k": torch.ones(3)}, sealed=True)}, {}, "f")
    folder.discard()
    assert not folder.exists()
    assert list(folder.path.iterdir()) == []
    folder.save({"slab": Part({"k": torch.zeros(3)}, sealed=True)}, {}, "f")
    assert torch.equal(folder.load("f")[0]["slab"]["k"], torch.zeros(3))


def test_nothing_saved(folder: TensorFolder) -> None:
    assert not folder.exists()
    with pytest.raises(NotFound, match="No state is saved"):
        folder.load()


def test_a_save_replaces_the_state_before(folder: TensorFolder) -> None:
    folder.save({"a": part(1), "b": part(2)}, {"n": 1}, "f")
    folder.save({"b": part(3), "c": part(4)}, {"n": 2}, "f")
    assert values(folder) == {"b": 3, "c": 4}
    assert folder.load()[1] == {"n": 2}
    assert len(list(folder.path.iterdir())) == 3  # two files and the manifest


def test_what_was_loaded_is_private_and_outlives_a_later_save(folder: TensorFolder) -> None:
    folder.save({"a": part(1)}, {}, "f")
    loaded = folder.load()[0]["a"]["k"]
    loaded += 5  # a conversation that writes over what it loaded does not reach the disk
    assert values(folder) == {"a": 1}
    again = folder.load()[0]["a"]["k"]
    folder.save({"a": part(2)}, {}, "f")
    assert again[0, 0] == 1
    assert loaded[0, 0] == 6
    assert values(folder) == {"a": 2}


def test_sealed_parts_are_written_once(folder: TensorFolder) -> None:
    folder.save({"slab-0": part(1, sealed=True), "window": part(10)}, {}, "f")
    (slab,) = folder.path.glob("slab-0.*")
    before = slab.stat()
    folder.save({"slab-0": part(1, sealed=True), "slab-1": part(2, sealed=True), "window": part(11)}, {}, "f")
    assert (slab.stat().st_ino, slab.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert values(folder) == {"slab-0": 1, "slab-1": 2, "window": 11}


def test_sealed_parts_are_not_taken_over_from_something_else(folder: TensorFolder) -> None:
    def save_and_see(new: Part, fingerprint: str = "f") -> float:
        folder.save({"slab": new}, {}, fingerprint)
        return values(folder)["slab"]

    assert save_and_see(part(1, sealed=True)) == 1
    assert save_and_see(part(2, sealed=True), "another") == 2  # another fingerprint
    assert save_and_see(part(3, sealed=True, size=9), "another") == 3  # another shape
    (file,) = folder.path.glob("slab.*")
    file.write_bytes(file.read_bytes()[:-1])
    assert save_and_see(part(4, sealed=True, size=9), "another") == 4  # a truncated file
    next(folder.path.glob("slab.*")).unlink()
    assert save_and_see(part(5, sealed=True, size=9), "another") == 5  # a missing file
    assert save_and_see(part(6, size=9), "another") == 6  # not sealed (any more)
    assert save_and_see(part(7, sealed=True, size=9), "another") == 7  # was not sealed


def test_a_fingerprint_mismatch_names_both_sides(folder: TensorFolder) -> None:
    folder.save({"a": part(1)}, {}, "pocket/infinipot")
    with pytest.raises(FingerprintMismatch, match=r"'pocket/infinipot'.*'qwen/exact'") as caught:
        folder.load("qwen/exact")
    assert (caught.value.saved, caught.value.wanted) == ("pocket/infinipot", "qwen/exact")


@pytest.mark.parametrize("name", ["", "..", ".a", "a/b", "A", "a b", "ä", "a\n", "x" * 200])
def test_names_of_parts_are_checked(folder: TensorFolder, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a part"):
        folder.save({name: part(1)}, {}, "f")
    assert not folder.path.exists()


def _flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.write_bytes(file.read_bytes()[:-4]), "bytes"),
        (lambda file: file.write_bytes(b""), "bytes"),
        (lambda file: _flip(file, 0), "header"),
        (lambda file: _flip(file, 20), "header"),
    ],
)
def test_damaged_files_are_not_loaded(folder: TensorFolder, damage: Callable, told: str, sealed: bool) -> None:
    folder.save({"a": part(1, sealed), "b": part(2)}, {}, "f")
    damage(next(folder.path.glob("a.*")))
    with pytest.raises(StoreCorrupt, match=told):
        folder.load()


@pytest.mark.parametrize("altered", ["small", "slab"])
@pytest.mark.parametrize("at", [-1, -40, -1500, -(3 << 20)])
def test_one_altered_bit_is_noticed_at_load(folder: TensorFolder, altered: str, at: int) -> None:
    size = 1 << 19  # more than is read at once
    folder.save({"small": part(1, size=size), "slab": part(2, sealed=True, size=size)}, {}, "f")
    _flip(next(folder.path.glob(f"{altered}.*")), at)
    with pytest.raises(StoreCorrupt, match=rf"contents of .*{altered}.* delete state, then read") as caught:
        folder.load()
    assert "\n" not in str(caught.value)
    folder.load(contents=False)


def test_a_state_of_another_layout_says_what_to_do(folder: TensorFolder) -> None:
    folder.save({"a": part(1)}, {}, "f")
    state = json.loads(json.loads((folder.path / "manifest.json").read_text())["state"])
    text = json.dumps(state | {"version": 1})
    whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "state": text}
    (folder.path / "manifest.json").write_text(json.dumps(whole))
    with pytest.raises(StoreError, match=r"layout 1, this version reads 2: update, or delete state, then read"):
        folder.load()


def test_stamps_differ_when_a_file_was_touched(folder: TensorFolder) -> None:
    assert folder.stamps() == {}
    folder.save({"a": part(1), "b": part(2, sealed=True)}, {}, "f")
    for each in folder.path.iterdir():
        os.utime(each, (0, 0))  # some time ago: many systems count it in hundredths of a second, or in seconds
    stamps = folder.stamps()
    folder.load()
    assert folder.stamps() == stamps
    file = next(folder.path.glob("b.*"))
    _flip(file, -1)
    assert {name for name, stamp in folder.stamps().items() if stamp != stamps[name]} == {file.name}
    file.unlink()
    assert stamps.keys() - folder.stamps().keys() == {file.name}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"sha256": "0", "state": "{}"}'])
def test_a_damaged_manifest_is_not_believed(folder: TensorFolder, text: str) -> None:
    folder.save({"a": part(1, sealed=True)}, {}, "f")
    (folder.path / "manifest.json").write_text(text)
    with pytest.raises(StoreCorrupt, match=r"manifest\.json is damaged"):
        folder.load()
    folder.save({"a": part(2, sealed=True)}, {}, "f")  # and a new save mends it
    assert values(folder) == {"a": 2}


def test_a_manifest_cannot_point_outside(folder: TensorFolder, tmp_path: Path) -> None:
    folder.save({"a": part(1)}, {}, "f")
    state = json.loads(json.loads((folder.path / "manifest.json").read_text())["state"])
    state["parts"]["a"]["file"] = "../a.000001.safetensors"
    text = json.dumps(state)
    whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "state": text}
    (folder.path / "manifest.json").write_text(json.dumps(whole))
    with pytest.raises(StoreCorrupt, match="part a has no file that can be"):
        folder.load()


def _instants(save: Callable[[], object], folder: Path, copies: Path) -> list[Path]:
    """What a power cut would leave of a folder before and after each touch of the disk: a copy of it, or none."""
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


def test_no_room_is_seen_before_anything_is_written(folder: TensorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_readers_and_savers_at_once(folder: TensorFolder) -> None:
    folder.save({"a": part(0), "b": part(0)}, {"n": 0}, "f")
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                parts, meta = folder.load("f")
                assert {tensors["k"][0, 0].item() for tensors in parts.values()} == {float(meta["n"])}
        except BaseException as error:
            failures.append(error)

    def write(start: int) -> None:
        try:
            for n in range(start, start + 15):
                folder.save({"a": part(n), "b": part(n)}, {"n": n}, "f")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read), *(threading.Thread(target=write, args=[n]) for n in (100, 200))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stop.set()
    threads[0].join()
    assert failures == []
    assert len(list(folder.path.iterdir())) == 3


def test_a_save_in_the_middle_of_a_load_is_not_damage(folder: TensorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.save({"a": part(1), "b": part(1)}, {}, "f")
    real, calls = TensorFolder._load_part, []

    def overtaken(self: TensorFolder, entry: dict, contents: bool) -> dict:
        calls.append(entry["file"])
        if len(calls) == 2:
            folder.save({"a": part(2), "b": part(2)}, {}, "f")
        return real(self, entry, contents)

    monkeypatch.setattr(TensorFolder, "_load_part", overtaken)
    assert values(folder) == {"a": 2, "b": 2}
    assert len(calls) == 4


def begun(folder: TensorFolder, path: Path) -> TensorFolder:
    """A folder that begins with what is kept in another, but for a part of its own."""
    longer = TensorFolder(path)
    longer.begin_like(folder)
    longer.save({"own": part(4.0)}, {"more": True}, "other", beside=True)
    return longer


def test_parts_of_another_folder_are_kept_in_the_same_files(folder: TensorFolder, tmp_path: Path) -> None:
    folder.save({"a": part(1.0, sealed=True), "b": part(2.0), "own": part(3.0)}, {}, "print")
    before = folder.stamps()
    longer = begun(folder, tmp_path / "longer")
    assert values(longer) == {"own": 4.0, "a": 1.0, "b": 2.0}
    assert longer.load("other")[1] == {"more": True}
    assert folder.stamps() == before
    assert longer.stamps()["a.000001.safetensors"] == before["a.000001.safetensors"]
    # What was sealed there is not written again; what was not is, and the other folder keeps its own.
    longer.save({"own": part(4.0), "a": part(1.0, sealed=True), "b": part(5.0)}, {}, "other")
    assert values(longer) == {"own": 4.0, "a": 1.0, "b": 5.0}
    assert values(folder) == {"a": 1.0, "b": 2.0, "own": 3.0}
    assert longer.stamps()["a.000001.safetensors"] == before["a.000001.safetensors"]
    shutil.rmtree(folder.path)
    assert values(longer) == {"own": 4.0, "a": 1.0, "b": 5.0}


def test_where_files_cannot_have_two_names_they_are_copied(
    folder: TensorFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    folder.save({"a": part(1.0, sealed=True)}, {}, "print")
    monkeypatch.setattr(os, "link", link)
    longer = begun(folder, tmp_path / "longer")
    shutil.rmtree(folder.path)
    assert values(longer) == {"a": 1.0, "own": 4.0}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sessions.files.shutil.copyfile", full)
    with pytest.raises(DiskFull):
        TensorFolder(tmp_path / "third").begin_like(longer)


def test_a_damaged_folder_is_no_beginning_of_another(folder: TensorFolder, tmp_path: Path) -> None:
    folder.save({"a": part(1.0)}, {}, "print")
    next(folder.path.glob("a.*")).write_bytes(b"")
    with pytest.raises(StoreCorrupt, match="has 0 bytes"):
        begun(folder, tmp_path / "longer")
    assert not TensorFolder(tmp_path / "longer").exists()


def test_some_parts_can_be_loaded_without_the_others(folder: TensorFolder) -> None:
    folder.save({"a": part(1.0), "b": part(2.0)}, {"tokens": 7}, "print")
    next(folder.path.glob("a.*")).unlink()
    parts, meta = folder.load("print", only={"b"})
    assert list(parts) == ["b"]
    assert meta == {"tokens": 7}


def test_only_files_without_another_name_are_free_afterwards(folder: TensorFolder, tmp_path: Path) -> None:
    folder.save({"a": part(1.0), "b": part(2.0)}, {}, "print")
    longer = begun(folder, tmp_path / "longer")
    size = {file.name: file.stat().st_size for each in (folder, longer) for file in each.path.iterdir()}
    manifests = [(each.path / "manifest.json").stat().st_size for each in (folder, longer)]
    shared, own = size["a.000001.safetensors"] + size["b.000001.safetensors"], size["own.000002.safetensors"]
    assert tree_bytes(folder.path) == shared + manifests[0]
    assert tree_bytes(folder.path, freed=True) == manifests[0]
    assert tree_bytes(longer.path, freed=True) == own + manifests[1]
    assert tree_bytes(folder.path, longer.path, freed=True) == shared + own + sum(manifests)
    assert tree_bytes(tmp_path / "nowhere", freed=True) == 0


def test_what_a_killed_save_left_goes_when_the_home_is_opened(filled: Filled) -> None:
    """safetensors writes to `.tmpAbCdEf`, which no save looked for: gigabytes stayed until the context was deleted."""
    context = filled.context(status="reading")
    folder = filled.store.contexts.state(context.id)
    folder.save({"window": part(1)}, {}, "print")
    kept = sorted(folder.path.iterdir())
    for name in (".tmpAbCdEf", "window.000002.safetensors", "manifest.json.tmp"):
        (folder.path / name).write_bytes(b"half")
    with tensors_module._only_saver(folder.path), Store(filled.store.home):
        assert len([*folder.path.iterdir()]) == len(kept) + 3, "somebody saves"
    with Store(filled.store.home):
        assert sorted(folder.path.iterdir()) == kept
    (folder.path / ".tmpAbCdEf").write_bytes(b"half")
    folder.save({"window": part(2)}, {}, "print")
    assert not (folder.path / ".tmpAbCdEf").exists()
    assert values(folder) == {"window": 2}
