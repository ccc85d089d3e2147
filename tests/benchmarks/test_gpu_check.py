"""The check of a GPU runs here with tiny shapes: the same code, on the processor."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import psutil
import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from benchmarks import gpu_inputs, gpu_kernels
from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import caches, methods, parity
from benchmarks.gpu_check.__main__ import LENGTHS, NO_GPU, TINY_LENGTHS, main
from benchmarks.gpu_check.caches import CACHES, check_cache
from benchmarks.gpu_check.check import PENDING, Check, NotReached
from benchmarks.gpu_check.gauge import CONDENSED, FILLED, READ
from benchmarks.gpu_check.growing import noise
from benchmarks.gpu_check.methods import VARIANTS, check_method
from benchmarks.gpu_check.parity import check_kernels, check_seam
from benchmarks.gpu_check.report import compare, tables
from benchmarks.gpu_check.schedule import (
    ELSEWHERE,
    KERNEL_PART,
    check_model,
    lay_out,
    methods_of,
    parts_of,
    run,
)
from benchmarks.gpu_inputs import ON_DEVICE, STORES, Heads
from benchmarks.model_shapes import SHAPES, config_of
from benchmarks.random_models import random_model
from engine import (
    GPU_BASE,
    METHODS,
    Answer,
    Conversation,
    Machine,
    Planner,
    Rates,
    Sampling,
    SettingsError,
    make_method,
    suited_stores,
)
from engine.loops.reader import GPU_CHUNK
from engine.models.experts import PackedExperts
from engine.models.sizes import model_sizes, sizes_of
from engine.pinned_memory import use_exact_pinned_sizes
from tests.benchmarks.patient_check import patient_check
from tests.engine.reading import read

pytestmark = pytest.mark.usefixtures("few_repetitions")
CPU = torch.device("cpu")
RATES = Rates(1e11, 1e10, 1e10, 1e11, 1e10)
NAME = "Llama-3.1-8B"


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (methods, caches):
        monkeypatch.setattr(module, "DECODED", 3)
        monkeypatch.setattr(module, "LEAST", 2)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return patient_check(tmp_path, TINY_LENGTHS, (*CACHES, *METHODS))


@pytest.mark.parametrize("name", SHAPES)
def test_the_weights_of_real_shapes_have_the_planned_bytes(name: str, tmp_path: Path) -> None:
    """Compare the planner's count with published sizes, and with the tensors of tiny shapes."""
    billions = {
        **{"Llama-3.1-8B": 8.03, "Qwen2.5-7B": 7.62, "Phi-3-mini": 3.82, "Qwen3-8B": 8.19, "gpt-oss-20b": 20.9},
        **{"Qwen3.5-27B": 26.9, "Qwen3.5-35B-A3B": 34.7, "Gemma-4-26B-A4B": 25.2, "GLM-4.7-Flash": 29.9},
    }
    assert model_sizes(config_of(name), torch.bfloat16).parameters == pytest.approx(billions[name] * 1e9, rel=0.002)
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
    stacks = [each for each in model.network.modules() if isinstance(each, PackedExperts)]
    made += sum(bank.nbytes for experts in stacks for stack in experts.stacks for bank in experts.stack(stack))
    assert bool(stacks) == model.architecture.experts
    assert made == model_sizes(config, torch.float32).weight_bytes("nf4")


OTHER_SHAPES = list(SHAPES)[3:]


@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_shapes_that_people_run_are_measured(name: str, check: Check) -> None:
    """They have experts, recurrent layers, sliding windows or latents. Each is measured with one of the methods."""
    check.lengths, first = TINY_LENGTHS[:1], OTHER_SHAPES.index(name)
    assert methods_of(check, name) == ["dense", *ELSEWHERE]
    method = ELSEWHERE[first % len(ELSEWHERE)]
    check_model(check, name, RATES, math.inf, ["dense", method])
    assert {row["method"] for row in check.rows if "method" in row} - {"dense"} == {method}
    own = [row for row in check.rows if row.get("method") != "dense"]
    assert {row["status"] for row in own} == {"done"}


@pytest.mark.parametrize("name", SHAPES)
def test_the_seam_holds_in_bf16(name: str, check: Check) -> None:
    check_seam(check, name)
    assert [row["ok"] for row in check.rows] == [True]


@pytest.mark.parametrize(("name", "sinks", "looks"), [("infllm", 128, 1), ("infinitehip", 256, 1), ("exact", 128, 1)])
def test_models_of_real_size_are_read_as_suits_their_window(name: str, sinks: int, looks: int) -> None:
    machine = Machine(24 << 30, 512 << 30, False, RATES)
    planner = Planner(model_sizes(config_of(NAME), torch.bfloat16), machine, len)
    method, lengths = methods._fitting(planner, name, (1 << 16, 1 << 20), planner.model.spec.window)
    assert lengths == [1 << 16, 1 << 20]
    assert (method.settings()["sinks"], method.settings()["looks"]) == (sinks, looks)


def test_answers_are_measured_without_drawing_lots(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: sorting a vocabulary of 128,256 took the processor as long as the pass took a GPU."""
    asked: list[Sampling] = []
    monkeypatch.setattr(Sampling, "__post_init__", lambda sampling: asked.append(sampling))
    model = random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, check.folder)
    context = read(model, make_method("streaming"), noise(model, 100))
    methods._answer(row := {}, context, MagicMock(first_token_sec=None), math.inf, compare=True)
    assert row["answer_tokens"] == methods.DECODED, "what noise says has no end"
    assert {sampling.temperature for sampling in asked} == {0.0}


def test_methods_and_caches_are_measured_against_their_plans(check: Check) -> None:
    model = random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, check.folder)
    free = psutil.virtual_memory().available
    planner = Planner(sizes_of(model.network, model.spec), Machine(free, free, True, RATES), model.turn_length)
    check_cache(check, model, planner, "dense", math.inf)
    for name in ("infinipot", "exact"):
        check_method(check, model, planner, name, math.inf)
    compare(check.rows)
    assert {row["status"] for row in check.rows} == {"done"}
    passes = [each for row in check.rows if row["part"] == "reading" for each in row["passes"]]
    assert {kind for _, _, kind in passes} <= {READ, FILLED, CONDENSED}
    assert min(seconds for _, seconds, _ in passes) > 0
    for part in ("reading", "answering"):
        rows = [row for row in check.rows if row["part"] == part]
        assert sorted((row["method"], row["tokens"]) for row in rows) == sorted(
            (method, tokens) for method in ("dense", "infinipot", "exact") for tokens in TINY_LENGTHS
        )
        assert all(row["tokens_per_second"] > 0 and row["to_dense"] > 0 for row in rows)
    last = check.row("reading", method="exact", tokens=TINY_LENGTHS[-1])
    entry = 2 * model.spec.layers[0].kv_heads * model.spec.layers[0].head_size * len(model.spec.layers) * 2 + 4
    assert last["host_bytes"] == pytest.approx((TINY_LENGTHS[-1] + len(model.chat.prefix)) * entry, rel=0.01)
    assert "exact" in tables(check.rows)


def test_entries_in_codes_on_the_device_are_measured(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: no method was measured with codes on the device."""
    check.methods, check.lengths = ("locret", *VARIANTS), TINY_LENGTHS[-1:]
    check_model(check, NAME, RATES, math.inf, ["locret", "locret-fp8", "locret-int8", "exact-sketched"])
    rows = [row for row in check.rows if row["part"] in ("reading", "answering")]
    names = ["locret", "locret-fp8", "locret-int8", "exact-sketched"]
    assert [row["method"] for row in rows] == [name for name in names for _ in range(2)]
    assert {row["status"] for row in rows} == {"done"}
    assert [row["settings"]["store"] for row in rows[:6]] == ["model"] * 2 + ["fp8"] * 2 + ["int8"] * 2
    assert [row["settings"]["sketch"] for row in rows[6:]] == ["int2"] * 2
    plain, fp8, int8, sketched = (row for row in rows if row["part"] == "reading")
    assert int8["kv_device_bytes"] == fp8["kv_device_bytes"] < 0.4 * plain["kv_device_bytes"]
    for row in (plain, fp8, int8, sketched):
        assert row["kv_device_bytes"] == pytest.approx(row["planned_kv_device_bytes"], rel=0.01)


def test_a_gpu_without_fp8_says_so(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise SettingsError("store=fp8 needs a GPU of compute capability 8.9 or more: take int8.")

    monkeypatch.setattr(methods, "Growing", refused)
    check.methods, check.lengths = ("locret-fp8",), TINY_LENGTHS[:1]
    check_model(check, NAME, RATES, math.inf, ["locret-fp8"])
    rows = [row for row in check.rows if row["part"] in ("reading", "answering")]
    assert {row["status"] for row in rows} == {
        "SettingsError: store=fp8 needs a GPU of compute capability 8.9 or more: take int8."
    }
    assert all(row.get("ok", True) for row in rows)


def test_a_method_is_measured_once_its_kernels_are_there(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: compiling kernels was counted in the first text's time."""
    begun: list[str] = []

    def noted(made: Any, what: str) -> Any:
        return lambda *given: [begun.append(what), made(*given)][1]

    for name in ("Growing", "Conversation", "Gauge"):
        monkeypatch.setattr(methods, name, noted(getattr(methods, name), name))
    model = random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, check.folder)
    machine = Machine(1 << 40, 1 << 40, True, RATES)
    check.lengths = TINY_LENGTHS[:1]
    check_method(check, model, Planner(sizes_of(model.network, model.spec), machine), "streaming", math.inf)
    assert begun[:4] == ["Growing", "Conversation", "Growing", "Gauge"]


def test_a_method_that_leaves_most_out_is_measured_too(check: Check) -> None:
    """Regression: `truncate`, which ends before all lengths, was never reported."""
    model = random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, check.folder)
    planner = Planner(sizes_of(model.network, model.spec), Machine(1 << 40, 1 << 40, True, RATES), model.turn_length)
    check.lengths = (4096, 8192)
    check_method(check, model, planner, "truncate", math.inf)
    found = {(row["part"], row["tokens"], row["status"]) for row in check.rows}
    assert found == {(part, tokens, "done") for part in ("reading", "answering") for tokens in check.lengths}


@pytest.mark.parametrize("name", METHODS)
def test_what_is_read_to_warm_up_outgrows_every_window(name: str) -> None:
    """One further pass follows, so that everything in a method has run once."""
    (method, *_) = suited_stores(131072, name)
    assert LENGTHS[0] // methods.WARMING > (method.budget or 0) + GPU_CHUNK


def test_an_offloaded_cache_is_on_the_host_and_keeps_its_memory(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it reported no host memory, and pinned its memory anew in every layer and pass."""
    use_exact_pinned_sizes()
    before = torch._C._accelerator_getAllocatorSettings()
    meanwhile: list[str] = []
    monkeypatch.setattr(caches, "_answer", lambda *_: meanwhile.append(torch._C._accelerator_getAllocatorSettings()))
    model = random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, check.folder)
    check.lengths = TINY_LENGTHS[:1]
    check_cache(check, model, MagicMock(), "offloaded", math.inf)
    (said,) = meanwhile
    limits = re.findall(r"pinned_max_\w+_mb:(\d+)", said)
    assert [int(each) >= 1 << 20 for each in limits[-2:]] == [True, True]
    assert torch._C._accelerator_getAllocatorSettings() == before
    cache = DynamicCache()
    cache.update(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4), 0)
    assert caches.offloaded_bytes(cache, CPU) == 0
    assert caches.offloaded_bytes(cache, torch.device("cuda", 0)) == 2 * 2 * 5 * 4 * 4


def test_methods_are_measured_after_kvpress(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: kvpress wraps every attention function on import, also the engine's."""
    package = """
from contextlib import nullcontext
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

def wrapped(function):
    return lambda module, query, key, value, attention_mask, dropout, **kwargs: function(
        module, query, key, value, attention_mask, dropout, **kwargs
    )

for name, function in list(ALL_ATTENTION_FUNCTIONS.items()):
    ALL_ATTENTION_FUNCTIONS[name] = wrapped(function)

def KnormPress(compression_ratio):
    return lambda network: nullcontext()
"""
    (tmp_path / "kvpress.py").write_text(package)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kvpress", raising=False)
    functions = dict(ALL_ATTENTION_FUNCTIONS.items())
    check.lengths, check.methods = TINY_LENGTHS[:1], ("kvpress", "full")
    try:
        check_model(check, NAME, RATES, math.inf, ["kvpress", "full"])
    finally:
        sys.modules.pop("kvpress", None)
        for name, function in functions.items():
            ALL_ATTENTION_FUNCTIONS[name] = function
    assert {(row["method"], row["status"]) for row in check.rows if row["part"] == "reading"} == {
        ("kvpress", "done"),
        ("full", "done"),
    }


def test_what_stops_an_attempt_is_said_in_the_rows_that_it_left_open(check: Check) -> None:
    def slow(over: float) -> None:
        check.row("reading", method="slow", tokens=1)["status"] = "done"
        while True:
            time.sleep(0.01)

    for method in ("slow", "broken", "late"):
        for tokens in (1, 2):
            check.row("reading", method=method, tokens=tokens)
    check.attempt({"method": "slow"}, 1.0, slow)
    check.attempt({"method": "broken"}, 1e3, lambda over: [][0])
    check.ends = time.monotonic()
    check.attempt({"method": "late"}, 1e3, lambda over: pytest.fail("There is no time left to begin."))
    assert [row["status"].split(" after")[0] for row in check.rows] == [
        *("done", "not reached: stopped"),
        *["failed: IndexError: list index out of range"] * 2,
        *[PENDING] * 2,
    ]
    assert [row.get("ok", True) for row in check.rows] == [True, True, False, False, True, True]


def test_with_all_the_time_there_is_every_method_is_measured(check: Check) -> None:
    check.lengths = TINY_LENGTHS[:1]
    check_model(check, NAME, RATES, math.inf, [*CACHES, *METHODS])
    for part in ("reading", "answering"):
        done = {row["method"] for row in check.rows if row["part"] == part and row["status"] == "done"}
        assert done - {"kvpress"} == {"dense", "offloaded", *METHODS}


def test_kernels_are_checked(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that all of a store are; others are in `test_gpu_kernels.py`."""
    pytest.importorskip("triton")
    for name, value in {"LLAMA": Heads(2, 1, 16), "OTHERS": ()}.items():
        monkeypatch.setattr(gpu_inputs, name, value)
    monkeypatch.setattr(gpu_kernels, "STORES", {ON_DEVICE: STORES[ON_DEVICE]})
    check_kernels(check)
    assert len(check.rows) > 1
    assert {row["status"] for row in check.rows} == {"done"}
    assert check.row("kernels", kernel="all")["ok"]


def test_kernels_are_exact_whether_or_not_there_is_time_for_more(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last kernels are timed and not compared."""

    def rows(*_: object) -> Iterator[dict[str, object]]:
        yield {"kernel": "pruning", "agrees": True}
        yield {"kernel": "pruning", "agrees": None}
        raise NotReached

    monkeypatch.setattr(parity, "kernel_rows", rows)
    lay_out(check, KERNEL_PART, [])
    check.attempt(parity.KERNELS, 1e3, lambda over: check_kernels(check))
    assert check.row("kernels", **parity.KERNELS)["ok"]


def test_kernels_that_were_checked_in_time_are_told_of(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*_: object) -> Iterator[dict[str, object]]:
        yield {"kernel": "pruning", "agrees": True}
        yield {"kernel": "attention", "agrees": False}
        raise NotReached

    monkeypatch.setattr(parity, "kernel_rows", rows)
    lay_out(check, KERNEL_PART, [])
    every = check.row("kernels", **parity.KERNELS)
    check.attempt(parity.KERNELS, 1e3, lambda over: check_kernels(check))
    assert every["status"].startswith("not reached")
    assert not every["ok"]
    found = [(row["kernel"], row["status"]) for row in check.rows if row["part"] == "kernels"]
    assert found[1:] == [("pruning", "done"), ("attention", "done")]


def test_what_was_not_reached_is_not_shown_to_be_exact(check: Check) -> None:
    """Regression: a run that ended before its comparisons reported success."""
    check.ends = time.monotonic()
    for part in parts_of(list(SHAPES), profile=True):
        run(check, part, list(SHAPES))
    assert {row["part"] for row in check.rows if not row.get("ok", True)} == {"parity", "kernels"}


def test_what_is_measured_is_kept_after_each_attempt(check: Check) -> None:
    """Regression: a run that the system ended for lack of memory left no results."""
    kept: list[list[str]] = []
    check.keep = lambda: kept.append([row["status"] for row in check.rows])
    check.row("reading", tokens=1)
    check.attempt({"tokens": 1}, 1e3, lambda over: check.row("reading", tokens=1).update(status="done"))
    assert kept == [["done"]]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: out of memory\nSee ...")],
)
def test_memory_that_runs_out_is_no_failure(check: Check, error: Exception) -> None:
    """Pinned memory runs out with an error of its own, and some errors have no text."""
    row = check.row("reading", tokens=1)
    check.attempt({"tokens": 1}, 1e3, MagicMock(side_effect=error))
    assert row["status"] == f"{type(error).__name__}: {error}".splitlines()[0]
    assert row.get("ok", True)


def test_a_device_that_fails_for_good_leaves_the_other_rows(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: releasing memory after an illegal access failed too and ended the run."""
    sticky = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    for name in ("empty_cache", "reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, MagicMock(side_effect=sticky))
    check.place = torch.device("cuda", 0)
    row = check.row("reading", tokens=1)
    check.attempt({"tokens": 1}, 1e3, MagicMock(side_effect=sticky))
    assert row["status"].startswith("failed: AcceleratorError")
    assert not row["ok"]


def test_an_answer_in_which_passes_were_recorded_is_given_again(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: recording CUDA graphs took most of the first and second answer's time."""
    model = random_model(NAME, config_of(NAME, tiny=True), CPU, torch.float32, True, check.folder)
    context = read(model, make_method("streaming"), noise(model, 300))
    asked: list[int] = []
    plain = methods.answer_to

    def last(conversation: Conversation, question: str, tokens: int) -> Answer:
        if len(asked) in (0, 2):
            conversation.memory.recordings = {len(asked): MagicMock()}
        asked.append(conversation.turns)
        return plain(conversation, question, tokens)

    monkeypatch.setattr(methods, "answer_to", last)
    plan = MagicMock(first_token_sec=None)
    methods._answer(row := {}, context, plan, math.inf, compare=True)
    assert row["status"] == "done"
    assert asked == [0, 1, 2, 3, 0], "and then without recordings"


def test_without_time_every_cell_has_a_row_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--device", "cpu", "--minutes", "0", "--profile", "--out", str(tmp_path)]) == 1, (
        "nothing is shown to be exact"
    )
    parts = parts_of(list(SHAPES), profile=True)
    results = {part: json.loads((tmp_path / f"gpu-check-cpu-tiny-{part}.json").read_text()) for part in parts}
    assert sorted(tmp_path.iterdir()) == sorted(tmp_path / f"gpu-check-cpu-tiny-{part}.json" for part in parts)
    rows = [row for part in parts for row in results[part]["rows"]]
    assert {row["status"] for row in rows} == {PENDING}
    wanted = {(NAME, method, tokens) for method in (*METHODS, *VARIANTS) for tokens in TINY_LENGTHS}
    wanted |= {(name, method, tokens) for name in SHAPES for method in ELSEWHERE for tokens in TINY_LENGTHS}
    for part, others in (("reading", CACHES), ("answering", CACHES[:2])):
        cells = [(row["model"], row["method"], row["tokens"]) for row in rows if row["part"] == part]
        assert wanted <= set(cells)
        assert {method for _, method, _ in cells} == {*others, *METHODS, *VARIANTS}
        assert {name for name, method, _ in cells if method in VARIANTS} == {NAME}, "the first model alone"
        assert len(cells) == len(set(cells))
    assert PENDING in capsys.readouterr().out


def test_a_gpu_is_held_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: PyTorch takes no limit for "cuda" without an index, so the check ended at once."""
    limits, places = [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: MagicMock(total_memory=80 << 30))
    monkeypatch.setattr(torch.cuda.memory, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_setMemoryFraction", lambda *given: limits.append(given), raising=False)
    monkeypatch.setattr(command, "free_bytes", lambda place: 40 << 30)
    monkeypatch.setattr(command, "run", lambda check, *_: places.append((check.place, check.limit, check.host)))
    monkeypatch.setattr(command, "write", lambda *_: None)
    assert main(["--part", "kernels", "--out", str(tmp_path)]) == 0
    limit = (24 << 30) - GPU_BASE
    assert places == [(torch.device("cuda", 0), limit, int(0.9 * (40 << 30)))], (
        "and what is kept on the host to its own"
    )
    assert limits == [(limit / (80 << 30), 0)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert capsys.readouterr().err.strip() == NO_GPU
