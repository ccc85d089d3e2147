"""One GGUF file of a repository, from a hub on this machine: whole, resumed, refused before it comes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from app.machine import hub_download
from app.machine.local_models import local_models
from app.machine.model_names import canonical_model, model_source
from tests.app.helpers import in_process
from tests.app.hub_server import Hub, point_to
from tests.engine.gguf_files import tiny_network, write_gguf

REPOSITORY = "somebody/Tale-GGUF"
FILE = "Tale-Q4_K_M.gguf"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    write_gguf(folder / FILE, tiny_network("llama"), "llama")
    write_gguf(folder / "Tale-Q8_0.gguf", tiny_network("qwen2"), "qwen2", parts=40)
    for name in ("mmproj-Q4_K_M.gguf", "README.md", "setup.py"):
        (folder / name).write_bytes(b"no model")
    return folder


@pytest.fixture
def hub(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub(REPOSITORY, published)
    point_to(hub.url, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub_download, "PAUSE_SEC", 0.0)
    yield hub
    hub.close()


def get(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> tuple[int, str, str]:
    return in_process(tmp_path / "home", capsys, "models", "get", name, "--json")


def test_one_file_comes_and_has_a_name(
    hub: Hub, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{REPOSITORY}:q4_k_m"
    hub.cut_at, hub.cuts, hub.busy = 50_000, 2, 1  # it goes on after each
    status, out, err = get(tmp_path, capsys, name)
    assert status == 0, err
    assert set(hub.fetched) == {FILE}
    fetched = json.loads(out)
    assert Path(fetched["path"]).read_bytes() == (published / FILE).read_bytes()
    assert fetched["bytes"] == fetched["fetched_bytes"] == (published / FILE).stat().st_size
    assert model_source(name) == fetched["path"] == canonical_model("tale", tmp_path / "home")
    [found] = [each for each in local_models(tmp_path / "home") if each.place == "cache"]
    assert (found.name, found.path, found.reason) == ("Tale-Q4_K_M", fetched["path"], "")
    hub.asked.clear()
    assert json.loads(get(tmp_path, capsys, REPOSITORY)[1])["fetched_bytes"] == 0, "the usual file is that one"
    assert hub.asked == []


def test_all_parts_of_a_file_come(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = get(tmp_path, capsys, f"{REPOSITORY}:Q8_0")
    assert status == 0, err
    assert sorted(set(hub.fetched)) == [f"Tale-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    assert json.loads(out)["path"].endswith("-00001-of-00002.gguf")


def test_what_would_not_open_is_refused_before_it_comes(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.architecture = "unheard-of"
    status, _, err = get(tmp_path, capsys, f"{REPOSITORY}:Q4_K_M")
    assert (status, hub.asked) == (1, [])
    assert "The architecture 'unheard-of' of somebody/Tale-GGUF is not read" in err
    hub.architecture = "llama"
    assert "choose one of Q4_K_M, Q8_0" in get(tmp_path, capsys, f"{REPOSITORY}:Q5_K_M")[2]
    with monkeypatch.context() as patched:
        patched.setattr(hub_download, "disk_free", lambda path: 1000)
        assert "free some space" in get(tmp_path, capsys, f"{REPOSITORY}:Q4_K_M")[2]
    hub.gated = True
    assert "accept its licence" in get(tmp_path, capsys, f"{REPOSITORY}:Q4_K_M")[2]
    assert hub.asked == []


def test_a_file_whose_checksum_differs_is_deleted(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files[FILE] = hub.files[FILE][:-1] + b"!"
    assert f"{FILE} of {REPOSITORY} was not what the hub says" in get(tmp_path, capsys, f"{REPOSITORY}:Q4_K_M")[2]
    assert not list((tmp_path / "hub").rglob("*.gguf"))
    assert not list((tmp_path / "hub").rglob("*.incomplete"))


def test_a_hub_that_stays_busy_is_said(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.busy = 99
    assert "refused with status 429: try again later" in get(tmp_path, capsys, f"{REPOSITORY}:Q4_K_M")[2]
