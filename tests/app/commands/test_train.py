"""`stockpot train locret` and `beacon`, and reading with these methods before and after it."""

import json
from pathlib import Path

import pytest

from app.cli import main
from tests.app.helpers import ROOT, book_text
from tests.app.tiny import make_tiny_model
from training.locret import LocretSettings
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
    ("what", "setting", "options"),
    [("locret", "heads", ["--width", "8"]), ("beacon", "weights", ["--window", "32", "--batch", "1"])],
)
def test_a_file_of_ones_own_weights_is_read_with(
    tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str], what: str, setting: str, options: list[str]
) -> None:
    model, own = make_tiny_model(tmp_path / "model"), tmp_path / "own.safetensors"
    book = tmp_path / "The Keeper.txt"
    book.write_text(book_text(12), encoding="utf-8")
    work = ["--work-dir", str(tmp_path / "work"), "--held-out", "1", "--out", str(own), "--max-tokens", "256"]
    train = ["train", what, "--model", str(model), "--data", str(rows), "--steps", "1", "--warmup", "0", *work]
    assert main([*train, *options]) == 0
    capsys.readouterr()
    here = ["--home", str(tmp_path / "home"), "--model", str(model), "--device", "cpu"]
    read_with = ["--method", what, "--budget", "64", "--weights", str(own), "--json"]
    read_with += ["--set", "window=32"] if what == "beacon" else []
    assert main([*here, "ingest", str(book), *read_with]) == 0
    context = json.loads(capsys.readouterr().out)["context"]
    assert main([*here, "ask", context, "Who sleeps?", "--max-tokens", "2"]) == 0
    capsys.readouterr()
    assert main([*here, "plan", "--tokens", "2000", *read_with]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["settings"][setting] == str(own)


def test_weights_are_for_methods_that_have_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--tokens", "2000", "--method", "infinipot", "--weights", "own.safetensors"]) == 2
    assert "--weights is for the methods locret and beacon" in capsys.readouterr().err
    twice = ["--set", "heads=a.safetensors", "--weights", "b.safetensors"]
    assert main(["plan", "--tokens", "2000", "--method", "locret", *twice]) == 2
    assert "--weights and --set heads= name the same file" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    "command",
    [
        ("--model", "org/model:nf4", "train", "locret"),
        ("train", "locret", "--model", "org/model:nf4"),
        ("--quantize", "nf4", "--model", "org/model", "train", "locret"),
        ("train", "locret", "--model", "org/model", "--quantize", "nf4"),
        ("--quantize", "8bit", "train", "locret", "--model", "org/model", "--quantize", "nf4"),
    ],
)
def test_heads_are_trained_for_the_weights_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    taken: list[LocretSettings] = []
    monkeypatch.setattr("training.locret.train", lambda settings, on_step: taken.append(settings))
    assert main(command) == 0
    assert [(settings.model, settings.quantize) for settings in taken] == [("org/model", "nf4")]


def test_beacons_are_not_trained_for_quantised_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quantize", "nf4", "train", "beacon"]) == 2
    assert "the model's own projections as they are, so quantize must be none, not nf4." in capsys.readouterr().err


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
    assert main(["train", "pocket", *folders]) == 2
    assert f"There is no {tmp_path / 'nowhere'}" in (said := capsys.readouterr().err)
    assert "--data-dir" in said
    folders += ["--pocket-dir", str(tmp_path / "pocket"), "--out", str(tmp_path / "heads.safetensors")]
    assert main(["train", "locret", *folders]) == 2
    assert "must be in it). Or give examples of your own: --data FILE.jsonl.\n" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["pocket", "locret", "beacon"])
def test_a_training_that_was_not_begun_cannot_go_on(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the pocket model's training ended with 1, and none took global options after its name."""
    assert main(["train", what, "--resume", "--work-dir", str(tmp_path), "--home", str(tmp_path), "--verbose"]) == 2
    said = f"stockpot: There is no checkpoint at {tmp_path / 'checkpoint.safetensors'}: start without --resume."
    assert said in capsys.readouterr().err


def test_a_quantisation_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """It was taken for a part of the model's name: "'pocket:nf5' is no folder here"."""
    with pytest.raises(SystemExit, match="2"):
        main(["train", "locret", "--quantize", "nf5"])
    assert "argument --quantize: invalid choice: 'nf5'" in capsys.readouterr().err
    assert main(["train", "pocket", "--model", "org/model"]) == 2
    assert "leave out --model and --quantize" in capsys.readouterr().err


def test_wrong_settings_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "locret", "--steps", "5", "--warmup", "5"]) == 2
    assert "warmup must lie between 0 and steps (5), not 5." in capsys.readouterr().err
