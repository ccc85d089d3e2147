"""The parts of the check, and their shares of the time. Each part is a run of its own, with a table of its own."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from benchmarks.gpu_check import experts, stages
from benchmarks.gpu_check.attention import cells, check_attention, lengths_of
from benchmarks.gpu_check.caches import CACHES, KVPRESS, check_cache
from benchmarks.gpu_check.check import PENDING, Check, Row
from benchmarks.gpu_check.gauge import free_all, wait
from benchmarks.gpu_check.machine_rates import machine_rates
from benchmarks.gpu_check.methods import BARE, VARIANTS, bare_chunk, check_bare, check_method, measured_as
from benchmarks.gpu_check.parity import KERNELS, SEAM, check_kernels, check_seam
from benchmarks.gpu_check.profile import PASSES, check_profile
from benchmarks.gpu_kernels import NONE
from benchmarks.model_shapes import SHAPES, config_of
from benchmarks.random_models import random_model
from engine import METHODS, Machine, Model, Planner, Rates, make_method, measure_rates
from engine.trained.beacons import FILE as BEACONS
from engine.trained.beacons import Beacons
from engine.trained.retaining import FILE as HEADS
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights

PARITY, KERNEL_PART, LAYERS, CACHE_PART, CONDENSING, RETRIEVING, PROFILE = (
    *("parity", "kernels", "layers", "caches", "condensing", "retrieving"),
    "profile",
)
MINUTES = {PARITY: 1.0, LAYERS: 3.0, CACHE_PART: 3.0, PROFILE: 3.0}  # of a part; the others and each model take MOST
MOST_MINUTES = 4.0
TINY_MINUTES = 1.5
EXPERT_SHARE = 0.25  # of the time for layers
METHOD_SHARES = {  # weights within a part's time; others 1.0
    **{"offloaded": 3.0, "recall": 1.5, "infllm": 1.5, "infinitehip": 2.0},
    **{"infinipot": 1.5, "locret": 1.5},
}
WEIGHTS = {"what": "weights made"}
PROFILED = ("infinitehip", "exact", "recall", "infllm", "locret", "streaming", "truncate", "full")  # unsure ones first
ELSEWHERE = ("full", "streaming", "locret", "infinitehip", "exact")  # methods that are measured with all other models


def parts_of(names: list[str], profile: bool) -> list[str]:
    """Return the parts in order; `names` are the models: the first with every method, and each other by itself."""
    first = [PARITY, KERNEL_PART, LAYERS, CACHE_PART, CONDENSING, RETRIEVING]
    return [*first, *names[1:], *([PROFILE] if profile else [])]


def minutes_of(part: str, tiny: bool) -> float:
    """Return the minutes that a part takes at most."""
    return TINY_MINUTES if tiny else MINUTES.get(part, MOST_MINUTES)


def run(check: Check, part: str, names: list[str]) -> None:
    """Run one part with the models of these names."""
    lay_out(check, part, names)
    if part == PARITY:
        for name, share in _shares(names, {}):
            check.attempt({"model": name, **SEAM}, share * check.left(), _later(check_seam, check, name))
    elif part == KERNEL_PART:
        if check.kernels != NONE:
            check.attempt(KERNELS, check.left(), lambda over: check_kernels(check))
    elif part == LAYERS:
        check.attempt({"part": "experts"}, EXPERT_SHARE * check.left(), lambda over: experts.check_experts(check))
        check.attempt({"part": "attention"}, check.left(), lambda over: check_attention(check))
        if any(row["part"] == "attention" and row["status"] != PENDING for row in check.rows):
            check.missed({"part": "stages"}, status="not reached: see the table attention")
    else:
        name = part if part in names else names[0]
        check.attempt({"part": "rates"}, check.left(), lambda over: _measure_rates(check))
        if check.measured is not None:
            check_model(check, name, check.measured, check.left(), methods_of(check, part), part == PROFILE)
            free_all(check.place)


def _measure_rates(check: Check) -> None:
    check.measured = measure_rates(check.place, check.dtype)
    check.rates = machine_rates(check.place, check.measured, check.tiny)


def _later(do: Callable[[Check, str], None], check: Check, name: str) -> Callable[[float], None]:
    return lambda over: do(check, name)


def lay_out(check: Check, part: str, names: list[str]) -> None:
    """Add a row for every measurement of a part. Parity counts as failed until it is shown."""
    if part == PARITY:
        for name in names:
            check.row("parity", model=name, **SEAM)["ok"] = False
    elif part == KERNEL_PART:
        if check.kernels != NONE:
            check.row("kernels", **KERNELS)["ok"] = False
    elif part == LAYERS:
        for cell in experts.cells(check):
            check.row("experts", **cell)
        for cell in cells(check):
            check.row("attention", **cell)
        for cell in stages.cells(lengths_of(check)):
            check.row("stages", **cell)
    else:
        _lay_out_model(check, part if part in names else names[0], methods_of(check, part), part == PROFILE)


def _lay_out_model(check: Check, name: str, methods: list[str], profiled: bool) -> None:
    check.row("model", model=name, **WEIGHTS)
    if profiled:
        for method, what in itertools.product(methods, PASSES):
            check.row("profile", model=name, method=method, what=what)
        return
    if any(method not in CACHES for method in methods):
        check.row(BARE, model=name, chunk=bare_chunk(check))
    for table, method in itertools.product(("reading", "answering"), methods):
        if method != KVPRESS:
            for length in check.lengths:
                check.row(table, model=name, method=method, tokens=length)
        elif table == "reading":
            check.row(table, model=name, method=method, tokens=check.lengths[0])


def methods_of(check: Check, part: str) -> list[str]:
    """Return the methods and caches of a part in order; variants of a method are measured with the first model."""

    def retrieves(name: str) -> bool:
        return "tier" in make_method(measured_as(name)[0]).settings()

    every = sorted((*METHODS, *VARIANTS), key=lambda each: (METHODS[measured_as(each)[0]].family, each))
    wanted = {
        CACHE_PART: list(CACHES),
        CONDENSING: [each for each in every if not retrieves(each)],
        RETRIEVING: [each for each in every if retrieves(each)],
        PROFILE: list(PROFILED),
    }.get(part, [CACHES[0], *ELSEWHERE])
    return [each for each in wanted if each in check.methods]


def _shares(names: list[str], weights: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield each name with its share of the time left at its turn."""
    for number, name in enumerate(names):
        yield name, weights.get(name, 1.0) / sum(weights.get(each, 1.0) for each in names[number:])


def check_model(
    check: Check, name: str, rates: Rates, share_sec: float, methods: list[str], profiled: bool = False
) -> None:
    """Measure methods and caches with one model, or profile them."""
    ends = time.monotonic() + share_sec
    model = check.attempt({"model": name}, share_sec, lambda over: _model(check, name, methods))
    if model is None:
        return
    planner = Planner.of_loaded(model, Machine(check.limit, check.host, check.place.type == "cpu", rates))
    if not profiled and any(method not in CACHES for method in methods):
        check.attempt({"part": BARE, "model": name}, ends - time.monotonic(), lambda over: check_bare(check, model))

    def measure(method: str, over: float) -> None:
        if profiled:
            check_profile(check, model, planner, method)
        elif method in CACHES:
            check_cache(check, model, planner, method, over)
        else:
            check_method(check, model, planner, method, over)

    for method, share in _shares(methods, METHOD_SHARES):
        facts: Row = {"model": name, "method": method}
        check.attempt(facts, share * (ends - time.monotonic()), lambda over, method=method: measure(method, over))  # type: ignore[misc]
        said = [row["status"] for row in check.rows if facts.items() <= row.items()]
        print(f"{name}, {method}: {'; '.join(dict.fromkeys(said))}", file=sys.stderr, flush=True)


def _model(check: Check, name: str, methods: list[str]) -> Model:
    """Return a random model, with random trained weights beside it for the methods that need them."""
    assert name in SHAPES
    began, folder = wait(check.place), check.folder / name
    model = random_model(name, config_of(name, check.tiny), check.place, check.dtype, True, folder)
    with check.place:
        if any(each not in CACHES and measured_as(each)[0] in ("locret", "recall") for each in methods):
            heads = RetainingHeads(model.spec, [1024] * len(model.spec.layers))
            save_weights(heads, folder / HEADS, model.spec, {})
        if "beacon" in methods:
            save_weights(Beacons(model.spec), folder / BEACONS, model.spec, {})
    check.row("model", model=name, **WEIGHTS).update(seconds=wait(check.place) - began, status="done")
    return model
