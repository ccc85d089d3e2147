"""Downloads from a hub: complete, interrupted and resumed, and all errors."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import engine
from app.errors import UsageError
from app.machine import hub_download
from app.machine.hub import hub_id
from app.machine.local_models import local_folder, local_models
from tests.app.helpers import in_process
from tests.app.hub_server import Hub, point_to

NAME = "somebody/tiny"
WEIGHTS = "model.safetensors"


@pytest.fixture
def published(tiny: Path, tmp_path: Path) -> Path:
    """Return the tiny model as published on a hub, with files that nobody needs."""
    folder = shutil.copytree(tiny, tmp_path / "published")
    for name in ("modeling_tiny.py", "pytorch_model.bin", "training_args.bin", "consolidated.safetensors"):
        (folder / name).write_bytes(b"print('no')")
    return folder


@pytest.fixture
def hub(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub(NAME, published)
    point_to(hub.url, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub_download, "PAUSE_SEC", 0.0)
    yield hub
    hub.close()


def get(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str = NAME, *more: str) -> tuple[int, str, str]:
    return in_process(tmp_path / "home", capsys, "models", "get", name, *more)


def parts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "hub").rglob("*.incomplete"))


def test_a_model_comes_whole_without_code_or_pickles(
    hub: Hub, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = get(tmp_path, capsys)
    assert status == 0, err
    assert out.startswith("somebody/tiny is here, ")
    assert set(hub.fetched) == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        WEIGHTS,
    }
    folder = local_folder(NAME)
    assert folder is not None
    assert all((folder / name).read_bytes() == (published / name).read_bytes() for name in hub.fetched)
    [found] = [each for each in local_models(tmp_path / "home") if each.name == NAME]
    assert (found.place, found.reason) == ("cache", "")
    assert engine.load_model(NAME, "cpu").spec.window == 4096
    assert parts(tmp_path) == []


def test_what_is_here_is_not_fetched_again(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = json.loads(in_process(tmp_path, capsys, "models", "--json", "get", NAME)[1])
    assert first["bytes"] == first["fetched_bytes"] == sum(len(hub.files[name]) for name in hub.fetched)
    hub.asked.clear()
    again = json.loads(get(tmp_path, capsys, f"{NAME}:nf4", "--json")[1])
    assert again == {**first, "fetched_bytes": 0}
    assert hub.asked == []


def test_weights_in_several_files_are_those_of_the_index(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = load_file(published / WEIGHTS)
    (published / WEIGHTS).unlink()
    names = sorted(tensors)
    placed = {name: f"model-0000{1 + (each > 3)}-of-00002.safetensors" for each, name in enumerate(names)}
    for file in set(placed.values()):
        save_file({name: tensors[name] for name in names if placed[name] == file}, published / file)
    (published / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    hub = Hub(NAME, published)
    try:
        point_to(hub.url, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        status, _, err = get(tmp_path, capsys)
    finally:
        hub.close()
    assert status == 0, err
    assert {name for name in hub.fetched if name.endswith(".safetensors")} == set(placed.values())


def test_a_connection_that_breaks_is_made_again_and_goes_on(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.cut_at, hub.cuts = 50_000, 3
    status, out, err = get(tmp_path, capsys, NAME, "--json")
    assert status == 0, err
    asked = [ranged for name, ranged in hub.asked if name == WEIGHTS]
    assert asked == [None, "bytes=50000-", "bytes=100000-", "bytes=150000-"]
    assert json.loads(out)["fetched_bytes"] == json.loads(out)["bytes"]


def test_a_connection_that_breaks_again_and_again_is_given_up(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.cut_at, hub.cuts = 0, 100
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "does not answer" in err
    assert "goes on from what has come" in err
    assert hub.fetched.count(WEIGHTS) == hub_download.TRIES + 1


def test_after_ctrl_c_the_same_command_goes_on(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.cut_at, hub.cuts = 50_000, 1
    with monkeypatch.context() as patched:
        whole_stream = hub_download._Fetch._stream

        def stopped(*given: object) -> None:
            try:
                whole_stream(*given)  # type: ignore[arg-type]
            except Exception:
                raise KeyboardInterrupt from None

        patched.setattr(hub_download._Fetch, "_stream", stopped)
        status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "Stopped." in err
    assert "try again, which goes on" in err
    assert [path.stat().st_size for path in parts(tmp_path)] == [50_000]
    assert local_folder(NAME) is None  # an incomplete one is not taken for the model
    hub.asked.clear()
    assert get(tmp_path, capsys)[0] == 0
    assert hub.asked == [(WEIGHTS, "bytes=50000-")]


def test_a_hub_that_knows_no_ranges_sends_all_again(
    hub: Hub, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.cut_at, hub.cuts, hub.ranged = 50_000, 1, False
    assert get(tmp_path, capsys)[0] == 0
    folder = local_folder(NAME)
    assert folder is not None
    assert (folder / WEIGHTS).read_bytes() == (published / WEIGHTS).read_bytes()


@pytest.mark.parametrize("name", [WEIGHTS, "tokenizer.json"])
def test_a_file_that_differs_is_deleted_and_named(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    whole = hub.files[name]
    hub.files[name] = whole[:-1] + b"!"
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert f"{name} of somebody/tiny was not what the hub says" in err
    assert parts(tmp_path) == []
    hub.files[name] = whole
    assert get(tmp_path, capsys)[0] == 0


def test_a_file_that_was_damaged_here_is_found(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert get(tmp_path, capsys)[0] == 0
    folder = local_folder(NAME)
    assert folder is not None
    kept = (folder / WEIGHTS).resolve()
    kept.write_bytes(kept.read_bytes()[:-1] + b"!")
    assert "checksum differs" in get(tmp_path, capsys)[2]
    assert get(tmp_path, capsys)[0] == 0
    assert kept.read_bytes() == hub.files[WEIGHTS]


def test_a_disk_that_is_too_small_is_said_before_weights_are_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub_download, "disk_free", lambda path: len(hub.files[WEIGHTS]) - 1)
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "more on the disk" in err
    assert "HF_HOME" in err
    assert WEIGHTS not in hub.fetched


def test_an_architecture_is_refused_before_weights_are_fetched(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {**json.loads(hub.files["config.json"]), "model_type": "bert"}
    hub.files["config.json"] = json.dumps(facts).encode()
    hub.listed["config.json"] = hub._described("config.json", hub.files["config.json"])
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "bert" in err
    assert WEIGHTS not in hub.fetched


@pytest.mark.parametrize(("lacking", "said"), [("config.json", "has no config.json"), (WEIGHTS, "has no weights")])
def test_a_model_without_what_is_needed_is_refused(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], lacking: str, said: str
) -> None:
    del hub.listed[lacking]
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert said in err
    assert hub.asked == []


def test_an_index_leads_to_no_other_files(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = json.dumps({"weight_map": {"a": "training_args.bin"}}).encode()
    del hub.listed[WEIGHTS]
    hub.files[hub_download.INDEX] = index
    hub.listed[hub_download.INDEX] = hub._described(hub_download.INDEX, index)
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "'training_args.bin'" in err
    assert "training_args.bin" not in hub.fetched


def test_what_the_hub_refuses_is_said_with_what_to_do(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = get(tmp_path, capsys, "ibm-granite/granite-4.1-3-GGUF")
    assert status == 1
    assert "Did you mean ibm-granite/granite-4.1-3b-GGUF:Q4_K_M?" in err
    hub.gated = True
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert f"accept its licence at {hub.url}/somebody/tiny" in err
    assert "HF_TOKEN" in err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in get(tmp_path, capsys)[2]


def test_a_token_is_for_the_hub_alone(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.token = "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "does not let this token have somebody/tiny" in err
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert get(tmp_path, capsys)[0] == 0
    assert hub.told == [None]


def test_without_a_network_that_is_said(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point_to("http://127.0.0.1:9", monkeypatch)  # nobody listens there
    status, _, err = get(tmp_path, capsys)
    assert status == 1
    assert "does not answer" in err
    assert "Traceback" not in err
    point_to(f"{hub.url}/login", monkeypatch)  # a login page for every request
    hub.page = b"<html>"
    assert "does not answer" in get(tmp_path, capsys)[2]


def test_names_are_hub_ids_or_short_ones_of_recommended_models() -> None:
    assert hub_id("granite-4.1-3b:nf4") == "ibm-granite/granite-4.1-3b-GGUF:Q4_K_M"
    assert hub_id("somebody/tiny") == NAME
    assert hub_id("somebody/tiny-GGUF:UD-Q4_K_XL") == "somebody/tiny-GGUF:UD-Q4_K_XL"
    for name, said in (
        ("Granite-4.1-3", "Did you mean ibm-granite/granite-4.1-3b-GGUF:Q4_K_M?"),
        ("zzz", "Give a hub id"),
        ("pocket", "comes with Stockpot"),
        ("./a/b", "no hub id"),
    ):
        with pytest.raises(UsageError, match=said.replace("?", r"\?")):
            hub_id(name)


def test_a_mistyped_word_after_models_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = in_process(tmp_path, capsys, "models", "got", "Qwen3-8B")
    assert status == 2
    assert "did you mean get?" in err
