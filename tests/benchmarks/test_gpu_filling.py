"""Memories filled in for the check of a GPU hold as much as a reading would have left, and answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from transformers import DynamicCache

from benchmarks.gpu_check import caches, methods
from benchmarks.gpu_check.caches import CACHES, cache_bytes, check_cache, pinned_bytes
from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.growing import LAST, Growing, noise
from benchmarks.gpu_check.methods import FILLED, READ, SAME, check_method, grows
from benchmarks.gpu_check.report import tables
from benchmarks.model_shapes import config_of
from benchmarks.random_models import random_model
from engine import METHODS, Answer, Conversation, Machine, Model, Planner, Rates, Sampling, make_method
from engine.decode import recorder
from engine.decode.recorder import Recorder
from engine.memory import Memory
from engine.parts.archive import tier_plan
from engine.parts.selectors.units import UnitSelector
from engine.parts.slots import SlotStore
from engine.records import HOST
from engine.trained.beacons import FILE as BEACONS
from engine.trained.beacons import Beacons
from engine.trained.retaining import FILE as HEADS
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from tests.benchmarks.patient_check import patient_check
from tests.engine.reading import read

CPU = torch.device("cpu")
RATES = Rates(1e11, 1e10, 1e10, 1e11, 1e10)
LLAMA, PHI = "Llama-3.1-8B", "Phi-3-mini"  # all of Phi's layers have a sliding window
CHUNK = 256
LENGTHS = (1200, 4800)  # longer than any budget, and as far apart as the check's
CASES: dict[str, dict[str, Any]] = {
    **{name: {} for name in METHODS},
    "exact-int8": {"store": "int8"},
    "infllm-int4": {"store": "int4", "budget": 1300},
    "infinitehip-int4": {"store": "int4"},
    "recall-int8": {"store": "int8"},
    "full-int8": {"store": "int8"},
    "locret-int8": {"store": "int8"},
    "locret-fp8": {"store": "fp8"},
}
EVERY = [(LLAMA, case) for case in CASES] + [(PHI, case) for case in ("exact", "infllm", "infinitehip", "full")]


def made(name: str, folder: Path) -> Model:
    model = random_model(name, config_of(name, tiny=True), CPU, torch.float32, True, folder)
    save_weights(RetainingHeads(model.spec, [16] * len(model.spec.layers)), folder / HEADS, model.spec, {})
    save_weights(Beacons(model.spec), folder / BEACONS, model.spec, {})
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    return {name: made(name, tmp_path_factory.mktemp("beside")) for name in (LLAMA, PHI)}


def planner_of(model: Model) -> Planner:
    return Planner.of_loaded(model, Machine(1 << 40, 1 << 40, True, RATES))


def fill(growing: Growing, tokens: int) -> None:
    """Fill in as much of a text as may be, then read its end."""
    growing.extend(tokens, CHUNK)
    for _ in growing.fills(growing.behind):
        pass
    for _ in growing.reads(growing.total):
        pass


def last(conversation: Conversation, tokens: int = 8) -> Answer:
    *_, answer = conversation.ask("What is it?", Sampling(max_tokens=tokens))
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_what_is_filled_in_is_as_much_as_what_is_read(name: str, case: str, models: dict[str, Model]) -> None:
    """Compare entries and bytes per tier with a reading and with its plan; then answer."""
    model = models[name]
    method = make_method(case.split("-")[0], **CASES[case])
    growing, planner = Growing(model, method), planner_of(model)
    for length in LENGTHS:
        plan = planner.plan(method, length, "nf4")
        if not grows(plan):
            growing = Growing(model, method)
        fill(growing, length)
        context = growing.context()
        assert growing.done == growing.total
        filled, found = context.usage(), read(model, method, noise(model, length), CHUNK).usage()
        planned = plan.footprint.usage
        assert filled.entries == found.entries == planned.entries
        assert filled.bytes == pytest.approx(found.bytes, rel=0.01)
        assert filled.bytes == pytest.approx(planned.bytes, rel=0.01)
        assert 1 <= last(Conversation(context)).answer_tokens <= 8
    assert growing.read <= 2 * LAST * CHUNK or growing.total < LENGTHS[0], "but for the ends nothing was read"


@pytest.mark.parametrize(("name", "store"), [("exact", "int4"), ("recall", "bfloat16"), ("recall", "int4")])
def test_a_million_tokens_take_what_was_planned(name: str, store: str, models: dict[str, Model]) -> None:
    """Compare to the byte, with the settings for long windows."""
    method = make_method(name, preset="wide", store=store)
    growing, planner = Growing(models[LLAMA], method), planner_of(models[LLAMA])
    growing.extend(1 << 20, 2048)
    for _ in growing.fills(growing.total):
        pass
    usage = growing.context().usage()
    assert usage == planner.plan(method, 1 << 20, "nf4").footprint.usage
    assert usage.entries[HOST] > (1 << 20) - 128


@pytest.mark.parametrize("name", [LLAMA, PHI])
def test_noise_is_spread_as_what_the_model_makes(name: str, models: dict[str, Model]) -> None:
    model = models[name]
    growing = Growing(model, make_method("full"))
    growing.extend(4000, CHUNK)
    for _ in growing.fills(2000):
        pass
    read_there = read(model, make_method("full"), noise(model, 2000), CHUNK).memory
    assert spread(growing.memory) == pytest.approx(spread(read_there), rel=0.25)


def spread(memory: Memory) -> list[float]:
    """Return the standard deviation of keys and values of each layer."""
    assert isinstance(memory.store, SlotStore)
    banks = [bank for slots in memory.store.own for bank in (slots.keys, slots.values)]
    return [float(bank[:, 64:1500].float().std()) for bank in banks]


def test_units_of_what_is_filled_in_are_made_by_infllm_itself(models: dict[str, Model]) -> None:
    """Each unit has representatives of its own: none is empty, none equals another."""
    growing = Growing(models[LLAMA], make_method("infllm"))
    fill(growing, 4800)
    archive, selector = growing.memory.archive, growing.memory.selector
    assert archive is not None
    assert isinstance(selector, UnitSelector)
    for layer, units in enumerate(selector.units):
        keys = torch.cat([slab.keys[layer][:, : slab.length] for slab in archive.host.slabs], dim=1)
        size = selector.size
        assert units.total * size <= growing.memory.num_evicted < units.total * size + CHUNK + size, (
            "as far as before the last pass"
        )
        whole = keys[:, : units.total * size].float().unflatten(1, (units.total, size)).sum(dim=2)
        expected = whole.transpose(0, 1).reshape(units.total, -1)  # all eight tokens of a unit stand for it
        torch.testing.assert_close(units.own[: units.total], expected, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("case", ["full", "infinitehip", "infinitehip-int4", "recall-int8", "locret", "streaming"])
def test_recorded_passes_over_what_is_filled_in_say_what_others_say(
    case: str, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models[LLAMA]
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    # No true distances, as there are none where a text outgrows the model's window; and no second look, which is never
    # recorded and comes where some passage of random weights stands out
    far = {"infinitehip": {"extend_always": True, "looks": 1}, "recall": {"looks": 1}}.get(case.split("-")[0], {})
    for length in LENGTHS:
        growing = Growing(model, make_method(case.split("-")[0], **CASES[case] | far))
        fill(growing, length)
        plain, recorded = Conversation(growing.context()), Conversation(growing.context())
        with model.recorder.stopped():
            said = last(plain, 24)
        again = last(recorded, 24)
        assert recorded.memory.recordings
        assert not plain.memory.recordings
        assert again.text == said.text
        assert again.usage.entries == said.usage.entries


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return a check with no time for reading."""
    for module, name in ((methods, "READING_SHARE"), (methods, "READING_ONCE_SHARE"), (caches, "READING_SHARE")):
        monkeypatch.setattr(module, name, 0.0)
        monkeypatch.setattr(module, "DECODED", 3)
        monkeypatch.setattr(module, "LEAST", 2)
    return patient_check(tmp_path, LENGTHS, (*CACHES, *METHODS))


@pytest.mark.parametrize("method", ["exact", "infllm", "infinitehip", "recall", "full"])
def test_what_is_not_read_in_its_time_is_filled_in(method: str, check: Check, models: dict[str, Model]) -> None:
    check_method(check, models[LLAMA], planner_of(models[LLAMA]), method, check.ends)
    for length in LENGTHS:
        row, answer = check.row("reading", tokens=length), check.row("answering", tokens=length)
        assert {row["status"], answer["status"]} == {"done"}
        assert {row["held"], answer["held"]} == {FILLED}
        assert row["filled"]
        assert answer["filled"]
        assert row["entries"] == row["planned_entries"]
        for what in ("kv_device_bytes", "host_bytes"):
            assert row[what] == pytest.approx(row[f"planned_{what}"], rel=0.01)
        assert min(row["tokens_per_second"], row["tokens_per_second_there"], answer["tokens_per_second"]) > 0
    reads = [check.row("reading", tokens=length)["read"] for length in LENGTHS]
    first, ends = CHUNK * (1 + LAST), CHUNK * LAST  # a pass to begin with, and the last of a length; `full` begins anew
    assert reads == [first, first if method == "full" else first + ends]
    assert FILLED in tables(check.rows)


@pytest.mark.parametrize("method", ["infinipot", "locret", "streaming", "truncate"])
def test_what_holds_the_same_of_every_length_is_measured_once(
    method: str, check: Check, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "READING_ONCE_SHARE", 0.5)
    check.lengths = (4800, 19200, 76800)
    check_method(check, models[LLAMA], planner_of(models[LLAMA]), method, check.ends)
    for part in ("reading", "answering"):
        first, *others = (check.row(part, tokens=length) for length in check.lengths)
        assert (first["held"], first["filled"]) == (READ, False)
        for row in others:
            assert (row["status"], row["held"]) == ("done", SAME.format(4800))
            assert row["tokens_per_second"] == first["tokens_per_second"]
            assert row["tokens"] > first["tokens"]
    assert first["planned_tokens_per_second"]


def test_filling_ends_when_its_time_is_over(
    check: Check, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not begun if it would not finish. No slab is ever full here, whose tensors others could share."""
    monkeypatch.setattr(tier_plan, "SLAB", 1 << 30)
    model = models[LLAMA]
    check.lengths = (4800, 8 << 20)
    check_method(check, model, planner_of(model), "exact", time.monotonic() + 6.0)
    assert "to fill it in takes" in check.row("reading", tokens=8 << 20)["status"]
    check.rows.clear()
    check.lengths = (64 << 10,)
    check_method(check, model, planner_of(model), "exact", time.monotonic())
    assert "tokens in its time" in check.row("reading", tokens=64 << 10)["status"]
    assert "tokens in its time" in check.row("answering", tokens=64 << 10)["status"]


@pytest.mark.parametrize("name", [LLAMA, PHI])
def test_a_cache_is_filled_in_too(name: str, check: Check, models: dict[str, Model]) -> None:
    model = models[name]
    check_cache(check, model, planner_of(model), "dense", check.ends)
    for length in LENGTHS:
        for part in ("reading", "answering"):
            row = check.row(part, tokens=length)
            assert (row["status"], row["held"], row["filled"]) == ("done", FILLED, True)
    cache = DynamicCache(config=model.network.config)
    with torch.no_grad():
        caches.fill(model, cache, 2600, CHUNK)
    assert cache.get_seq_length() == 2600
    held = sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
    assert held == pytest.approx(cache_bytes(model.spec, 2600), rel=0.01)


def test_a_cache_that_does_not_fit_says_so(check: Check, models: dict[str, Model]) -> None:
    check.host = pinned_bytes(models[LLAMA].spec, LENGTHS[0])
    for length in LENGTHS:
        check.row("reading", model=LLAMA, method="offloaded", tokens=length)
    check_cache(check, models[LLAMA], MagicMock(), "offloaded", check.ends)
    assert check.row("reading", tokens=LENGTHS[0])["status"] == "done"
    assert check.row("reading", tokens=LENGTHS[1])["status"].startswith("does not fit: ")
