"""Models in GGUF files: their names and their rows in lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from app.errors import AppError
from app.formatting import byte_size
from app.home import PACKED
from app.machine.doctor import examine
from app.machine.loaded_model import Models
from app.machine.local_models import local_folder, local_models
from app.machine.model_names import canonical_model, check_model, local_path, shown_name
from app.machine.planning import PlanRequest, planner_for, report
from app.machine.recommended import form_in
from app.web.model_field import model_choices
from engine.models.file_layers import FileLinear
from engine.models.sizes import IN_SESSIONS
from tests.app.helpers import run_main
from tests.engine.gguf_files import tiny_network, write_gguf


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    write_gguf(tmp_path / "models" / "tiny.gguf", tiny_network("llama"), "llama")
    write_gguf(tmp_path / "models" / "parts.gguf", tiny_network("qwen2"), "qwen2", parts=40)
    (tmp_path / "models" / "bad.gguf").write_bytes(b"GGUF")
    return tmp_path


def test_files_in_the_home_are_listed_once_each(home: Path) -> None:
    found = {Path(each.name).name: each for each in local_models(home) if each.place == "home"}
    assert set(found) == {"tiny.gguf", "parts-00001-of-00002.gguf", "bad.gguf"}
    assert (found["tiny.gguf"].architecture, found["tiny.gguf"].window, found["tiny.gguf"].reason) == ("llama", 512, "")
    assert found["tiny.gguf"].weight_bytes["nf4"] < found["tiny.gguf"].weight_bytes["none"]
    assert "damaged or cut short" in found["bad.gguf"].reason


def test_a_file_is_named_in_full(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "models")
    path = home / "models" / "tiny.gguf"
    assert canonical_model("tiny.gguf:nf4") == f"{path.resolve()}:nf4"
    assert local_folder(str(path)) == path
    assert local_path(str(path)) is None
    check_model("tiny.gguf:8bit")
    for name in ("none.gguf", "./none.gguf:nf4"):
        with pytest.raises(AppError, match=r"There is no model at '.*none\.gguf': give a folder with config\.json"):
            check_model(name)


def test_a_file_in_blocks_is_loaded_planned_and_listed_so_where_a_processor_computes_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOCKPOT_DTYPE", "float32")
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "tiny.gguf"
    write_gguf(path, tiny_network("llama"), "llama", GGMLQuantizationType.Q8_0)
    models = Models(str(path), "cpu", lambda: None, tmp_path)
    before = models.stamp(models.default)
    model = models.get()
    assert any(isinstance(each, FileLinear) for each in model.network.modules())
    assert model.stamp == before
    [packed] = (tmp_path / PACKED).iterdir()
    size = byte_size(packed.stat().st_size)
    (packed.parent / "gone.safetensors").symlink_to("none")  # like one that is removed once it is listed
    assert run_main(capsys, "models", "clear", "--home", tmp_path) == (0, f"{size} of packed weights are removed.\n")
    assert run_main(capsys, "models", "clear", "--home", tmp_path) == (0, "There are no packed weights.\n")
    planner = planner_for(str(path), PlanRequest(100), tmp_path, "cpu")
    held = planner.model.weight_bytes("blocks")
    found = report(str(path), PlanRequest(100), tmp_path, "cpu")
    assert {(each["quantize"], each["bytes"]["weights"]) for each in found["plans"]} == {("blocks", held)}
    [listed] = [each for each in local_models(tmp_path) if each.path == str(path)]
    held = listed.bytes_in(form_in("cpu"))
    assert held == listed.weight_bytes["blocks"]
    layers = sum(isinstance(each, FileLinear) for each in model.network.modules())
    assert held - layers * IN_SESSIONS < listed.weight_bytes["none"]
    assert listed.bytes_in("none") == listed.weight_bytes["none"]
    [(label, _)] = [each for each in model_choices([listed], 1 << 40, form_in("cpu")) if each[1] == str(path)]
    assert byte_size(held) in label


def test_a_file_is_called_as_it_calls_itself(tmp_path: Path) -> None:
    network = tiny_network("llama")
    named = write_gguf(tmp_path / "tale-4b-instruct-q8_0.gguf", network, "llama", **{"general.name": "Tale 4B"})
    nameless = write_gguf(tmp_path / "tale.gguf", network, "llama", **{"general.name": None})
    assert (shown_name(str(named)), shown_name(f"{named}:int8")) == ("Tale 4B", "Tale 4B:int8")
    assert (shown_name(str(nameless)), shown_name(str(tmp_path / "gone.gguf"))) == ("tale", "gone")
    named.rename(tmp_path / "gone.gguf")
    assert shown_name(str(tmp_path / "gone.gguf")) == "Tale 4B", "once it has come"
    assert shown_name("/models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf") == "Qwen2.5 Coder 1.5B"


def test_a_check_of_a_file_in_blocks_makes_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_DTYPE", "float32")
    path = write_gguf(tmp_path / "tiny.gguf", tiny_network("llama"), "llama", GGMLQuantizationType.Q8_0)
    found = {each.name: each for each in examine(str(tmp_path / "above" / "home"), str(path), "cpu")}
    assert found["model"].ok
    assert found["device"].detail == "the model runs on cpu, each layer as one graph of ONNX Runtime."
    assert list(tmp_path.iterdir()) == [path]
