"""Passes and tokens are measured one by one, and no speed is told that says nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from benchmarks.gpu_check import gauge, machine_rates, methods, profile, report
from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.gauge import CONDENSED, FILLED, READ, Gauge, TimedPass, full_speed
from benchmarks.gpu_check.growing import noise
from benchmarks.gpu_check.profile import PASSES, UNRECORDED, summary
from benchmarks.gpu_check.report import compare
from benchmarks.gpu_check.token_kinds import REPLAYED, watched
from benchmarks.model_shapes import config_of
from benchmarks.random_models import random_model
from engine import Context, Conversation, Machine, Model, Planner, Rates, Sampling, make_method, pinned_memory
from engine.decode import recorder
from engine.decode.recorder import Recorder
from engine.models.sizes import sizes_of
from tests.benchmarks.patient_check import patient_check
from tests.engine.reading import read

CPU = torch.device("cpu")
RATES = Rates(1e11, 1e10, 1e10, 1e11, 1e10)
NAME = "Llama-3.1-8B"


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return patient_check(tmp_path, (512,))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, tmp_path)


def test_the_speed_of_a_reading_is_that_of_its_full_passes() -> None:
    """Regression: the last pass of a text, of 100 tokens, gave the speed, which was a twentieth."""
    passes = [TimedPass(2048, 0.1, FILLED), *(TimedPass(2048, seconds, READ) for seconds in (1.0, 2.0, 4.0))]
    assert full_speed([*passes, TimedPass(100, 1.0, READ)]) == 1024
    condensing = [each for kept in passes[1:] for each in (kept, TimedPass(0, 2.0, CONDENSED))]
    assert full_speed(condensing) == 512
    assert full_speed(passes[:1]) is None


def test_a_gauge_keeps_each_pass_and_leaves_interruptions_out() -> None:
    measured = Gauge(CPU)
    measured.look(8)
    measured.look(0)
    with measured.halted():
        time.sleep(0.2)
    measured.look(4)
    measured.look(4, FILLED)
    passes = measured.passes()
    assert [(each.tokens, each.kind) for each in passes] == [(8, READ), (0, CONDENSED), (4, READ), (4, FILLED)]
    assert sum(each.seconds for each in passes) < 0.2
    facts = measured.facts(before=2)
    assert [each[0] for each in facts["passes"]] == [4, 4]
    assert facts["tokens_per_second"] == pytest.approx(12 / sum(each.seconds for each in passes[:3]))


def test_each_token_says_how_it_was_computed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """All recordings are made before the first token."""
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    context = read(model, make_method("streaming"), noise(model, 300))
    conversation = Conversation(context)
    with watched(model) as kinds:
        list(conversation.ask("What?", Sampling(max_tokens=24)))
        said = kinds.facts(time.monotonic())
    assert said["recorded_anew"] == 0
    assert said["replayed"] == len(said["token_seconds"]) >= 16
    assert {kind for _, kind in said["token_seconds"]} == {REPLAYED}
    assert said["replayed_per_second"] > 0
    with watched(model) as kinds, model.recorder.stopped():
        list(conversation.ask("And?", Sampling(max_tokens=4)))
        said = kinds.facts(time.monotonic())
    assert (said["unrecorded"], said["replayed"], said["replayed_per_second"]) == (len(said["token_seconds"]), 0, None)
    assert type(model.recorder) is Recorder


def test_a_bank_is_counted_by_the_stage_where_a_choice_restarts(model: Model) -> None:
    method = make_method(
        "infinitehip", budget=160, stages="16:16:64:8 8:4:24:2", first_keep=24, looks=1, cache=10, extend_always=True
    )
    context = read(model, method, noise(model, 300))
    said = watched_answer(model, context, 16)
    chunks = 24 // 4 * len(model.spec.layers)
    assert {stage: sum(counts) % chunks for stage, counts in said["bank_counts"].items()} == {0: 0, 1: 0}
    assert 0 < said["hit_ratio"] < 1
    assert "hit_ratio" not in watched_answer(model, read(model, make_method("streaming"), noise(model, 300)), 3)


def watched_answer(model: Model, context: Context, tokens: int) -> dict[str, Any]:
    """Return how the tokens of an answer were computed."""
    with watched(model) as kinds:
        list(Conversation(context).ask("What?", Sampling(max_tokens=tokens)))
        return kinds.facts(time.monotonic())


@pytest.mark.parametrize(("tokens", "shown"), [(8, False), (20, True)])
def test_a_short_answer_has_no_speed(model: Model, tokens: int, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a speed over two tokens stood in the table."""
    monkeypatch.setattr(methods, "DECODED", tokens)
    context = read(model, make_method("streaming"), noise(model, 300))
    methods._answer(row := {}, context, MagicMock(first_token_sec=None), math.inf, compare=False)
    assert row["answer_tokens"] == len(row["token_seconds"]) == tokens
    assert (row["tokens_per_second"] is not None) == shown


def test_a_pass_without_a_memory_is_what_readings_are_compared_to(check: Check, model: Model) -> None:
    methods.check_bare(check, model)
    (bare,) = check.rows
    assert [tokens for tokens, _, _ in bare["passes"]][:-1] == [methods.TINY_BARE_CHUNK] * (1 + methods.BARE_PASSES)
    reading = check.row("reading", model=NAME, method="exact", tokens=512)
    reading |= {"tokens_per_second_there": bare["tokens_per_second"] / 4, "status": "done"}
    compare(check.rows)
    assert reading["to_bare"] == pytest.approx(0.25)


def test_bytes_while_reading_and_while_answering_have_plans_of_their_own(check: Check, model: Model) -> None:
    planner = Planner(sizes_of(model.network, model.spec), Machine(1 << 40, 1 << 40, False, RATES), model.turn_length)
    plan = planner.plan(make_method("streaming"), 512, "nf4")
    footprint = plan.footprint
    assert (
        plan.reading_device_bytes - plan.asking_device_bytes > footprint.condense_bytes - footprint.conversation_bytes
    )
    assert plan.device_bytes >= max(plan.reading_device_bytes, plan.asking_device_bytes)
    methods.check_method(check, model, planner, "streaming", math.inf)
    for part, planned in (("reading", plan.reading_device_bytes), ("answering", plan.asking_device_bytes)):
        row = check.row(part, tokens=512)
        assert row["planned_device_bytes"] == pytest.approx(planned, rel=0.5)
        assert row["device_bytes"] >= 0


def test_a_profile_counts_kernels_gaps_and_copies() -> None:
    def event(category: str, name: str, begin: float, seconds: float, **arguments: object) -> dict[str, Any]:
        return {"cat": category, "name": name, "ts": begin, "dur": seconds, "args": arguments}

    events = [
        event("kernel", "gemm", 100.0, 50.0),
        event("kernel", "gemm", 160.0, 20.0),
        event("kernel", "norm", 165.0, 5.0),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 190.0, 10.0, bytes=4096),
        event("cpu_op", "aten::mm", 0.0, 500.0),
        {"cat": "kernel", "name": "without duration", "ts": 0},
    ]
    found = summary(events, layers=2)
    assert found["kernels_per_layer"] == 1.5
    assert found["busy_seconds"] == pytest.approx(80e-6)
    assert found["gap_seconds"] == pytest.approx(20e-6)
    assert found["busy_share"] == pytest.approx(0.8)
    assert found["copied_bytes"] == {"HtoD": 4096}
    assert found["top"][0] == ["gemm", pytest.approx(70e-6)]


@pytest.mark.parametrize("name", ["streaming", "infinitehip"])
def test_single_passes_are_profiled(name: str, check: Check, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    check.lengths = (4096,)
    for what in PASSES:
        check.row("profile", model=NAME, method=name, what=what)
    planner = Planner(sizes_of(model.network, model.spec), Machine(1 << 40, 1 << 40, True, RATES), model.turn_length)
    profile.check_profile(check, model, planner, name)
    rows = {row["what"]: row for row in check.rows}
    assert [rows[what]["status"] for what in PASSES] == ["done"] * 3
    assert all(row["busy_seconds"] > 0 and len(row["top"]) == profile.TOP for row in rows.values())
    assert rows[PASSES[0]]["kernels_per_layer"] > 10
    assert rows[UNRECORDED]["tokens"] == 4096


def test_rates_of_the_machine_are_told(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauge, "REPEATS", 1)
    found = machine_rates.machine_rates(CPU, RATES, tiny=True)
    assert found["operation_sec"] == RATES.operation_sec
    assert found["in_place"].keys() == machine_rates.WIDTHS.keys()
    assert all(rate > 0 for rate in found["in_place"].values())
    check.rates = found
    report.write(check, "kernels", out := check.folder / "out.json")
    result = json.loads(out.read_text())
    assert (result["rates"], result["pinned_memory"]) == (found, pinned_memory.rule())
    assert result["machine"]["processor"]


@pytest.mark.parametrize(("modern", "rule"), [(True, pinned_memory.EXACT), (False, pinned_memory.DEFAULT)])
def test_versions_of_pytorch_without_settings_keep_their_rule(
    modern: bool, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch 2.11 has no settings for pinned memory, and another name for emptying its cache."""
    held, freed = ["theirs:1"], list[str]()
    names: dict[str, Callable[..., Any]] = {
        pinned_memory.SETTINGS[0]: lambda: held[-1],
        pinned_memory.SETTINGS[1]: held.append,
    }
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name, function in names.items():
        if modern:
            monkeypatch.setattr(torch._C, name, function, raising=False)
        else:
            monkeypatch.delattr(torch._C, name, raising=False)
    if modern:
        monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: freed.append("2.13"), raising=False)
    else:
        monkeypatch.delattr(torch.accelerator, "empty_host_cache", raising=False)
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: freed.append("2.11"), raising=False)
    pinned_memory.use_exact_pinned_sizes.__wrapped__()
    assert pinned_memory.rule() == rule
    with pinned_memory.default_pinned_sizes():
        assert not modern or f":{pinned_memory.UNLIMITED_MB}" in held[-1]
    assert pinned_memory.rule() == rule
    pinned_memory.free_unused_pinned()
    assert set(freed) == {"2.13" if modern else "2.11"}
    assert held[-1].startswith("theirs:1")
