"""The command line of the trainings: help, progress and wrong usage."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import SettingsError
from training.beacon import BeaconSettings
from training.flags import Progress as AnyProgress
from training.flags import settings_parser, show, train_from_flags
from training.locret.settings import LocretSettings
from training.pocket import Progress, evaluate, train
from training.pocket.prepare import Materials
from training.pocket.settings import PocketSettings

POCKET = Path(__file__).resolve().parents[2] / "assets" / "pocket"


def test_every_twentieth_step_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(1, 41):
        show(Progress(step, 4_000_000, 8.0, 0.25, "far", "chat 512", 1.5, 2.25, 0.5, 1.0))
    first, _ = capsys.readouterr().err.splitlines()
    assert first.strip() == (
        "25.0% far chat 512 step 20, 4.00 M tokens, 500,000 tokens/s, loss 1.500, language 2.250, right 50.0%"
    )


def test_help_has_the_settings_of_all_trainings_and_those_of_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: the help named attributes with underscores and left options without a description."""
    with pytest.raises(SystemExit):
        settings_parser(LocretSettings, "train").parse_args(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--alpha X weight of the difference between neighbours' scores in the loss (default: 0.0025)" in said
    assert "--steps N length of the run (default: 3000)" in said
    assert "--resume continue from the checkpoint in --work-dir" in said
    assert "_" not in said
    assert "None" not in said


@pytest.mark.parametrize("settings", [PocketSettings, LocretSettings, BeaconSettings])
def test_every_setting_is_an_option_with_its_default(settings: type[Any]) -> None:
    assert settings(**vars(settings_parser(settings, "train").parse_args([]))) == settings()


def _refuse(settings: LocretSettings, progress: Callable[[AnyProgress], None]) -> Path:
    raise SettingsError(f"There is no model {settings.model}.")


def test_settings_that_contradict_one_another_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: contradicting settings ended in a traceback."""
    monkeypatch.setattr("sys.argv", ["train", "--steps", "0"])
    with pytest.raises(SystemExit) as ended:
        train_from_flags(LocretSettings, _refuse, "train")
    assert ended.value.code == 2
    assert "train: error: steps must be 1 or more, not 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ("--heads 3 --kv-heads 2", 2, "heads (3) must be a multiple of kv_heads (2)"),
        ("--minutes nan", 2, "minutes must be a finite number, not nan"),
        ("--resume --work-dir {folder}", 1, "no checkpoint at"),
        ("--data-dir {folder} --work-dir {folder}", 1, "There is no {folder}/books/books.jsonl.xz"),
    ],
)
def test_the_pocket_training_says_what_is_wrong_in_a_sentence(
    flags: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Regression: wrong input ended in tracebacks."""
    given = flags.format(folder=tmp_path).split()
    monkeypatch.setattr("sys.argv", ["train", "--out-dir", str(tmp_path / "out"), *given])
    with pytest.raises(SystemExit) as ended:
        train_from_flags(PocketSettings, train, "train")
    # Python prints a sentence that is given in place of a status, and ends with 1.
    status, sentence = (1, ended.value.code) if isinstance(ended.value.code, str) else (ended.value.code, "")
    assert status == code
    assert said.format(folder=tmp_path) in sentence + capsys.readouterr().err


def test_the_pocket_training_is_a_program_that_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["", "--out-dir", str(tmp_path / "out"), "--resume", "--work-dir", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^python -m training\.pocket: .*no checkpoint at"):
        runpy.run_module("training.pocket", run_name="__main__")


def test_a_model_is_measured_in_its_own_tokens(
    settings: PocketSettings, materials: Materials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: with prose in another model's tokens, a model answered a fifth of its facts."""
    assert len(materials.tokenizer) > 0
    command = ["evaluate", "--model", str(POCKET), "--data-dir", str(settings.data_dir)]
    monkeypatch.setattr("sys.argv", [*command, "--work-dir", str(settings.work_dir), "--cells", "facts:300:full:1"])
    with pytest.raises(SettingsError, match="tokenised for another model"):
        evaluate.main()
    monkeypatch.setattr("sys.argv", [*command, "--cells", "facts:300:half:1"])
    with pytest.raises(SystemExit) as ended:
        evaluate.main()
    assert ended.value.code == 2


def test_what_cannot_be_trained_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a model that cannot be trained ended in a traceback."""
    monkeypatch.setattr("sys.argv", ["train", "--model", "nowhere"])
    with pytest.raises(SystemExit) as ended:
        train_from_flags(LocretSettings, _refuse, "train")
    assert ended.value.code == "train: There is no model nowhere."
