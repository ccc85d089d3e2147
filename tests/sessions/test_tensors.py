"""TensorFolder: saving, loading, sharing files."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from sessions import DiskFull, FingerprintMismatch, NotFound, Part, TensorFolder
from sessions.files import tree_bytes
from tests.sessions.helpers import begun, flip, part, values


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


def test_a_discarded_state_is_not_reused(tmp_path: Path) -> None:
    folder = TensorFolder(tmp_path / "s-222222")
    folder.save({"slab": Part({"k": torch.ones(3)}, sealed=True)}, {}, "f")
    folder.discard()
    assert not folder.exists()
    assert list(folder.path.iterdir()) == []
    folder.save({"slab": Part({"k": torch.zeros(3)}, sealed=True)}, {}, "f")
    assert torch.equal(folder.load("f")[0]["slab"]["k"], torch.zeros(3))


def test_an_empty_folder_has_no_state(folder: TensorFolder) -> None:
    assert not folder.exists()
    with pytest.raises(NotFound, match="No state is saved"):
        folder.load()


def test_a_save_replaces_the_state_before(folder: TensorFolder) -> None:
    folder.save({"a": part(1), "b": part(2)}, {"n": 1}, "f")
    folder.save({"b": part(3), "c": part(4)}, {"n": 2}, "f")
    assert values(folder) == {"b": 3, "c": 4}
    assert folder.load()[1] == {"n": 2}
    assert len(list(folder.path.iterdir())) == 3  # two files and the manifest


def test_loaded_tensors_are_private_and_outlive_a_later_save(folder: TensorFolder) -> None:
    folder.save({"a": part(1)}, {}, "f")
    loaded = folder.load()[0]["a"]["k"]
    loaded += 5  # a conversation that writes over loaded tensors does not reach the disk
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


def test_sealed_parts_are_reused_only_if_they_fit(folder: TensorFolder) -> None:
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


def test_stamps_differ_when_a_file_was_touched(folder: TensorFolder) -> None:
    assert folder.stamps() == {}
    folder.save({"a": part(1), "b": part(2, sealed=True)}, {}, "f")
    for each in folder.path.iterdir():
        os.utime(each, (0, 0))  # some time ago: many systems count it in hundredths of a second, or in seconds
    stamps = folder.stamps()
    folder.load()
    assert folder.stamps() == stamps
    file = next(folder.path.glob("b.*"))
    flip(file, -1)
    assert {name for name, stamp in folder.stamps().items() if stamp != stamps[name]} == {file.name}
    file.unlink()
    assert stamps.keys() - folder.stamps().keys() == {file.name}


def test_parts_of_another_folder_share_its_files(folder: TensorFolder, tmp_path: Path) -> None:
    folder.save({"a": part(1.0, sealed=True), "b": part(2.0), "own": part(3.0)}, {}, "print")
    before = folder.stamps()
    longer = begun(folder, tmp_path / "longer")
    assert values(longer) == {"own": 4.0, "a": 1.0, "b": 2.0}
    assert longer.load("other")[1] == {"more": True}
    assert folder.stamps() == before
    assert longer.stamps()["a.000001.safetensors"] == before["a.000001.safetensors"]
    # Sealed parts of that folder are not written again; others are, and the other folder keeps its own.
    longer.save({"own": part(4.0), "a": part(1.0, sealed=True), "b": part(5.0)}, {}, "other")
    assert values(longer) == {"own": 4.0, "a": 1.0, "b": 5.0}
    assert values(folder) == {"a": 1.0, "b": 2.0, "own": 3.0}
    assert longer.stamps()["a.000001.safetensors"] == before["a.000001.safetensors"]
    shutil.rmtree(folder.path)
    assert values(longer) == {"own": 4.0, "a": 1.0, "b": 5.0}


def test_files_are_copied_where_links_are_not_supported(
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


def test_some_parts_can_be_loaded_without_the_others(folder: TensorFolder) -> None:
    folder.save({"a": part(1.0), "b": part(2.0)}, {"tokens": 7}, "print")
    next(folder.path.glob("a.*")).unlink()
    parts, meta = folder.load("print", only={"b"})
    assert list(parts) == ["b"]
    assert meta == {"tokens": 7}


def test_only_files_without_another_name_free_bytes(folder: TensorFolder, tmp_path: Path) -> None:
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
