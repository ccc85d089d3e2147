"""Runs llama.cpp's side of a comparison in another interpreter."""

import sys
from pathlib import Path

import pytest

from benchmarks.llama_cpp import run_script
from benchmarks.llama_cpp_speed import compared
from benchmarks.pages.real import llama_cpp

ECHO = "import json, sys; print(json.load(sys.stdin)['model'])"


def test_a_script_is_asked_in_json_and_its_failure_is_told():
    python = Path(sys.executable)
    assert run_script(python, ECHO, {"model": "a.gguf"}).strip() == "a.gguf"
    with pytest.raises(RuntimeError, match=r"cannot read a.gguf: .*no such package"):
        run_script(python, "raise SystemExit('no such package')", {"model": "a.gguf"})


def test_ratios_above_one_mean_that_stockpot_is_ahead():
    def speed(reading: float, first: float, answering: float) -> dict[str, float]:
        return {"reading": reading, "first_token": first, "answering": answering}

    row = compared([speed(200, 1, 20), speed(100, 2, 10)], [speed(100, 4, 40), speed(100, 4, 40)])
    assert row["reading"]["ratios"] == [1, 2]
    assert row["first_token"]["ratios"] == [2, 4]
    assert row["answering"] == {"ours": 15, "theirs": 40, "ratios": [0.25, 0.5]}
    facts = {"file": "a.gguf", "method": "full", "quantize": "none", "tokens": 4096, "model": "a.gguf"}
    row |= facts | {"machine": {"device": "CPU", "threads": 2}}
    assert "150 / 100: ×1.50 [1.00–2.00]" in llama_cpp([row])[2]
