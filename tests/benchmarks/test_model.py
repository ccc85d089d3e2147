"""`stockpot bench model`: a row of agreement, and rows of what methods find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.model import PLACES, main, needles
from engine import load_model
from tests.engine.checkpoints import changed, save_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a small random model."""
    base = tmp_path_factory.mktemp("models")
    return changed(save_small(base / "short"), base / "small", max_position_embeddings=4096)


def test_each_code_stands_where_its_question_says(folder: Path) -> None:
    model = load_model(folder, "cpu")
    trial = needles(model, 2000, seed=1)
    assert (len(trial.ids), len(trial.questions)) == (2000, len(PLACES))
    for question in trial.questions:
        stated = model.decode(trial.ids[question.start : question.end].tolist())
        place = question.text.split("of the ")[1].split("?")[0]
        assert stated.strip() == f"The door code of the {place} is {question.answer}."
        assert not question.is_right("12345 or another")


def test_rows_are_printed_and_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    given = [
        "--model",
        str(folder),
        "--device",
        "cpu",
        "--tokens",
        "1K",
        "--methods",
        "full",
        "--json",
        "--out",
        str(out),
    ]
    assert main(given) == 0
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert first["top_1_agreement"] == 1.0
    assert first["largest_kl"] < 1e-6
    assert (second["what"], second["asked"], second["right"]) == ("full", 12, 0)  # random weights know nothing
    assert 0 < second["kept_bytes"] <= second["planned_bytes"]
    written = json.loads(out.read_text())
    assert (written["benchmark"], written["model"], written["quantize"]) == ("model", folder.name, "none")
