"""What a device is doing: the time at which it is done, how long a call takes, its bytes, and both over a reading."""

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
    """The type that is measured and compared in."""
    return torch.bfloat16 if place.type == "cuda" else torch.float32


def wait(place: torch.device) -> float:
    """Now, by time.monotonic, once the device has done all it was given."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.monotonic()


def median_seconds(place: torch.device, run: Callable[[], object]) -> float:
    """Wall time of a call until the device is done with it, after some to warm up."""
    times = []
    for _ in range(WARMING + REPEATS):
        began = wait(place)
        run()
        times.append(wait(place) - began)
    return statistics.median(times[WARMING:])


def free_all(place: torch.device) -> None:
    """Let go of what is unused, as far as the device still works."""
    gc.collect()
    if place.type == "cuda":
        with suppress(RuntimeError):  # after an illegal access every call fails, and the next attempt says so
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(place)


def device_bytes(place: torch.device) -> int:
    """Peak since `free_all` on a GPU; on a processor what is resident now."""
    return int(torch.cuda.max_memory_allocated(place) if place.type == "cuda" else psutil.Process().memory_info().rss)


class Gauge:
    """What a reading costs: its seconds, without those of questions on the way, and the device's bytes at the peak."""

    def __init__(self, place: torch.device) -> None:
        """The reading begins."""
        self.place = place
        self.resident = device_bytes(place) if place.type == "cpu" else 0  # before it began
        self.peak_bytes = 0
        self.began = wait(place)

    def look(self) -> None:
        """Another pass is done."""
        self.peak_bytes = max(self.peak_bytes, device_bytes(self.place) - self.resident)

    def facts(self, tokens: int) -> dict[str, float | int]:
        """For the table, after so many tokens."""
        return {"tokens_per_second": tokens / (wait(self.place) - self.began), "device_bytes": self.peak_bytes}

    @contextmanager
    def halted(self) -> Iterator[None]:
        """What is done meanwhile is no part of the reading."""
        halted = wait(self.place)
        yield
        self.began += wait(self.place) - halted
        if self.place.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.place)
