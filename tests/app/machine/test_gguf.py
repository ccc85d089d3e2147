"""Models in GGUF files: their names and their rows in lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import AppError
from app.machine.local_models import local_folder, local_models
from app.machine.model_names import canonical_model, check_model, local_path
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
