"""Weights that were packed once are mapped at later starts, and a file that is not whole never gives a wrong weight."""

from __future__ import annotations

import logging
import os
import shutil
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors import safe_open

import engine.model
from engine import load_model
from engine.models import packed_file
from engine.models.gguf.kept import Kept
from engine.models.packed_file import PackedFile
from engine.models.products import Packed
from tests.engine.gguf_files import tiny_network, write_gguf
from tests.engine.test_file_layers import logits

Usage = namedtuple("Usage", "total used free")  # as shutil has it


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of a tiny model."""
    return write_gguf(tmp_path / "model.gguf", tiny_network("llama"), "llama", GGMLQuantizationType.Q4_1)


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each weight that is packed anew."""
    names: list[str] = []
    really = Kept.packed

    def packed(kept: Kept) -> Iterator[Packed]:
        names.append(kept.name)
        return really(kept)

    monkeypatch.setattr(Kept, "packed", packed)
    return names


def answer(path: Path) -> torch.Tensor:
    """Load the model, and return logits."""
    return logits(load_model(path, "cpu", quantize="blocks", packed=path.parent / "packed"), 20)


def test_weights_are_packed_once(path: Path, packings: list[str]) -> None:
    first, packed = answer(path), len(packings)
    (file,) = packed_file.packed_files(path.parent / "packed")
    with safe_open(file, "np") as found:
        assert {name.rsplit(".", 2)[0] for name in found.keys()} == set(packings)  # noqa: SIM118
    assert torch.equal(answer(path), first)
    assert len(packings) == packed
    os.utime(path, ns=(1, 1))  # as if it had been replaced
    assert torch.equal(answer(path), first)
    assert len(packings) == 2 * packed
    assert len(list((path.parent / "packed").iterdir())) == 1


def test_what_is_damaged_is_packed_anew(path: Path, packings: list[str], caplog: pytest.LogCaptureFixture) -> None:
    first = answer(path)
    (file,) = packed_file.packed_files(path.parent / "packed")
    whole, packed = file.read_bytes(), len(packings)

    changed = bytearray(whole)
    changed[-5] ^= 1  # of the last weight
    file.write_bytes(changed)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(answer(path), first)
    assert len(packings) == packed + 1
    assert "is damaged: its weights were packed anew." in caplog.text
    assert not file.exists()

    for damaged in (whole[: len(whole) // 2], whole[:5], whole.replace(b'"shape": [', b'"shape": [1', 1)):
        file.write_bytes(damaged)
        packings.clear()
        assert torch.equal(answer(path), first)
        assert len(packings) == packed
        assert file.stat().st_size == len(whole)


def test_a_full_disk_is_told_of(
    path: Path, packings: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(path)
    os.utime(path, ns=(1, 1))  # what was written is of no use any more, and gives way also then
    packings.clear()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(1, 1, packed_file.SPARE_BYTES))
    with caplog.at_level(logging.WARNING):
        answer(path)
    assert packings
    assert "The next start packs the weights anew, since" in caplog.text
    assert "cannot be written: the disk has too little room" in caplog.text
    assert not list((path.parent / "packed").iterdir())


def test_files_used_longest_ago_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_file, "MOST_BYTES", 250)
    for name, used in (("old", 2000), ("older", 1000), ("new", 3000)):
        file = tmp_path / f"{name}{packed_file.ENDING}"
        file.write_bytes(bytes(100))
        os.utime(file, (used, used))
    (tmp_path / f"gone{packed_file.ENDING}").symlink_to("none")  # like one that is removed once it is listed
    (tmp_path / "written.tmp").write_bytes(bytes(100))
    for free in (10**12, packed_file.SPARE_BYTES - 101):
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, free=free: Usage(1, 1, free))
        with pytest.raises(OSError, match="too little room"):
            packed_file.make_room(tmp_path, 251 if free == 10**12 else 100)
        assert len(list(tmp_path.iterdir())) == 5
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(1, 1, 10**12))
    packed_file.make_room(tmp_path, 100)
    assert sorted(each.stem for each in tmp_path.iterdir()) == ["gone", "new", "written"]


@pytest.mark.parametrize("when", ["its header", "its weights"])
def test_a_file_that_is_replaced_while_it_is_read_is_not_packed_for_later(
    when: str, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = (engine.model, "load_network") if when == "its header" else (Kept, "packed")
    really = getattr(owner, name)

    def replacing(*given: Any) -> Any:
        found = really(*given)
        os.utime(path, ns=(1, 1))
        return found

    monkeypatch.setattr(owner, name, replacing)
    with caplog.at_level(logging.WARNING):
        answer(path)
    assert "cannot be written: the model's file was replaced while it was read" in caplog.text
    assert not list((path.parent / "packed").iterdir())


def test_weights_of_a_file_that_was_replaced_during_a_load_are_not_mapped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of the new file got the packed weights of the old one."""
    answer(path)
    other = write_gguf(path.parent / "other.gguf", tiny_network("llama", 1), "llama", GGMLQuantizationType.Q4_1)
    expected, really = logits(load_model(other, "cpu", quantize="blocks"), 20), engine.model.load_network

    def replacing(*given: Any) -> Any:
        os.replace(other, path)
        return really(*given)

    monkeypatch.setattr(engine.model, "load_network", replacing)
    assert torch.equal(answer(path), expected)


def test_a_folder_that_cannot_be_made_is_told_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path.parent / "packed").write_text("")
    with caplog.at_level(logging.WARNING):
        answer(path)
    assert "cannot be written: File exists" in caplog.text


def test_a_file_begun_anew_is_left_to_the_program_that_did(tmp_path: Path) -> None:
    path, temporary = tmp_path / "a.safetensors", tmp_path / "a.tmp"

    def begun() -> PackedFile:
        return PackedFile(path, "stamp", [], lambda: True)

    for drop in (True, False):
        first = begun()
        os.utime(temporary, (1, 1))  # as if it had slept since then
        with begun():
            with suppress(KeyError), first:
                if drop:
                    raise KeyError
            assert not path.exists()
            assert temporary.exists()
        assert path.exists()
        path.unlink()
