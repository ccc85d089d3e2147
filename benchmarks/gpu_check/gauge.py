"""Measurements of a device: time of completion, duration of a call, memory, and both over a reading."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
import torch

REPEATS, WARMING = 10, 2


def computed_in(place: torch.device) -> torch.dtype:
    """Return the dtype of measurements and comparisons."""
    return torch.bfloat16 if place.type == "cuda" else torch.float32


def wait(place: torch.device) -> float:
    """Wait until the device is idle and return the time, by time.monotonic."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.monotonic()


def median_seconds(place: torch.device, run: Callable[[], object]) -> float:
    """Return the median wall time of a call, device work included, after warm-up."""
    times = []
    for _ in range(WARMING + REPEATS):
        began = wait(place)
        run()
        times.append(wait(place) - began)
    return statistics.median(times[WARMING:])


def free_all(place: torch.device) -> None:
    """Free unused memory, if the device still works."""
    gc.collect()
    if place.type == "cuda":
        with suppress(RuntimeError):  # after an illegal access every call fails; the next attempt reports it
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(place)


def device_bytes(place: torch.device) -> int:
    """Return the peak since `free_all` on a GPU; on a CPU the resident bytes now."""
    return int(torch.cuda.max_memory_allocated(place) if place.type == "cuda" else psutil.Process().memory_info().rss)


class Gauge:
    """Cost of a reading: seconds, without interruptions for questions, and peak device bytes."""

    def __init__(self, place: torch.device) -> None:
        """Start measuring a reading."""
        self.place = place
        self.resident = device_bytes(place) if place.type == "cpu" else 0  # before the reading
        self.peak_bytes = 0
        self.began = wait(place)

    def look(self) -> None:
        """Update the peak after a pass."""
        self.peak_bytes = max(self.peak_bytes, device_bytes(self.place) - self.resident)

    def facts(self, tokens: int) -> dict[str, float | int]:
        """Return the table's values after `tokens` tokens."""
        return {"tokens_per_second": tokens / (wait(self.place) - self.began), "device_bytes": self.peak_bytes}

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Stop the clock inside this context."""
        halted = wait(self.place)
        yield
        self.began += wait(self.place) - halted
        if self.place.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.place)
