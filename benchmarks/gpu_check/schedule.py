"""Order of the parts and their shares of the time."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Mapping

from benchmarks.gpu_check import experts
from benchmarks.gpu_check.attention import cells, check_attention
from benchmarks.gpu_check.caches import CACHES, KVPRESS, check_cache
from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.gauge import free_all, wait
from benchmarks.gpu_check.methods import VARIANTS, check_method, measured_as
from benchmarks.gpu_check.parity import KERNELS, SEAM, check_kernels, check_seam
from benchmarks.random_models import SEAM_ONLY, config_of, random_model
from engine import METHODS, Machine, Model, Planner, Rates, measure_rates
from engine.trained.beacons import FILE as BEACONS
from engine.trained.beacons import Beacons
from engine.trained.retaining import FILE as HEADS
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights

SEAM_SHARE = 0.03  # share of the whole time, for each model
KERNEL_SHARE = 0.2  # a hundred compilations of half a second: one for each kind of slab and of heads
EXPERT_SHARE = 0.03
ATTENTION_SHARE = 0.1
# Filling in entries mostly takes time to pin host memory, at some 3 GB/s, and to quantise there
MODEL_SHARES = {"Llama-3.1-8B": 4.5, "Qwen2.5-7B": 2.5, "Phi-3-mini": 1.2}
METHOD_SHARES = {  # weights within a model's time; others 1.0
    **{"offloaded": 3.0, "recall": 4.0, "exact": 4.0, "exact-sketched": 4.0, "infllm": 6.0, "infinitehip": 6.0},
    **{"infinipot": 1.5, "locret": 1.5},
}
WEIGHTS = {"what": "weights made"}


def run(check: Check, names: list[str]) -> None:
    """Run all parts with the models of these names."""
    _lay_out(check, names)
    seam_sec, expert_sec, kernel_sec, attention_sec = (
        share * check.left() for share in (SEAM_SHARE, EXPERT_SHARE, KERNEL_SHARE, ATTENTION_SHARE)
    )
    for name in (*names, *SEAM_ONLY):
        check.attempt({"model": name, **SEAM}, seam_sec, lambda over, name=name: check_seam(check, name))  # type: ignore[misc]
    check.attempt({"part": "experts"}, expert_sec, lambda over: experts.check_experts(check))
    check.attempt(KERNELS, kernel_sec, lambda over: check_kernels(check))
    check.attempt({"part": "attention"}, attention_sec, lambda over: check_attention(check))
    rates = measure_rates(check.place, check.dtype)
    for name, share in _shares(names, MODEL_SHARES):
        check_model(check, name, rates, share * check.left(), name == names[0])
        free_all(check.place)


def _lay_out(check: Check, names: list[str]) -> None:
    """Add a row for every measurement. Parity counts as failed until it is shown."""
    for name in (*names, *SEAM_ONLY):
        check.row("parity", model=name, **SEAM)["ok"] = False
    for name in names:
        check.row("model", model=name, **WEIGHTS)
        for part, method in itertools.product(("reading", "answering"), _order(check, name == names[0])):
            if method != KVPRESS:
                for length in check.lengths:
                    check.row(part, model=name, method=method, tokens=length)
            elif part == "reading":
                check.row(part, model=name, method=method, tokens=check.lengths[0])
    check.row("kernels", **KERNELS)["ok"] = False
    for cell in cells(check):
        check.row("attention", **cell)
    for cell in experts.cells(check):
        check.row("experts", **cell)


def _order(check: Check, first: bool) -> list[str]:
    """Return the names in order: the dense cache first, as others are compared with it, then condensing and retrieving
    ones.

    first: the first model, the only one for which all variants of a method are measured.
    """

    def beside(name: str) -> bool:
        return METHODS[measured_as(name)[0]].family not in ("condensing", "retrieving")

    ours = sorted((*METHODS, *(VARIANTS if first else ())), key=lambda each: (beside(each), each))
    return [each for each in (*CACHES, *ours) if each in check.methods]


def _shares(names: list[str], weights: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield each name with its share of the time left at its turn."""
    for number, name in enumerate(names):
        yield name, weights.get(name, 1.0) / sum(weights.get(each, 1.0) for each in names[number:])


def check_model(check: Check, name: str, rates: Rates, share_sec: float, first: bool = True) -> None:
    """Measure all methods and caches with one model; `first` marks the first model."""
    ends = time.monotonic() + share_sec
    model = check.attempt({"model": name}, share_sec, lambda over: _model(check, name))
    if model is None:
        return
    planner = Planner.of_loaded(model, Machine(check.limit, check.host, check.place.type == "cpu", rates))

    def measure(method: str, over: float) -> None:
        if method in CACHES:
            check_cache(check, model, planner, method, over)
        else:
            check_method(check, model, planner, method, over)

    for method, share in _shares(_order(check, first), METHOD_SHARES):
        facts = {"model": name, "method": method}
        check.attempt(facts, share * (ends - time.monotonic()), lambda over, method=method: measure(method, over))  # type: ignore[misc]
        said = [row["status"] for row in check.rows if facts.items() <= row.items()]
        print(f"{name}, {method}: {'; '.join(dict.fromkeys(said))}", file=sys.stderr, flush=True)


def _model(check: Check, name: str) -> Model:
    """Return a random model, with random trained weights beside it for the methods that need them."""
    began, folder = wait(check.place), check.folder / name
    model = random_model(name, config_of(name, check.tiny), check.place, check.dtype, True, folder)
    with check.place:
        if any(measured_as(each)[0] == "locret" for each in check.methods):
            heads = RetainingHeads(model.spec, [1024] * len(model.spec.layers))
            save_weights(heads, folder / HEADS, model.spec, {})
        if "beacon" in check.methods:
            save_weights(Beacons(model.spec), folder / BEACONS, model.spec, {})
    check.row("model", model=name, **WEIGHTS).update(seconds=wait(check.place) - began, status="done")
    return model
