"""`stockpot train locret` and `beacon`, and what reading with these methods says before and does after it."""

import json
from pathlib import Path

import pytest

from app.cli import main
from tests.app.helpers import ROOT, book_text
from tests.app.tiny import make_tiny_model
from training.pocket import PocketSettings


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    row = {"text": "The fox sleeps. The dog is lazy. " * 4, "question": "Who sleeps?", "answer": "The fox."}
    path.write_text((json.dumps(row) + "\n") * 6, encoding="utf-8")
    return path


def test_heads_are_trained_and_read_with(tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_tiny_model(tmp_path / "model")
    book = tmp_path / "The Keeper.txt"
    book.write_text(book_text(12), encoding="utf-8")
    ingest = ["--home", str(tmp_path / "home"), "--model", str(model), "--device", "cpu", "ingest", str(book)]
    ingest += ["--method", "locret", "--budget", "64", "--set", "local=8", "--json"]

    assert main(ingest) == 1
    refused = capsys.readouterr()
    assert "stockpot train locret" in refused.err
    assert str(model / "locret.safetensors") in refused.err
    assert refused.out == ""

    work = ["--work-dir", str(tmp_path / "work"), "--held-out", "2", "--device", "cpu"]
    steps = ["--steps", "3", "--warmup", "1", "--width", "8", "--max-tokens", "256"]
    assert main(["train", "locret", "--model", str(model), "--data", str(rows), *steps, *work]) == 0
    assert capsys.readouterr().out.strip() == str(model / "locret.safetensors")

    assert main(ingest) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["method"], result["budget"], result["kv_entries"]) == ("locret", 64, 72)


def test_beacons_are_trained_and_read_with(tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_tiny_model(tmp_path / "model")
    book = tmp_path / "The Keeper.txt"
    book.write_text(book_text(12), encoding="utf-8")
    ingest = ["--home", str(tmp_path / "home"), "--model", str(model), "--device", "cpu", "ingest", str(book)]
    ingest += ["--method", "beacon", "--budget", "64", "--set", "window=32", "--set", "ratio=8", "--json"]
    assert main(ingest) == 1
    assert "stockpot train beacon" in capsys.readouterr().err

    work = ["--work-dir", str(tmp_path / "work"), "--held-out", "1", "--device", "cpu", "--window", "32"]
    steps = ["--steps", "2", "--warmup", "1", "--batch", "1", "--max-tokens", "256"]
    assert main(["train", "beacon", "--model", str(model), "--data", str(rows), *steps, *work]) == 0
    assert capsys.readouterr().out.strip() == str(model / "beacon.safetensors")

    assert main(ingest) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["method"], result["budget"]) == ("beacon", 64)
    assert result["kv_entries"] <= 64 + 32 + 4


@pytest.mark.parametrize(
    ("before", "after", "seed"),
    [((), (), 20), (("--seed", "0"), (), 0), (("--seed", "5"), (), 5), (("--seed", "5"), ("--seed", "6"), 6)],
)
def test_the_pocket_model_is_trained_with_the_seed_that_was_given(
    monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...], after: tuple[str, ...], seed: int
) -> None:
    taken: list[PocketSettings] = []
    monkeypatch.setattr("training.pocket.train", lambda settings, on_step: taken.append(settings))
    assert main([*before, "train", "pocket", *after]) == 0
    assert [settings.seed for settings in taken] == [seed]


def test_folders_of_the_pocket_training_lie_in_the_repository_wherever_it_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[PocketSettings] = []
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("training.pocket.train", lambda settings, on_step: taken.append(settings))
        assert main(["train", "pocket"]) == 0
    assert taken[0].out_dir == ROOT / "assets" / "pocket"
    assert taken[0].work_dir == ROOT / "runs" / "pocket"
    assert taken[0].data_dir == ROOT.parent / "shared" / "data"
    folders = ["--data-dir", str(tmp_path / "nowhere"), "--work-dir", str(tmp_path / "work")]
    assert main(["train", "pocket", *folders]) == 1
    assert f"There is no {tmp_path / 'nowhere'}" in (said := capsys.readouterr().err)
    assert "--data-dir" in said


def test_wrong_settings_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "locret", "--steps", "5", "--warmup", "5"]) == 2
    assert "warmup must lie between 0 and steps (5), not 5." in capsys.readouterr().err
