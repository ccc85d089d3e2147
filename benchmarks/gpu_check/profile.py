"""Profiles of single passes: their kernels, the device's busy share, the gaps, and the bytes that were copied.

For each method one pass of reading, one token of an answer whose pass is not recorded, and one that is replayed. Rows
that kernels read in host memory are not in `copied_bytes`, since no copy brings them.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import wait
from benchmarks.gpu_check.growing import Growing
from benchmarks.gpu_check.methods import fitting_method
from engine import Conversation, Model, Planner

READING, UNRECORDED, REPLAYED = "a pass of reading", "a token, unrecorded", "a token, replayed"
PASSES = (READING, UNRECORDED, REPLAYED)
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
TOP = 10
TOKENS = 8  # of an answer before the profiled ones, so that everything is compiled and recorded


def check_profile(check: Check, model: Model, planner: Planner, name: str) -> None:
    """Profile the passes of one method at the shortest length."""
    method, fitting = fitting_method(check, planner, name)
    length = check.lengths[0]
    if length not in fitting:
        return
    growing = Growing(model, method)
    growing.extend(length, planner.plan(method, length, "nf4").chunk)
    for _ in growing.fills(growing.behind):
        pass
    reading = growing.reads(growing.total)
    next(reading)  # compiles
    layers = len(model.spec.layers)

    def note(what: str, do: Callable[[], object]) -> None:
        row = check.row("profile", model=model.name, method=name, what=what)
        row |= {"tokens": length, **profiled(check.place, do, layers), "status": "done"}

    note(READING, lambda: next(reading))
    for _ in reading:
        pass
    conversation = Conversation(growing.context())
    conversation.memory.mass = conversation.mass
    conversation.feed([1] * TOKENS)
    for _ in range(TOKENS):
        conversation.feed([1], repeated=True)
    if conversation.memory.recordings:
        note(REPLAYED, lambda: conversation.feed([1], repeated=True))
    else:
        check.row("profile", model=model.name, method=name, what=REPLAYED)["status"] = "never recorded"
    note(UNRECORDED, lambda: conversation.feed([1]))


def profiled(place: torch.device, do: Callable[[], object], layers: int) -> Row:
    """Run a call under PyTorch's profiler and return the summary of its work on the device."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if place.type == "cuda" else [])]
    began = wait(place)
    with profile(activities=activities) as found:
        do()
        seconds = wait(place) - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        found.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return {"seconds": seconds, **summary(events, layers)}


def summary(events: list[dict[str, Any]], layers: int) -> Row:
    """Return what a trace says: kernels per layer, busy share and gaps, the longest kernels, bytes copied.

    Times are in seconds. Without a GPU the work is that of PyTorch's operations on the processor.
    """
    work = [each for each in events if each.get("cat") in DEVICE_WORK and "dur" in each]
    work = work or [each for each in events if each.get("cat") == "cpu_op" and "dur" in each]
    spans = sorted((each["ts"], each["ts"] + each["dur"]) for each in work)
    busy, at = 0.0, float("-inf")
    for begin, end in spans:
        busy += max(0.0, end - max(begin, at))
        at = max(at, end)
    whole = at - spans[0][0] if spans else 0.0
    by_name: Counter[str] = Counter()
    copied: Counter[str] = Counter()
    for each in work:
        by_name[each["name"]] += each["dur"]
        if each["cat"] == "gpu_memcpy":
            copied[each["name"].removeprefix("Memcpy ").split()[0]] += int(each["args"]["bytes"])
    launched = sum(each["cat"] in ("kernel", "cpu_op") for each in work)
    return {
        "kernels_per_layer": launched / layers,
        "busy_seconds": busy / 1e6,
        "gap_seconds": (whole - busy) / 1e6,
        "busy_share": busy / whole if whole else None,
        "copied_bytes": dict(copied),
        "top": [[name, micros / 1e6] for name, micros in by_name.most_common(TOP)],
    }
