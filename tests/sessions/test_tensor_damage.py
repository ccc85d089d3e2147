"""TensorFolder: altered files are noticed; savers and readers at the same time are no damage."""

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from sessions import StoreCorrupt, StoreError, TensorFolder
from tests.sessions.helpers import begun, flip, part, values


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.write_bytes(file.read_bytes()[:-4]), "bytes"),
        (lambda file: file.write_bytes(b""), "bytes"),
        (lambda file: flip(file, 0), "header"),
        (lambda file: flip(file, 20), "header"),
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
    flip(next(folder.path.glob(f"{altered}.*")), at)
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


def test_a_damaged_folder_cannot_be_continued(folder: TensorFolder, tmp_path: Path) -> None:
    folder.save({"a": part(1.0)}, {}, "print")
    next(folder.path.glob("a.*")).write_bytes(b"")
    with pytest.raises(StoreCorrupt, match="has 0 bytes"):
        begun(folder, tmp_path / "longer")
    assert not TensorFolder(tmp_path / "longer").exists()


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
    real, loaded = safetensors.torch.load_file, []

    def overtaken(file: Path) -> dict[str, torch.Tensor]:
        loaded.append(file)
        if len(loaded) == 2:
            folder.save({"a": part(2), "b": part(2)}, {}, "f")
        return real(file)

    monkeypatch.setattr(safetensors.torch, "load_file", overtaken)
    assert values(folder) == {"a": 2, "b": 2}
    assert len(loaded) == 4
