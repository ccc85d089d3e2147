"""Plans for a GPU beside what the first GPU run measured."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from benchmarks.model_shapes import config_of
from engine import Machine, Plan, Planner, suited_method
from engine.models.sizes import model_sizes
from engine.parts.footprint import ReadingTask
from engine.planning.times import PassTimes
from engine.records import DEVICE, HOST
from tests.engine.first_gpu_run import PASS_THEN, ROWS, SETTINGS, Measured

LIMIT = (24 << 30) - (600 << 20)
PREFIX = 77  # tokens
RECORDED = {"truncate", "full", "locret", "streaming"}  # methods whose answers were replayed then, as they are today
LESS_SAVED = {"truncate": 1.06}  # nothing was saved there, which the plan has room for


def planned(row: Measured) -> tuple[Planner, Plan]:
    """Return a planner for the machine, and the plan for a row of its check."""
    model = model_sizes(config_of("Llama-3.1-8B"), torch.bfloat16, torch.device("cuda"))
    planner = Planner(model, Machine(LIMIT, 48 << 30, False, row.rates), len, PREFIX)
    name = row.method.split("-")[0]
    older = {"extend_always": True} if name == "exact" else {}  # the version measured knew no true distances
    method = suited_method(model.spec.window, name, **SETTINGS.get(row.method, {}), **older)
    if row.method not in PASS_THEN:
        return planner, planner.plan(method, row.tokens, "nf4")
    return planner, planner._plan(method, row.tokens, "nf4", model.weight_bytes("nf4"), PASS_THEN[row.method])


def named(row: Measured) -> str:
    return f"{row.method}-{row.tokens >> 10}K"


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_times_are_roughly_those_that_were_measured(row: Measured) -> None:
    planner, plan = planned(row)
    task = ReadingTask(row.read, PREFIX, plan.chunk, len)
    footprint = plan.method.plan(planner.model.spec, task)
    seconds, _, _ = PassTimes(planner.model, row.rates, False, "nf4").of(footprint, plan.chunk, scored=False)
    assert 1 < footprint.work.passed / seconds / row.reading < 2.7
    assert plan.first_token_sec is not None
    assert row.first is None or 0.35 < plan.first_token_sec / row.first < 1.8
    assert plan.answer_tokens_per_sec is not None
    if row.method in RECORDED:
        assert row.answering is not None
        assert 1 < plan.answer_tokens_per_sec / row.answering < 1.8


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_readings_take_the_bytes_that_were_measured(row: Measured) -> None:
    """Regression: plans for InfiniteHiP had passes of 2,048 tokens, of which its stream takes 960."""
    _, plan = planned(row)
    assert 0.95 < plan.reading_device_bytes / row.peak < LESS_SAVED.get(row.method, 1.05) + 0.001


def test_passes_are_as_long_as_memory_has_room_for_them() -> None:
    row = next(row for row in ROWS if row.method == "infinitehip")
    planner, plan = planned(row)
    free = [plan.weight_bytes + (more << 20) for more in (5757, 4057, 2950)]
    passes = []
    for device in free:
        smaller = Planner(planner.model, dataclasses.replace(planner.machine, device=device), len, PREFIX)
        found = smaller.plan(plan.method, row.tokens, "nf4")
        assert found.fits
        passes.append(found.chunk)
    assert passes == [4096, 2048, 512]
    here = model_sizes(config_of("Llama-3.1-8B", tiny=True), torch.float32)
    method = suited_method(131072, "infllm", scores="probabilities", query_block=32)
    assert method.new_memory(here.spec, len).pass_limit() == method.pass_limit() == 32, "it judges the next one's units"


def test_half_a_million_tokens_in_four_bits_fit_beside_an_8b_on_a_gpu_of_24_gb() -> None:
    """Check 17 GB of codes, beside 5.7 GB of weights in NF4, with room for two forks' windows."""
    model = model_sizes(config_of("Llama-3.1-8B"), torch.bfloat16, torch.device("cuda"))
    planner = Planner(model, Machine(24 << 30, 48 << 30, False, ROWS[0].rates, base=600 << 20), len, PREFIX)

    def planned_for(tokens: int, tier: str) -> Plan:
        method = suited_method(model.spec.window, "infinitehip", store="int4", tier=tier)
        return planner.plan(method, tokens, "nf4")

    tokens = 500_000
    here, away = planned_for(tokens, "device"), planned_for(tokens, "host")
    codes, far = here.footprint.resident * 32_800, here.footprint.resident
    assert here.fits
    assert here.longest is not None
    assert 505_000 < here.longest < 534_000
    assert tokens - 256 < far < tokens + PREFIX
    assert far == away.footprint.usage.entries[HOST]
    assert 1 < here.footprint.resident_bytes / codes < 1.001
    task = ReadingTask(tokens, PREFIX, here.chunk, len)
    away_then = away.method.plan(model.spec, task).usage.bytes[DEVICE]
    assert here.footprint.usage.bytes[DEVICE] - away_then == here.footprint.resident_bytes
    assert here.footprint.usage.bytes[HOST] < 6 * far, (
        "source positions stay there, and what channels are normalised by"
    )
    assert here.host_bytes < 0.1 * away.host_bytes
    assert here.disk_bytes == pytest.approx(away.disk_bytes, rel=1e-3)
    assert not here.beyond
    free = {count: planned_for(count, "auto") for count in (tokens, 600_000)}
    assert [plan.method.settings()["tier"] for plan in free.values()] == ["device", "host"]
    assert free[tokens].longest == planned_for(tokens, "disk").longest, "of the tier that holds most"
    planner.machine = dataclasses.replace(planner.machine, host=16 << 30)
    assert planned_for(600_000, "auto").method.settings()["tier"] == "disk"
    here, away = planned_for(1 << 18, "device"), planned_for(1 << 18, "host")
    assert here.reading_sec is not None
    assert away.reading_sec is not None
    assert here.reading_sec < away.reading_sec, "nothing crosses the link"
    assert here.answer_tokens_per_sec is not None
    assert away.answer_tokens_per_sec is not None
    assert here.answer_tokens_per_sec > away.answer_tokens_per_sec
