"""Readings that do not fit are refused with the next step, before weights are loaded."""

import json
import os
import re
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import engine
from app.cli import main
from app.errors import AppError
from app.jobs.worker import Worker
from app.machine.fitting import estimate, require_memory
from app.machine.model_names import canonical_model, model_source, named_model, split_model
from app.machine.planning import measured_rates
from app.reading.documents import IngestOptions, add_documents
from app.reading.readings import read
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import TabState
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
        estimate(whole, engine.make_method("beacon"), service.home, "cpu", loaded=False)
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
    free_memory(monkeypatch, 2_000_000)
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
    free_memory(monkeypatch, 2_000_000)
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


def test_what_to_expect_is_said_before_there_is_a_text(
    service: Service, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(method: str, name: str = str(tiny), *, loaded: bool = False, **settings: Any) -> str:
        return estimate(name, engine.make_method(method, **settings), service.home, "cpu", loaded=loaded)

    times = r"a book is read at about [\d.,]+( M)? tokens/s, and answers begin after \d+(\.\d)? m?s"
    expected = rf"Fits a text of any length here; by the plan, {times}\."
    assert re.fullmatch(expected, said("infinipot"))
    assert "trained for 4,096 tokens: expect poor answers of longer texts with full" in said("full")
    free_memory(monkeypatch, 3_500_000)
    weights_count, loaded = (tokens_in(said("full", loaded=loaded)) for loaded in (False, True))
    assert 0 < weights_count < loaded < 10_000
    assert tokens_in(said("full", f"{tiny}:8bit")) > weights_count
    free_memory(monkeypatch, 100_000)
    with pytest.raises(AppError, match=r"100,000 tokens with infinipot needs .* of memory, and there are 100.0 kB"):
        said("infinipot")
    free_memory(monkeypatch, 10**10)
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: SimpleNamespace(free=10**6))
    assert tokens_in(said("exact")) < 4_000  # 256 bytes a token have to be saved
    assert service.models.held is None
    assert "is not on this machine" in said("full", "nobody/has-this")  # and nobody is asked for it


def tokens_in(line: str) -> int:
    found = re.match(r"Fits up to about ([\d,]+) tokens here", line)
    assert found, line
    return int(found[1].replace(",", ""))


def a_document(service: Service) -> str:
    row = service.store.documents.add(
        sha256="0" * 64, title="A", format="txt", pages=1, characters=3, content={}, file=None
    )
    return row.id


def test_the_form_says_what_to_expect_or_why_not(service: Service) -> None:
    keys = [("infinipot", "budget"), ("exact", "budget"), ("infinipot", "keep")]
    actions = Actions(service, Worker(service), TabState(service), keys, ["infinipot"], [])
    form = ("infinipot", None, 512, 512)
    assert actions.read.estimate(*form, 0.25)[0].startswith('<p class="quiet" role="status">Fits ')
    for tokens, seconds in ((18_000, 4.0), (900, 9.0)):  # the last reading is too short to say anything of a book
        row = service.store.contexts.add(
            model=service.models.default,
            method="infinipot",
            settings=engine.make_method("infinipot", budget=512, keep=0.25).settings(),
            budget=512,
            fingerprint="0" * 64,
            document_ids=[a_document(service)],
            tokens=tokens,
        )
        service.store.contexts.update(row.id, tokens_read=tokens, seconds=seconds)
    assert "the last like this was read at about 4,500 tokens/s" in actions.read.estimate(*form, 0.25)[0]
    assert "by the plan" in actions.read.estimate(*form, 0.5)[0]
    for method, budget, model, keep, words in (
        ("infinipot", 512, None, 7, "keep"),
        ("exact", 3, "", 0.25, "budget of 3"),
        ("exact", 512, "<b>/none", 0.25, "&lt;b&gt;/none is not on this machine"),
    ):
        [line] = actions.read.estimate(method, model, budget, budget, keep)
        assert words in line
        assert "Fits" not in line
