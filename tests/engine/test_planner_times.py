"""Operations and times in plans."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from engine import (
    Model,
    make_method,
    suited_method,
)
from engine.models.sizes import model_sizes, sizes_of
from engine.parts.footprint import OPERATIONS, ReadingTask
from engine.planning import rates
from engine.planning.plan import Machine
from engine.planning.planner import Planner
from engine.planning.rates import Rates, measure_rates
from engine.records import HOST
from tests.engine.architectures import small_config
from tests.engine.matrix import TIGHT
from tests.engine.plans import GB, LLAMA_8B, QWEN3_30B, ROOMY, fused_operations, llama
from tests.engine.reading import read


@pytest.mark.parametrize("name", ["beacon", "exact", "full", "infinipot-both", "infinitehip", "infllm", "recall"])
def test_reading_takes_the_operations_that_were_planned(model: Model, name: str) -> None:
    """Cover passes far into a text, which compare more keys than they attend to."""
    method, ids = TIGHT[name], torch.randint(4, 260, (3000,), generator=torch.Generator().manual_seed(3))
    fused = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused_operations}
    with FlopCounterMode(display=False, custom_mapping=fused) as counted:
        read(model, method, ids, 64)
    planned = Planner.of_loaded(model, ROOMY).operations(method, len(ids), len(ids))
    assert 0.5 < planned / counted.get_total_flops() < 2


def test_a_pass_reads_the_experts_that_its_tokens_choose() -> None:
    model = model_sizes(AutoConfig.for_model("qwen3_moe", **QWEN3_30B), torch.bfloat16, torch.device("cuda"))
    assert model.hit(1) == 8 / 128
    assert 0.11 < model.hit(2) < 0.125
    assert model.hit(2048) > 0.999
    assert model.unpacked_bytes("none") == 0
    eight = 8 * 2 * 768 * 2048  # larger stacks of as many experts
    assert 2 * eight < model.unpacked_bytes("nf4") < 2.8 * eight < model.unpacked_bytes("8bit") < 3.1 * eight
    alone = dataclasses.replace(model, spec=dataclasses.replace(model.spec, device=torch.device("cpu")))
    assert alone.unpacked_bytes("nf4") == 2048 * 32 * 128 * 2  # one linear layer, which is larger than one expert


def test_experts_in_codes_cost_a_gpu_their_launches() -> None:
    """Check the launches: some 120,000 kernels a pass, however many tokens it has."""
    model = model_sizes(AutoConfig.for_model("qwen3_moe", **QWEN3_30B), torch.bfloat16, torch.device("cuda"))
    rates = Rates(80e12, 9e11, 2e10, 1e12, 5e10)

    def seconds(quantize: str, operation_sec: float) -> float:
        machine = Machine(80 * GB, 64 * GB, False, dataclasses.replace(rates, operation_sec=operation_sec))
        plan = Planner(model, machine).plan(make_method("full"), 20_480, quantize)
        assert plan.chunk == 8192
        assert plan.reading_sec is not None
        return plan.reading_sec

    launches = (seconds("nf4", 2e-4) - seconds("nf4", 1e-4)) / 1e-4
    assert 48 * 2 * 128 * 5 < launches / 2.5 < 48 * 2 * 128 * 20
    assert seconds("none", 1e-5) == pytest.approx(seconds("none", 0), rel=0.01)


def test_layers_that_never_look_far_cost_no_search() -> None:
    """Regression: for a model of sliding windows only, planned readings were eleven times too long."""

    def times(sliding: int | None, kind: str) -> tuple[float, float]:
        config = AutoConfig.for_model("mistral", **sizes, max_position_embeddings=32768, sliding_window=sliding)
        planner = Planner(
            model_sizes(config, torch.float32), dataclasses.replace(ROOMY, rates=Rates(1e11, 1e10, 1e10, 1e11, 1e10))
        )
        plan = planner.plan(make_method(kind), 65_536)
        assert plan.reading_sec is not None
        assert plan.answer_tokens_per_sec is not None
        return plan.reading_sec, plan.answer_tokens_per_sec

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 128}
    plain, sliding = times(None, "infinitehip"), times(512, "infinitehip")
    window = times(512, "streaming")
    assert plain[0] > 3 * sliding[0]
    assert sliding[0] < 1.5 * window[0]
    assert sliding[1] > plain[1]


def test_without_rates_there_are_no_times() -> None:
    plan = Planner(llama().model, ROOMY).plan(make_method("infinipot"), 1000)
    assert plan.fits
    assert (plan.reading_sec, plan.first_token_sec, plan.answer_tokens_per_sec) == (None, None, None)


def test_on_a_gpu_products_are_measured_and_not_their_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: at 10^15 operations a second a product of 1,024 rows ends before the next launch."""
    monkeypatch.setattr(rates, "_seconds", lambda do, device: 1.0)
    operations = rates._flops(torch.device("meta"), torch.bfloat16)
    assert operations / 1e15 > 10 * rates.SMALL_OPERATION_SEC


def test_a_rate_leaves_out_the_time_that_other_programs_take() -> None:
    assert rates._seconds(lambda: time.sleep(0.05), torch.device("cpu")) < 0.025


def test_rates_are_measured_and_times_follow_them(model: Model, ids: Tensor) -> None:
    found = measure_rates(torch.device("cpu"), torch.float32)
    assert 1e8 < found.flops < 1e14
    assert 1e8 < found.memory < 1e13
    assert 1e-8 < found.operation_sec < 1e-2
    half = dataclasses.replace(found, flops=found.flops / 2, memory=found.memory / 2, operation_sec=0.0)
    whole = dataclasses.replace(found, operation_sec=0.0)
    sizes = sizes_of(model.network, model.spec)
    slow = Planner(sizes, Machine(GB, 0, True, half)).plan(make_method("streaming"), 5000).reading_sec
    fast = Planner(sizes, Machine(GB, 0, True, whole)).plan(make_method("streaming"), 5000).reading_sec
    assert slow is not None
    assert slow == pytest.approx(2 * (fast or 0.0))


def test_a_search_serves_as_many_tokens_as_its_interval_says() -> None:
    """Regression: plans let each token search, though the first stage runs for every 96th only."""
    stages = "64:256:32768:{} 64:32:8192:1 64:8:2048:1"
    seconds = []
    for refresh in (1, 96):
        method = make_method("infinitehip", preset="3k", stages=stages.format(refresh))
        plan = Planner(llama().model, dataclasses.replace(ROOMY, rates=llama().machine.rates)).plan(method, 1_000_000)
        assert plan.answer_tokens_per_sec is not None
        seconds.append(1 / plan.answer_tokens_per_sec)
    far = plan.footprint.usage.entries[HOST]
    compared = far / 256 * 9 * 4  # keys of each KV head that its four query heads read over the link, each for itself
    searching = compared * llama().model.spec.entry_bytes / 2 / 2e10
    assert seconds[0] - seconds[1] == pytest.approx(searching * 95 / 96, rel=0.01)


@pytest.mark.parametrize("name", ["infinitehip", "infllm"])
def test_what_a_gpu_reads_of_the_host_tier_comes_over_the_link(name: str) -> None:
    planner, method = llama(), suited_method(131_072, name)
    rates = planner.machine.rates
    assert rates is not None

    def seconds(link: float, shared: bool) -> tuple[float, float]:
        machine = Machine(400 * GB, 400 * GB, shared, dataclasses.replace(rates, link=link))
        plan = Planner(planner.model, machine).plan(method, 1_000_000)
        return plan.reading_sec or 0.0, 1 / (plan.answer_tokens_per_sec or 1.0)

    footprint = method.plan(planner.model.spec, ReadingTask(1_000_000, 32, 2048, planner.turn_tokens))
    chosen = footprint.lookup.fetched_per_answer_token
    assert chosen == {"infinitehip": 4096, "infllm": 17 * 128}[name]
    block = {"infinitehip": 64, "infllm": 512}[name]
    each = planner.model.spec.entry_bytes
    (slow, slow_token), (fast, fast_token) = seconds(1e9, False), seconds(1e12, False)
    lookup = footprint.lookup
    # A token of an answer reads what it chose, and its keys once more to sum up the attention; four heads share a key
    usual = (3 * 4096 + 29 * 2048) / 32 if name == "infinitehip" else chosen
    far = footprint.usage.entries[HOST]
    stages = [(far / 256 * 9, 96), (1024 * 6, 24), (1024 * 4, 8)] if name == "infinitehip" else []
    asked = 1.5 * usual + sum(rows * 4 / 2 / refresh for rows, refresh in stages)
    assert lookup.asked == pytest.approx(asked, rel=1e-4)
    # A block of the text reads what it chose once for each 128 queries of a KV head
    mean = far / 2 * (1 - (32768 / far) ** 2) / 256  # chunks that it compares, where some are to be left out
    pruned = (mean * 9 + 1024 * 6 + 1024 * 4) * 4 / 2 if name == "infinitehip" else 0
    assert lookup.fetched == pytest.approx((usual * block * 4 / 128 + pruned) / block, rel=1e-4)
    assert slow_token - fast_token == pytest.approx(asked * each / 1e9, rel=0.1), "launches hide some of it"
    assert slow - fast == pytest.approx(lookup.fetched * 1e6 * each / 1e9, rel=0.05)
    assert seconds(1e9, True)[1] == seconds(1e12, True)[1]


def test_few_queries_read_codes_in_place_on_a_gpu() -> None:
    """Regression: plans let each token of an answer decode all entries."""
    planner = Planner(llama().model, dataclasses.replace(ROOMY, rates=llama().machine.rates))
    plans = [planner.plan(make_method("full", store=store), 60_000) for store in ("model", "int8")]
    speeds = [plan.answer_tokens_per_sec or 0.0 for plan in plans]
    assert speeds[1] > 0.7 * speeds[0], "it is not recorded"
    assert (plans[1].reading_sec or 0.0) > (plans[0].reading_sec or 0.0), "a text's passes do make them"


@pytest.mark.parametrize("name", ["exact", "recall"])
def test_what_searches_everything_has_the_keys_sent_to_a_gpu(name: str) -> None:
    """Regression: plans let the host search, which took over a minute for one question."""
    rates = llama().machine.rates
    assert rates is not None
    model = model_sizes(AutoConfig.for_model("llama", **LLAMA_8B), torch.bfloat16, torch.device("cuda"))
    of_recall = {} if name == "exact" else {"select": "exact", "gist": "infinipot"}
    method = suited_method(131_072, name, tier="host", **of_recall)
    footprint = method.plan(model.spec, ReadingTask(1_000_000, 32, 2048, len))

    def seconds(link: float, host: float) -> tuple[float, float]:
        changed = dataclasses.replace(rates, link=link, host_flops=host, host_memory=host)
        plan = Planner(model, Machine(400 * GB, 400 * GB, False, changed)).plan(method, 1_000_000)
        return plan.first_token_sec or 0.0, 1 / (plan.answer_tokens_per_sec or 1.0)

    keys = footprint.lookup.searched / 2 * model.spec.entry_bytes
    # By each of the query heads that share keys
    picked = 4 * footprint.lookup.fetched_per_answer_token * model.spec.entry_bytes
    (slow_first, slow), (fast_first, fast) = seconds(1e9, 1e12), seconds(1e12, 1e12)
    assert slow - fast == pytest.approx((keys + picked) / 1e9, rel=0.02)
    passes = math.ceil(50 / footprint.lookup.asked_together)
    assert passes == 5, "as many queries as 1 GB holds what they find"
    assert slow_first - fast_first == pytest.approx(((passes + 1) * keys + 51 * picked) / 1e9, rel=0.02)
    assert seconds(1e9, 1e6) == (slow_first, slow), "the host searches nothing"


def test_launches_count_where_a_token_is_not_recorded() -> None:
    planner = llama()
    assert planner.machine.rates is not None
    planner.machine = dataclasses.replace(
        planner.machine, host=400 * GB, rates=dataclasses.replace(planner.machine.rates, operation_sec=1e-3)
    )
    launching = 32 * OPERATIONS * 1e-3
    recorded, coded = (make_method("infinipot", store=store) for store in ("model", "int8"))
    assert (planner.plan(recorded, 10_000).answer_tokens_per_sec or 0.0) > 20
    assert 1 / (planner.plan(recorded, 10_000, "nf4").answer_tokens_per_sec or 1.0) < 0.05
    for method, quantize in ((coded, "none"), (recorded, "8bit")):
        assert 1 / (planner.plan(method, 10_000, quantize).answer_tokens_per_sec or 1.0) == pytest.approx(launching)


def test_layers_with_a_sliding_window_take_no_time_to_search() -> None:
    config = small_config("gemma2")
    machine = dataclasses.replace(llama().machine, shared=True)
    speeds = []
    for kinds in (["sliding_attention", "full_attention"] * 2, ["full_attention"] * 4):
        config.layer_types = kinds
        planner = Planner(model_sizes(config, torch.float32), machine)
        speeds.append(planner.plan(make_method("exact", looks=1), 10_000_000_000).answer_tokens_per_sec or 0.0)
    assert speeds[0] == pytest.approx(2 * speeds[1], rel=0.01)


def test_retaining_heads_take_time() -> None:
    planner = llama()
    locret = planner.plan(make_method("locret", budget=4096), 100_000)
    heads = 2 * locret.footprint.weight_bytes / planner.model.spec.dtype.itemsize  # operations for a token
    assert heads > 0.02 * 2 * planner.model.active
    assert planner.machine.rates is not None
    plain = dataclasses.replace(locret.footprint, weight_bytes=0)
    task = ReadingTask(100_000, planner.prefix, 2048, planner.turn_tokens)
    with_heads, without = (
        planner._times(locret.method, footprint, task, "none")[0] for footprint in (locret.footprint, plain)
    )
    assert with_heads is not None
    assert without is not None
    assert with_heads - without == pytest.approx(
        locret.footprint.work.passed * heads / planner.machine.rates.flops, rel=0.05
    )
