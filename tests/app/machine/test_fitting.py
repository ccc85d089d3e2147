"""Readings that do not fit are refused with the next step, before weights are loaded."""

import json
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import engine
from app.cli import main
from app.errors import AppError
from app.machine.fitting import require_memory
from app.machine.forecast import room_here
from app.machine.model_names import canonical_model, model_source, named_model, split_model
from app.machine.planning import measured_rates
from app.reading.documents import IngestOptions, add_documents
from app.reading.readings import read
from app.service import Service
from tests.app.helpers import QWEN, begin


def test_weights_that_a_method_lacks_are_missed_before_the_model_is_loaded(
    service: Service, tiny: Path, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = str(tiny), tmp_path / "no weights"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(engine.WeightsError, match="--set gist=infinipot needs none"):
        begin(service, [], "recall", {}, whole)
    with pytest.raises(engine.WeightsError, match="stockpot train locret"):
        begin(service, [], "locret", {}, whole)
    with pytest.raises(AppError, match="stockpot train beacon"):
        room_here(whole, engine.make_method("beacon"), service.home, "cpu", loaded=False)
    assert service.models.held is None
    given = ("--home", str(tmp_path / "home"), "--model", str(broken), "--device", "cpu", "ingest", str(book))
    assert main([*given, "--method", "recall"]) == 1
    assert "--set gist=infinipot needs none" in capsys.readouterr().err
    assert main([*given, "--method", "full"]) == 1
    assert "damaged" in capsys.readouterr().err


def test_what_cannot_fit_is_refused_before_weights_are_read(
    service: Service, tiny: Path, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    broken = tmp_path / "no weights"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").write_bytes(b"never read")
    free_memory(monkeypatch, 4_500_000)
    with pytest.raises(AppError, match=r"tokens with full needs .* What would fit: infinipot"):
        begin(service, ids, "full", {}, str(broken))
    free_memory(monkeypatch, 10**10)
    with pytest.raises(engine.ModelNotFound, match="damaged"):
        begin(service, ids, "full", {}, str(broken))
    assert service.store.contexts.all() == []


@pytest.mark.parametrize(("asked", "offered"), [("", "8bit"), (":8bit", "8bit"), (":nf4", "nf4")])
def test_a_refusal_names_weights_of_fewer_bits(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, offered: str
) -> None:
    """It advised to close other programs, although the text fits beside weights in 8 bits."""
    monkeypatch.setenv("STOCKPOT_DTYPE", "float32")  # whatever this processor is fast in
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN))
    free_memory(monkeypatch, 25 * 10**9)
    method, chat = engine.make_method("full"), service.models.chat(service.models.default)
    with pytest.raises(AppError) as refused:
        require_memory(f"{folder}{asked}", method, 300_000, chat, "cpu")
    words = f" and weights in {offered} (:{offered} behind the model's name)"
    assert (words in str(refused.value)) == (asked != f":{offered}")
    assert "What would fit: " in str(refused.value)


def test_nobody_else_can_look_into_a_home_that_a_plan_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was readable for everybody, and stayed so when documents came into it."""
    import torch

    rates = engine.Rates(1e9, 1e9, 1e9, host_flops=1e9, host_memory=1e9)
    monkeypatch.setattr(engine, "measure_rates", lambda *given: rates)
    home = tmp_path / "home"
    before = os.umask(0o022)
    try:
        assert measured_rates(home, torch.device("cpu"), torch.float32) == rates
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / "rates.json").exists()


def test_a_model_is_named_with_its_quantisation(tiny: Path) -> None:
    assert split_model("org/model:nf4") == ("org/model", "nf4")
    assert split_model("C:/models/x") == ("C:/models/x", "none")
    assert named_model(None, "nf4") == "pocket:nf4"
    assert named_model("x:8bit", "none") == "x"
    assert named_model("x:8bit", None) == "x:8bit"
    assert canonical_model(f"{tiny}:nf4") == f"{tiny}:nf4"
    assert model_source("pocket:nf4") == model_source("pocket")


def free_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size, total=size))


def test_what_cannot_fit_is_refused_before_reading_and_told_what_would(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    service.models.get()
    free_memory(monkeypatch, 4_500_000)
    with pytest.raises(AppError, match=r"tokens with full needs .* What would fit: infinipot") as refused:
        begin(service, ids, "full", {})
    assert "tokens with full." in str(refused.value)
    assert service.store.contexts.all() == []
    free_memory(monkeypatch, 1000)
    with pytest.raises(AppError, match="smaller model"):
        begin(service, ids, "full", {})


def test_a_small_text_is_not_hindered_where_little_memory_is_free(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    service.models.get()
    free_memory(monkeypatch, 64_000_000)
    row = begin(service, ids, engine.DEFAULT_METHOD, {})
    assert read(service, row.id, lambda report: None).status == "ready"
