"""The benchmark of a GGUF file's weights compares every form with the first."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType

from benchmarks.file_weights import measure
from benchmarks.pages.real import file_weights
from tests.engine.gguf_files import tiny_network, write_gguf


def test_forms_are_compared_with_the_first(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny_network("llama"), "llama", GGMLQuantizationType.Q8_0)
    forms = ["none:float32", "none:float32", "blocks:float32"]
    rows = [row for _, row in measure(str(path), forms, "the bright cat sat on a mat. " * 400, 1024)]
    assert [row["ratio"] for row in rows[:2]] == [1.0, 1.0]
    assert rows[1]["same_successor"] == 1.0
    assert rows[2]["quantize"] == "blocks"
    assert 0.9 < rows[2]["ratio"] < 1.1
    assert rows[2]["ratio"] != 1.0
    machine = {"device": "CPU", "threads": 1}
    _, _, table = file_weights([{**row, "model": path.name, "machine": machine} for row in rows])
    assert table.count("| `model.gguf` |") == 3
    assert "| blocks | float32 |" in table
