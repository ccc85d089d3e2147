"""The models on this machine and their needs."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

import engine
from app.jobs.worker import Worker
from app.machine.local_models import local_models
from app.machine.recommended import RECOMMENDED
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import TabState
from tests.app.helpers import run_main
from tests.engine.gguf_files import tiny_network, write_gguf


def test_a_broken_model_is_listed_with_the_reason_and_hides_no_other(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "home" / "models"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    for name in ("whole", "cut", "config", "tokenizer", "vocabulary", "unreadable"):
        shutil.copytree(tiny, models / name)
    (models / "cut" / "model.safetensors").write_bytes(b"")
    (models / "config" / "config.json").write_text("[1]")
    (models / "tokenizer" / "tokenizer.json").write_text("{}")
    (models / "unreadable" / "config.json").write_bytes(b"\xff\xfe")
    config = models / "vocabulary" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "vocab_size": 10}))
    reasons = {Path(each.name).name: each.reason for each in local_models(tmp_path / "home")}
    assert reasons["whole"] == ""
    looked = Mock(side_effect=engine.load_chat)
    monkeypatch.setattr("engine.load_chat", looked)
    for changed in (False, True):  # each page looked at all models anew, which took half a second
        if changed:
            (models / "whole" / "config.json").touch()
        local_models(tmp_path / "home")
        assert ("whole" in [Path(each.args[0]).name for each in looked.call_args_list]) == changed
    for name, words in (
        ("cut", "model.safetensors is damaged"),
        ("config", "config.json cannot be read"),
        ("tokenizer", "no tokenizer that can be loaded"),
        ("vocabulary", "vocab_size"),
        ("unreadable", "config.json cannot be read"),
    ):
        assert words in reasons[name]


def test_the_form_offers_models_in_all_their_bits_and_says_why_others_cannot_be_used(
    service: Service, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(service.home / "none"))
    actions, models = Actions(service, Worker(service), TabState(service), [], [], []), service.home / "models"
    shutil.copytree(tiny, models / "whole")
    choices, unusable = actions.form.find_models()
    offered = {value: label for label, value in choices["choices"]}
    assert {str(models / "whole"), f"{models / 'whole'}:8bit", f"{models / 'whole'}:nf4"} <= set(offered)
    assert re.fullmatch(r"whole in 8 bits · [\d.]+ kB · fits", offered[f"{models / 'whole'}:8bit"])
    assert unusable == ""
    broken = models / "<b>broken"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").unlink()
    choices, unusable = actions.form.find_models()
    assert {value: label for label, value in choices["choices"]} == offered
    assert "1 model on this computer cannot be used" in unusable
    assert "<b>&lt;b&gt;broken</b>: There are no weights" in unusable
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not any(value.endswith(":nf4") for _, value in actions.form.find_models()[0]["choices"])


def test_models_that_are_here_are_listed_with_their_needs(
    tiny: Path, config_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, cache = tmp_path / "home", tmp_path / "hub"
    shutil.copytree(tiny, home / "models" / "tiny")
    shutil.copytree(config_only, home / "models" / "without-weights")
    kept = cache / "models--some--one"
    shutil.copytree(tiny, kept / "snapshots" / "0123abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0123abc")
    (kept / "blobs").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    found = {each.name: each for each in local_models(home)}
    assert set(found) >= {"pocket", str(home / "models" / "tiny"), str(home / "models" / "without-weights")}
    mine = found[str(home / "models" / "tiny")]
    assert (mine.place, mine.architecture, mine.reason, mine.window) == ("home", "llama", "", 4096)
    assert mine.weight_bytes["none"] == 2 * mine.parameters
    assert mine.entry_bytes == 2 * 2 * 2 * 16 * 2  # key and value, 2 layers, 2 KV heads of 16, bfloat16
    assert "weights" in found[str(home / "models" / "without-weights")].reason
    assert found["some/one"].place == "cache"
    status, text = run_main(capsys, "models", "--home", home)
    assert status == 0
    assert "pocket" in text
    assert str(tiny) not in text
    named = run_main(capsys, "models", "--home", home, "--model", tiny)[1]
    assert [line for line in named.splitlines() if str(tiny) in line and "named" in line]
    listed = json.loads(run_main(capsys, "models", "--home", home, "--json")[1])
    assert {each["name"]: each["usable"] for each in listed}["some/one"]
    assert {each["name"] for each in listed if each["place"] == "hub"} == {each.name for each in RECOMMENDED}
    assert all(each.name in text for each in RECOMMENDED)


def test_layers_with_a_sliding_window_add_nothing_to_the_bytes_of_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    (tmp_path / "models").mkdir()
    write_gguf(tmp_path / "models" / "turns.gguf", tiny_network("gpt-oss"), "gpt-oss")
    [found] = [each for each in local_models(tmp_path) if each.place == "home"]
    assert found.entry_bytes == 2 * 3 * 2 * 32 * 2  # key and value, 3 of 6 layers, 2 KV heads of 32, bfloat16
