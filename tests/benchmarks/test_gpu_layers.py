"""Attention and experts of one layer are measured with tiny shapes, on the processor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.gpu_check import attention, experts, stages
from benchmarks.gpu_check.__main__ import TINY_LENGTHS
from benchmarks.gpu_check.attention import ANSWER, FLASH, HIP_ATTN, LAST, QUERIES, cells, check_attention, memory_of
from benchmarks.gpu_check.check import Check
from benchmarks.gpu_inputs import Heads
from engine import make_method
from engine.models.experts import PackedExperts
from engine.parts.selectors.stages import parse_stages
from engine.parts.window import WindowStore
from tests.benchmarks.patient_check import patient_check

pytestmark = pytest.mark.usefixtures("few_repetitions")
CPU = torch.device("cpu")


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setattr(attention, "LLAMA", Heads(4, 2, 32))
    return patient_check(tmp_path, TINY_LENGTHS)


@pytest.mark.parametrize("tiny", [True, False])
def test_a_pass_of_prefill_fits_what_is_measured(check: Check, tiny: bool) -> None:
    """Regression: a pass of 2,048 queries outgrew the stream of 1,024 and read missing rows."""
    check.tiny = tiny
    memory = memory_of(check)
    assert QUERIES[tiny] <= min(memory.evictor.room(), memory.pass_limit())


def test_attention_of_one_layer_is_measured(check: Check) -> None:
    """It covers a whole period of the slowest stage, beside other installed packages."""
    assert (
        max(stage.refresh for stage in parse_stages(make_method("infinitehip", **FLASH).settings()["stages"])) == ANSWER
    )
    check_attention(check)
    rows = [row for row in check.rows if row["part"] == "attention"]
    assert [(row["what"], row["length"]) for row in rows] == [(c["what"], c["length"]) for c in cells(check)]
    assert {row["status"] for row in check.rows} == {"done"}
    assert all(row["to_dense"] == row["sdpa_seconds"] / row["seconds"] > 0 for row in rows)


def test_each_stage_of_pruning_is_measured(check: Check) -> None:
    """Regression: no row timed the first stage of a prefill, which takes most of the time at a million tokens."""
    check.lengths = TINY_LENGTHS[1:2]
    check_attention(check)
    rows = [row for row in check.rows if row["part"] == "stages"]
    cells = stages.cells(check.lengths)
    assert [(row["what"], row["keys"]) for row in rows] == [(cell["what"], cell["keys"]) for cell in cells]
    for row in rows:
        parts = [row[name] for name in ("stage_1", "stage_2", "attention")]  # tiny shapes have two stages
        assert min(parts) > 0
        assert row["all"] == pytest.approx(sum(parts))
        if row["what"] == stages.PREFILL:
            assert row["seconds_for_32k"] == pytest.approx(row["all"] * 32768 / QUERIES[True])
        else:
            assert row["from_stage_1"] == pytest.approx(row["all"])
            assert row["from_stage_2"] == pytest.approx(row["all"] - row["stage_1"])
            mean = row["attention"] + row["stage_1"] / 96 + row["stage_2"] / 24
            assert row["mean_3k_flash"] == pytest.approx(mean)


def test_attention_is_computed_only_where_it_is_timed(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: untimed passes up to a million tokens attended to everything and used up the time;
    and the first answer was timed while its kernels were compiled.
    """
    passes: list[tuple[int, int]] = []
    attending = attention._attending

    def noted(check: Check, memory: WindowStore, source: Tensor) -> float:
        passes.append((memory.seen, len(source)))
        return attending(check, memory, source)

    monkeypatch.setattr(attention, "_attending", noted)
    check.lengths = (256, 2048)
    check_attention(check)
    queries = QUERIES[True]
    for length in check.lengths:
        assert [seen for seen, count in passes if count > 1 and length - LAST * queries <= seen < length] == list(
            range(length - LAST * queries, length, queries)
        )
        assert passes.count((length, 1)) == 1 + LAST + 1, "one to warm up, and then a whole answer"
    assert sum(count > 1 for _, count in passes) == LAST * len(check.lengths)


@pytest.mark.parametrize(
    ("works", "said"),
    [("return q", "done"), ("raise RuntimeError('CUDA only.\\nSee below.')", "RuntimeError: CUDA only.")],
)
def test_a_package_beside_ours_is_timed_if_it_runs(
    works: str, said: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"class HiPAttentionArgs12(dict): pass\ndef hip_attention_12(q, k, v, args):\n    {works}\n"
    (tmp_path / f"{HIP_ATTN}.py").write_text(package)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, HIP_ATTN, raising=False)
    monkeypatch.setattr(attention, "ANSWER", 1)
    check.lengths = TINY_LENGTHS[:1]
    check_attention(check)
    sys.modules.pop(HIP_ATTN, None)
    rows = [row for row in check.rows if row["part"] == "attention"]
    assert {row[HIP_ATTN] for row in rows} == {said}
    assert all(("hip_attn_seconds" in row) == (said == "done") for row in rows)


def test_experts_in_codes_are_compared_with_transformers_own(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    experts.check_experts(check)
    assert [(row["what"], row["tokens"]) for row in check.rows] == [
        (c["what"], c["tokens"]) for c in experts.cells(check)
    ]
    assert {(row["ok"], row["status"]) for row in check.rows} == {(True, "done")}
    forward = PackedExperts.forward
    monkeypatch.setattr(PackedExperts, "forward", lambda packed, *given: 1.01 * forward(packed, *given))
    experts.check_experts(check)
    assert {row["ok"] for row in check.rows} == {False}
