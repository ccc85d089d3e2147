"""Recommendations and warnings of the planner."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from engine import (
    METHODS,
    make_method,
    suited_method,
)
from engine.models.sizes import model_sizes
from engine.planning.choice import ENOUGH, FIRST, SLOWEST
from engine.planning.plan import Machine, Plan
from engine.planning.planner import Planner
from engine.planning.rates import Rates
from engine.trained import beacons
from engine.trained.beacons import Beacons
from engine.trained.sidecar_weights import save_weights
from tests.engine.conftest import tiny_config
from tests.engine.plans import GB, LLAMA_8B, QWEN3_30B, ROOMY, llama


def test_experts_in_codes_fit_a_card_that_they_did_not_fit() -> None:
    """Regression: Qwen3-30B-A3B in 4 bits took 58 GB, because its experts stayed in bfloat16."""
    model = model_sizes(AutoConfig.for_model("qwen3_moe", **QWEN3_30B), torch.bfloat16, torch.device("cuda"))
    assert model.parameters == 30_532_122_624
    assert model.active + model.head == pytest.approx(3.0e9, rel=0.05)
    sizes = {each: model.weight_bytes(each) / GB for each in model.quantizations}
    assert sizes == pytest.approx({"none": 61.06, "8bit": 31.2, "nf4": 16.69}, rel=0.01)
    best = Planner(model, Machine(24 << 30, 64 << 30, False)).best(100_000)
    assert best is not None
    assert best.plan.quantize == "nf4"
    assert best.plan.device_bytes < 24 << 30


def test_best_leaves_out_what_lacks_trained_weights(tmp_path: Path) -> None:
    """Plan for a machine where beacon's largest budget fits and infinipot's does not."""
    config = tiny_config()
    config.max_position_embeddings = 1 << 17
    model = model_sizes(config, torch.float32, folder=tmp_path)
    planner = Planner(model, Machine(model.weight_bytes() + 320_000_000, 60_000_000, False))
    largest = make_method("beacon", budget=1 << 17)
    plan = planner.plan(largest, 1 << 21)
    assert plan.fits
    assert "stockpot train beacon" in plan.lacks
    best = planner.best(1 << 21)
    assert best is not None
    assert best.plan.method.name == "infinipot"
    save_weights(Beacons(model.spec), tmp_path / beacons.FILE, model.spec, {})
    best = planner.best(1 << 21)
    assert best is not None
    assert best.plan.method == largest
    assert best.plan.lacks == ""
    assert best.plan == planner.plan(largest, 1 << 21)  # the longest text too, which is found last


def test_what_suits_the_machine_is_chosen_with_a_reason() -> None:
    planner = llama()

    def choice(tokens: int, device: int, host: int) -> Plan | None:
        found = Planner(planner.model, dataclasses.replace(planner.machine, device=device * GB, host=host * GB)).best(
            tokens
        )
        assert found is None or found.reason
        return found.plan if found else None

    short = choice(8_000, 24, 64)
    assert short is not None
    assert (short.method.name, short.quantize) == ("full", "none")
    small = choice(8_000, 12, 64)
    assert small is not None
    assert (small.method.name, small.quantize) == ("full", "8bit")
    long = choice(1_000_000, 24, 8)  # a million tokens do not fit 8 GB of host memory
    assert long is not None
    assert long.method.family == "condensing"
    assert long.method.budget is not None
    assert not planner.plan(make_method("exact"), 1_000_000).fits
    assert choice(1_000_000, 4, 64) is None
    roomy = choice(1_000_000, 24, 192)
    assert roomy is not None
    assert roomy.method == make_method("exact", preset="sketched")  # without sketches a token takes seconds
    small = choice(1_000_000, 13, 192)  # sketches fit beside no weights
    assert small is not None
    assert small.method.family == "retrieving"
    planner.machine = dataclasses.replace(planner.machine, rates=None)
    unknown = choice(1_000_000, 24, 192)
    assert unknown is not None
    assert unknown.method.name in ("infinitehip", "infllm")  # unless exact is known to be fast enough


def test_lossless_weights_are_no_reason_to_forget_the_text() -> None:
    """Regression: with 16 GB it chose 256 entries beside bfloat16 weights, with 12 GB to keep everything."""
    planner = llama()

    def choice(tokens: int, device: int, host: int = 64) -> tuple[str, str, int]:
        best = Planner(planner.model, dataclasses.replace(planner.machine, device=device * GB, host=host * GB)).best(
            tokens
        )
        assert best is not None
        return best.plan.method.family, best.plan.quantize, best.plan.method.budget or 0

    assert choice(8_000, 17)[:2] == ("yardstick", "8bit")
    families = [choice(100_000, device)[0] for device in (10, 12, 17, 24)]
    assert families == ["retrieving", "retrieving", "yardstick", "yardstick"]
    assert [choice(100_000, device)[1] for device in (10, 12, 17, 24)] == ["nf4", "8bit", "8bit", "none"]
    # A budget is to be large enough, and no larger at the cost of lossier weights.
    budgets = {device: choice(1_000_000, device, 4) for device in (7, 10, 13, 17, 24)}
    assert {device: quantize for device, (_, quantize, _) in budgets.items()} == {
        **{7: "nf4", 10: "nf4", 13: "8bit"},
        **{17: "8bit", 24: "none"},
    }
    assert all(family == "condensing" for family, _, _ in budgets.values())
    assert all(budget >= ENOUGH for device, (_, _, budget) in budgets.items() if device >= 10)


def test_a_long_text_is_looked_up_exactly_rather_than_with_lossless_weights() -> None:
    """Compare: in a million tokens `exact` finds eight facts of eight, `infinitehip` two; in 100,000 both find all."""
    planner = llama()
    for tokens, name, quantize in ((100_000, "infinitehip", "none"), (150_000, "exact", "8bit")):
        planner.machine = dataclasses.replace(planner.machine, device=20 * GB)
        best = planner.best(tokens)
        assert best is not None
        assert (best.plan.method.name, best.plan.quantize) == (name, quantize)
        assert ("sketches" in best.reason) == (name == "exact")


def test_a_search_that_is_barely_fast_enough_is_left_for_sketches() -> None:
    """Plan a small model and 150,000 tokens: 7 tokens a second by a search of everything, 65 by sketches."""
    small = {**LLAMA_8B, "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64}
    model = model_sizes(AutoConfig.for_model("llama", **small), torch.bfloat16, torch.device("cuda"))
    planner = Planner(model, dataclasses.replace(llama().machine, device=8 * GB, host=64 * GB))
    plans = [plan for plan in planner.candidates(150_000, "none") if plan.method.name == "exact"]
    plain, sketched = (plan.answer_tokens_per_sec or 0.0 for plan in plans)
    assert sketched > 5 * plain > 5 * SLOWEST
    best = planner.best(150_000)
    assert best is not None
    assert best.plan.method.settings()["sketch"] == "int4"
    planner.machine = dataclasses.replace(planner.machine, device=24 * GB)
    best = planner.best(150_000)
    assert best is not None
    assert (best.plan.method.settings()["sketch"], best.plan.method.settings()["tier"]) == ("none", "device")
    assert "everything is kept on the GPU" in best.reason


def test_without_a_gpu_nothing_is_found_by_sketches() -> None:
    """Check that sketches are not used where both tiers are the same memory."""
    planner = llama()
    planner.machine = dataclasses.replace(planner.machine, device=400 * GB, shared=True)
    assert not any(plan.footprint.lookup.sketched for plan in planner.candidates(1_000_000, "none"))


def test_where_a_model_is_loaded_its_weights_count_as_room_for_others() -> None:
    """Plan for 24 GB with bfloat16 weights loaded and 8 GB free: other weights are planned as if these were not."""
    model = llama().model
    loaded = Planner(model, Machine(24 * GB - model.weight_bytes(), 4 * GB, False))
    fresh = Planner(model, Machine(24 * GB, 4 * GB, False))
    for kinds in (["none"], ["8bit"], ["nf4"], None):
        found, expected = loaded.unloaded("none").best(1_000_000, kinds), fresh.best(1_000_000, kinds)
        assert expected is not None
        assert found == expected


def test_what_a_query_looks_up_counts_as_seen_at_once() -> None:
    """Regression: no warning of a preset of 3,072 entries that makes the pocket model repeat one word."""
    config = tiny_config()
    config.max_position_embeddings = 2048
    planner = Planner(model_sizes(config, torch.float32), Machine(64 * GB, 64 * GB, False))
    for name, settings in (("infinitehip", {"preset": "3k"}), ("infllm", {"budget": 6000, "units": 40})):
        assert "at once: expect poor answers" in planner.plan(make_method(name, **settings), 100_000).beyond
    for name in METHODS:
        assert not planner.plan(make_method(name), 100_000).beyond or name == "full"


def test_the_host_tier_is_kept_in_fewer_bits_rather_than_condensed() -> None:
    """Regression: with 64 GB it chose to forget most of a million tokens, which take 142 GB in bfloat16."""
    planner = llama()
    for host, store in ((192, "bfloat16"), (80, "int8"), (64, "int4")):
        planner.machine = dataclasses.replace(planner.machine, host=host * GB)
        best = planner.best(1_000_000)
        assert best is not None
        assert best.plan.method.family in ("retrieving", "yardstick")
        assert best.plan.method.settings()["store"] == store
        assert best.plan.fits
        assert (store in best.reason) == (store != "bfloat16")


def test_models_whose_layers_all_look_back_a_little_are_not_read_with_what_looks_far(tmp_path: Path) -> None:
    """Regression: `exact` was said to look everything up in Phi-3-mini (4K), whose layers never look far."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 128}
    config = AutoConfig.for_model("mistral", **sizes, max_position_embeddings=4096, sliding_window=2047)
    planner = Planner(model_sizes(config, torch.float32, folder=tmp_path), ROOMY)
    best = planner.best(1_000_000)
    assert best is not None
    assert (best.plan.method.family, best.plan.method.budget) == ("condensing", 2048)
    warned = {name: planner.plan(suited_method(4096, name), 1_000_000).beyond for name in METHODS}
    assert {name for name, doubt in warned.items() if "looks back 2,047 tokens at most" in doubt} == {
        *(name for name, kind in METHODS.items() if kind.family in ("retrieving", "yardstick")),
        "locret",  # its budget is 3,072
    }
    assert not any(warned[name] for name in ("infinipot", "beacon", "streaming", "truncate"))
    assert not planner.plan(make_method("full"), 3000).beyond  # as the model itself would read it
    config.sliding_window = None
    far = Planner(model_sizes(config, torch.float32, folder=tmp_path), ROOMY).best(1_000_000)
    assert far is not None
    assert far.plan.method.family != "condensing"


def test_a_chunk_that_stands_too_far_behind_what_is_kept_is_warned_of() -> None:
    """Regression: no warning of `locret` with 2,048 entries, which answers half as much as with 1,024."""
    config = tiny_config()
    config.max_position_embeddings = 2048
    planner = Planner(model_sizes(config, torch.float32), Machine(64 * GB, 64 * GB, False))

    def beyond(name: str, budget: int, tokens: int = 20_000) -> str:
        return planner.plan(make_method(name, budget=budget), tokens).beyond

    assert "attend to 3,172 at once" in beyond("locret", 2048)
    assert "a budget of at most 1,322" in beyond("locret", 2048)
    assert "attend to 2,788 at once" in beyond("recall", 2048)
    assert not any(beyond("locret", budget) for budget in (1024, 1322, 1536))
    assert not any(beyond(name, 2048) for name in ("infinipot", "beacon", "exact"))
    assert not beyond("locret", 2048, tokens=1900)
    budgets = {plan.method.name: plan.method.budget for plan in planner.candidates(20_000, "none")}
    assert (budgets["locret"], budgets["infinipot"]) == (1024, 2048)
    for window in (2048, 4096, 1 << 17):
        config.max_position_embeddings = window
        wide = Planner(model_sizes(config, torch.float32), planner.machine)
        suited = [wide.plan(suited_method(window, name), 1_000_000) for name in METHODS]
        assert [plan.method.name for plan in suited if plan.beyond] == ["full"]


def test_what_takes_days_to_read_is_not_recommended() -> None:
    """Plan for a slow processor: `exact` answers too slowly, and other look-ups take hours to read, not minutes."""
    rates = Rates(2e9, 2e8, 2e8, 2e9, 2e8)
    planner = Planner(model_sizes(tiny_config(), torch.float32), Machine(64 * GB, 0, True, rates))
    best = planner.best(1_000_000)
    assert best is not None
    for plan in (planner.plan(suited_method(planner.model.spec.window, name), 1_000_000) for name in METHODS):
        if plan.method.family == "retrieving" and not plan.lacks:
            slow = (plan.answer_tokens_per_sec or 0) < SLOWEST or (plan.first_token_sec or 0) > FIRST
            assert slow or (plan.reading_sec or 0) > 10 * (best.plan.reading_sec or 0)
    assert best.plan.method.family == "condensing"
    assert (best.plan.reading_sec or 0) < 3600
