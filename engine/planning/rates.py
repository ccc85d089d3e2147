"""Measure the few rates of a machine that the planner needs to compute times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

SIDE = 1024  # of the matrices that are multiplied; too small for a GPU, which would wait for launches
GPU_SIDE = 4096
COPIED = 64 << 20  # bytes; a large GPU's cache holds nearly twice as many
GPU_COPIED = 128 << 20
LEAST_SEC = 0.1  # each rate is measured for at least this long,
TIMES = 3  # as often; the best counts
SMALL_OPERATION_SEC = 6e-6  # a kernel launch, if nothing was measured


@dataclass(frozen=True)
class Rates:
    """Rates of a device and of the host around it, which are the same without a GPU."""

    flops: float  # operations of large matrix products per second on the device
    memory: float  # bytes read or written per second on the device
    link: float  # bytes per second from host to device
    host_flops: float
    host_memory: float
    operation_sec: float = SMALL_OPERATION_SEC  # seconds of one small operation, however little it computes


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Measure this machine: a second or two of matrix products, copies and small operations in the given dtype."""
    here = torch.device("cpu")
    host_flops, host_memory = _flops(here, torch.float32), _copying(here, here)
    if device.type == "cpu":
        flops = host_flops if dtype == torch.float32 else _flops(here, dtype)
        return Rates(flops, host_memory, host_memory, host_flops, host_memory, _small(here))
    flops, memory, link = _flops(device, dtype), _copying(device, device), _copying(here, device)
    return Rates(flops, memory, link, host_flops, host_memory, _small(device))


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
