"""The check for a GPU runs here with tiny shapes: the same code, on the processor."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks.gpu_check import (
    BASELINES,
    NO_GPU,
    TINY_LENGTHS,
    Check,
    check_baseline,
    check_method,
    check_seam,
    compare,
    main,
    run,
    tables,
)
from benchmarks.random_models import SHAPES, config_of, random_model
from engine import METHODS, Machine, Planner, Rates, skeleton, skeleton_of

CPU = torch.device("cpu")
RATES = Rates(1e11, 1e10, 1e10, 1e11, 1e10)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return Check(CPU, True, psutil.virtual_memory().available, time.monotonic() + 200, tmp_path, TINY_LENGTHS)


@pytest.mark.parametrize("name", SHAPES)
def test_the_weights_of_real_shapes_have_the_planned_bytes(name: str, tmp_path: Path) -> None:
    """The planner's count for the published sizes, and the tensors really made for the tiny ones."""
    billions = {"Llama-3.1-8B": 8.03, "Qwen2.5-7B": 7.62, "Phi-3-mini": 3.82}
    assert skeleton(config_of(name), torch.bfloat16).parameters == pytest.approx(billions[name] * 1e9, rel=0.002)
    config = config_of(name, tiny=True)
    model = random_model(name, config, CPU, torch.float32, True, tmp_path)
    assert not any(each.is_meta for each in [*model.network.parameters(), *model.network.buffers()])
    made = 0
    for weight in model.network.parameters():
        made += weight.nbytes
        if (state := getattr(weight, "quant_state", None)) is not None:
            made += sum(
                each.nbytes for each in (state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code)
            )
    assert made == skeleton(config, torch.float32).weight_bytes("nf4")


@pytest.mark.parametrize("name", SHAPES)
def test_the_seam_holds_in_bf16(name: str, check: Check) -> None:
    check_seam(check, name)
    assert [row["ok"] for row in check.rows] == [True]


def test_methods_and_caches_are_measured_against_their_plans(check: Check) -> None:
    name = "Llama-3.1-8B"
    model = random_model(name, config_of(name, tiny=True), CPU, torch.float32, True, check.folder)
    free = psutil.virtual_memory().available
    planner = Planner(skeleton_of(model.network, model.spec), Machine(free, free, True, RATES), model.turn_length)
    over = time.monotonic() + 150
    check_baseline(check, model, "dense", over)
    for method in ("infinipot", "exact"):
        check_method(check, model, planner, method, over)
    compare(check.rows)
    assert {row["status"] for row in check.rows} == {"done"}
    for part in ("reading", "answering"):
        rows = [row for row in check.rows if row["part"] == part]
        assert [row["tokens"] for row in rows] == list(TINY_LENGTHS) * 3
        assert all(row["tokens_per_second"] > 0 and row["to_dense"] > 0 for row in rows)
    last = [row for row in check.rows if row["part"] == "reading"][-1]
    entry = 2 * model.spec.layers[0].kv_heads * model.spec.layers[0].head_size * len(model.spec.layers) * 2 + 4
    assert last["host_bytes"] == pytest.approx((TINY_LENGTHS[-1] + len(model.chat.prefix)) * entry, rel=0.01)
    assert "exact" in tables(check.rows)


def test_a_spent_share_says_not_reached(check: Check) -> None:
    def slow(over: float) -> None:
        while True:
            time.sleep(0.01)

    check.cell("reading", {"model": "m", "method": "slow"}, 0.0, slow)
    check.cell("reading", {"model": "m", "method": "broken"}, 1.0, lambda over: [][0])
    assert check.rows[0]["status"].startswith("not reached: stopped after")
    assert check.rows[1]["status"].startswith("failed: IndexError")
    assert check.rows[1]["ok"] is False
    check.ends = time.monotonic()
    run(check, [])
    assert check.rows[-1]["part"] == "kernels"


def test_the_whole_runs_and_every_cell_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    flags = ["--tiny", "--device", "cpu", "--models", "Llama-3.1-8B", "--minutes", "0.5", "--out", str(out)]
    assert main(flags) == 0
    rows = json.loads(out.read_text())["rows"]
    assert {row.get("method") for row in rows if row["part"] == "reading"} == {*BASELINES, *METHODS}
    assert all(row["status"] == "done" or row["status"].startswith("not reached") for row in rows)
    assert "reading" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert capsys.readouterr().err.strip() == NO_GPU
