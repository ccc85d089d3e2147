"""Measure the few rates of a machine that the planner needs to compute times."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

SIDE = 1024  # of the matrices that are multiplied; too small for a GPU, which would wait for launches
GPU_SIDE = 4096
COPIED = 64 << 20  # bytes; a large GPU's cache holds nearly twice as many
GPU_COPIED = 128 << 20
LEAST_SEC = 0.1  # each rate is measured for at least this long,
TIMES = 3  # as often; the best counts
SMALL_OPERATION_SEC = 6e-6  # a kernel launch, if nothing was measured
NODE_SEC = 3.4e-6  # a small kernel of a replayed recording, as on an H200
PACKED_SHARE = 0.33  # share of a GPU's memory rate at which weights of 4 bits are multiplied with one token
NODES = 256  # small kernels in the graph that is timed
PACKED = (4096, 14336)  # rows and columns of the weights in 4 bits that are multiplied
PACKED_TIMES = 8  # weights, one after the other: no cache holds all of them


@dataclass(frozen=True)
class Rates:
    """Rates of a device and of the host around it, which are the same without a GPU."""

    flops: float  # operations of large matrix products per second on the device
    memory: float  # bytes read or written per second on the device
    link: float  # bytes per second from host to device
    host_flops: float
    host_memory: float
    operation_sec: float = SMALL_OPERATION_SEC  # seconds of one small operation, however little it computes
    node_sec: float = NODE_SEC  # seconds of a small kernel of a replayed recording
    packed_share: float = PACKED_SHARE  # of `memory`, at which weights of 4 bits are multiplied with one token


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Measure this machine: a second or two of matrix products, copies and small operations in the given dtype."""
    here = torch.device("cpu")
    host_flops, host_memory = _flops(here, torch.float32), _copying(here, here)
    if device.type == "cpu":
        flops = host_flops if dtype == torch.float32 else _flops(here, dtype)
        return Rates(flops, host_memory, host_memory, host_flops, host_memory, _small(here))
    flops, memory, link = _flops(device, dtype), _copying(device, device), _copying(here, device)
    return Rates(
        *(flops, memory, link, host_flops, host_memory, _small(device)),
        node_sec=_node(device),
        packed_share=_packed(device, dtype) / memory,
    )


def _flops(device: torch.device, dtype: torch.dtype) -> float:
    side = SIDE if device.type == "cpu" else GPU_SIDE
    left = torch.ones(side, side, dtype=dtype, device=device)
    right = torch.ones(side, side, dtype=dtype, device=device)
    return 2 * side**3 / _seconds(lambda: left @ right, device)


def _copying(source: torch.device, target: torch.device) -> float:
    """Return bytes copied per second; a copy within one device reads and writes each byte."""
    pinned = source.type == "cpu" and target.type == "cuda"
    size = COPIED if source.type == "cpu" else GPU_COPIED
    data = torch.empty(size, dtype=torch.uint8, device=source, pin_memory=pinned)
    data.zero_()
    there = torch.zeros(size, dtype=torch.uint8, device=target)
    moved = size * (2 if source == target else 1)
    return moved / _seconds(lambda: there.copy_(data, non_blocking=True), target)


def _small(device: torch.device) -> float:
    vector = torch.ones(64, device=device)
    return _seconds(lambda: vector + 1, device)


def _node(device: torch.device) -> float:
    vector = torch.ones(64, device=device)

    def additions() -> None:
        for _ in range(NODES):
            vector.add_(1)

    return _replayed(additions, device) / NODES


def _packed(device: torch.device, dtype: torch.dtype) -> float:
    """Return bytes per second of weights in NF4 that one token is multiplied with; a share of the rest without it."""
    try:
        nn4: Any = importlib.import_module("bitsandbytes.nn")
    except ImportError:
        return PACKED_SHARE * _copying(device, device)
    rows, columns = PACKED
    layers = [nn4.Linear4bit(rows, columns, False, compute_dtype=dtype, quant_type="nf4") for _ in range(PACKED_TIMES)]
    layers = [layer.to(device) for layer in layers]
    token = torch.ones(1, rows, dtype=dtype, device=device)

    def products() -> None:
        for layer in layers:
            layer(token)

    with torch.no_grad():
        return PACKED_TIMES * rows * columns / 2 / _replayed(products, device)


def _replayed(do: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call that is replayed as a CUDA graph, or made as ever if it cannot be recorded."""
    _seconds(do, device)  # allocates, and compiles
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            do()
    except RuntimeError:
        return _seconds(do, device)
    return _seconds(graph.replay, device)


def _seconds(do: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one run after a warm-up: the best of `TIMES` averages over `LEAST_SEC` or three runs.

    On a CPU this thread's own time counts, so that other programs that run meanwhile do not.
    """
    do()
    return min(_average(do, device) for _ in range(TIMES))


def _average(do: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    began, at, runs = clock(), time.perf_counter(), 0
    while runs < 3 or time.perf_counter() - at < LEAST_SEC:
        do()
        runs += 1
        if runs % 16 == 0:
            _wait(device)
    _wait(device)
    return (clock() - began) / runs


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(
            device
        ).synchronize()  # synchronising the whole device would break a recording in progress
