"""Measurements of a device: time of completion, duration of a call, memory, and the passes of a reading."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

import psutil
import torch

from engine.decode.recorder import record

REPEATS, WARMING = 10, 2
READ, FILLED, CONDENSED = "read", "filled in", "condensed"  # kinds of passes


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


def graph_seconds(place: torch.device, run: Callable[[], object]) -> float | None:
    """Return the median device time of a call that is replayed as a CUDA graph, without the host's part of it.

    None without a GPU, and for calls that cannot be recorded.
    """
    if place.type != "cuda":
        return None
    graph, times = torch.cuda.CUDAGraph(), list[float]()
    try:
        record(graph, cast(Callable[[], torch.Tensor], run))  # what a call returns does not matter
    except RuntimeError:  # the host waits within the call
        return None
    for _ in range(WARMING + REPEATS):
        began, ended = _event(), _event()
        began.record()
        graph.replay()
        ended.record()
        wait(place)
        times.append(began.elapsed_time(ended) / 1e3)
    return statistics.median(times[WARMING:])


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


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


class TimedPass(NamedTuple):
    """A pass of a reading. kind: READ, FILLED, or CONDENSED for one that only condensed the memory."""

    tokens: int
    seconds: float
    kind: str


def full_speed(passes: list[TimedPass]) -> float | None:
    """Return the median tokens/s of the longest passes that were read; None if there are none.

    Condensing counts to the pass before it. Shorter passes, as at the end of a text, say little of a reading's speed.
    """
    whole: list[tuple[int, float]] = []
    for tokens, seconds, kind in passes:
        if kind == CONDENSED and whole:
            whole[-1] = whole[-1][0], whole[-1][1] + seconds
        elif kind == READ:
            whole.append((tokens, seconds))
    most = max((tokens for tokens, _ in whole), default=0)
    return statistics.median(tokens / seconds for tokens, seconds in whole if tokens == most) if most else None


class Gauge:
    """Cost of a reading: the passes with their seconds, and peak device bytes.

    On a GPU passes are timed by marks on its stream. Nothing waits for them, so that the host prepares the next pass
    meanwhile, as it does in every reading.
    """

    def __init__(self, place: torch.device) -> None:
        """Start measuring a reading."""
        self.place = place
        self.resident = device_bytes(place) if place.type == "cpu" else 0  # before the reading
        self.peak_bytes = 0
        self._passes: list[tuple[int, str, Any, Any]] = []
        self._known: list[TimedPass] = []
        wait(place)
        self._last = self._mark()

    def _mark(self) -> Any:
        if self.place.type != "cuda":
            return time.monotonic()
        event = _event()
        event.record(torch.cuda.current_stream(self.place))
        return event

    def look(self, tokens: int, kind: str = READ) -> None:
        """Note a pass that has ended, and its peak if it was read."""
        here = self._mark()
        self._passes.append((tokens, CONDENSED if kind == READ and not tokens else kind, self._last, here))
        self._last = here
        if kind == READ:
            self.peak_bytes = max(self.peak_bytes, device_bytes(self.place) - self.resident)

    def passes(self) -> list[TimedPass]:
        """Return all passes so far."""
        wait(self.place)
        for tokens, kind, began, ended in self._passes[len(self._known) :]:
            seconds = ended - began if self.place.type != "cuda" else began.elapsed_time(ended) / 1e3
            self._known.append(TimedPass(tokens, max(seconds, 1e-9), kind))
        return list(self._known)

    def facts(self, before: int = 0) -> dict[str, Any]:
        """Return the table's values. before: how many of the passes belong to shorter lengths."""
        passes = self.passes()
        read = [each for each in passes if each.kind != FILLED]
        return {
            "tokens_per_second": sum(each.tokens for each in read) / sum(each.seconds for each in read),
            "tokens_per_second_there": full_speed(passes[before:]),
            "device_bytes": self.peak_bytes,
            "passes": [list(each) for each in passes[before:]],
        }

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leave the time inside the block out, and its peak of device bytes."""
        wait(self.place)
        yield
        wait(self.place)
        if self.place.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.place)
        self._last = self._mark()

    @contextmanager
    def peak(self) -> Iterator[dict[str, int]]:
        """Measure the peak of device bytes inside the block, which the yielded dictionary then has."""
        if self.place.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.place)
        found: dict[str, int] = {}
        try:
            yield found
        finally:
            wait(self.place)
            found["device_bytes"] = device_bytes(self.place) - self.resident
