"""Gather the numbers of the metrics panel from the store and from this process."""

import time
from collections import deque
from itertools import pairwise
from typing import Any

import psutil

from app.errors import expected
from app.jobs.worker import HISTORY
from app.language import t
from app.reading.methods import spec_of
from app.service import Service
from app.web.views.metrics_panel import Latency, Metrics
from sessions import ContextRow, SessionRow

LATENCY_SEC = 20.0
"""Age of the times to the first word when they are gathered again."""
MOST_ALIKE = 12
"""Most documents, chats and answers of each that these times are taken from."""
MOST_READ = 100
"""Most documents that are looked at to find alike ones."""


class MetricsReader:
    """Gathers numbers, and remembers the memory use of this process over the last minutes."""

    def __init__(self, service: Service) -> None:
        """Keep the home that is shown."""
        self.service = service
        self.store = service.store
        self._memory: deque[tuple[float, int]] = deque(maxlen=240)
        self._latency: dict[str, tuple[float, Latency | None]] = {}  # by context, with the time
        self._entry_bytes: dict[str, int] = {}  # of one token, by model
        self._memory_total = psutil.virtual_memory().total

    def read(self, context: ContextRow | None, session: SessionRow | None) -> Metrics:
        """Return the present numbers for a context and a session."""
        import engine

        memory = engine.memory_report()
        now = time.monotonic()
        if not self._memory or now - self._memory[-1][0] >= 1.0:
            self._memory.append((now, memory["process_bytes"]))
        common: dict[str, Any] = {
            "memory": memory,
            "memory_total": self._memory_total,
            "model": self._model_line(),
            "open_bytes": self.service.contexts.bytes(),
            "open_limit": self.service.contexts.limit,
            "memory_history": [value for _, value in tuple(self._memory)],  # copied, because another tab may add to it
        }
        if context is None:
            return Metrics(**common)
        read = [row.values for row in self.store.measurements.newest("reading", context.id, limit=HISTORY)]
        answers = (
            [row.values for row in self.store.measurements.newest("answer", session.id, limit=200)] if session else []
        )
        usage, done, rate = context.usage, context.tokens_read, 0.0
        if read:
            last, rate = read[-1], read[-1]["tokens_per_second"]
            if context.status == "reading" or not usage:  # a stopped reading went on after its last measurement
                usage = last["usage"] or usage
            done = max(done, last["tokens_done"])
        elif context.seconds:
            rate = context.tokens_per_second
        if answers and context.status == "ready":  # otherwise more was read since
            usage = {"entries": answers[-1]["entries"], "bytes": answers[-1]["kv_bytes"]}
        return Metrics(
            budget=context.budget,
            full_bytes=self._full_bytes(context),
            usage=usage,
            latency=self._latencies(context),
            tokens_read=done,
            tokens=context.tokens,
            reading_speed=rate,
            first_token_sec=answers[-1]["time_to_first_token_seconds"] if answers else None,
            answer_speed=answers[-1]["tokens_per_second"] if answers else None,
            reading_history=_rates(read),
            entries_history=[each["usage"]["entries"]["device"] for each in read if each["usage"]],
            first_token_history=[each["time_to_first_token_seconds"] for each in answers],
            answer_history=[each["tokens_per_second"] for each in answers],
            **common,
        )

    def _full_bytes(self, context: ContextRow) -> int:
        """Return the bytes of all keys and values of a text in layers that look at the whole of it; 0 if unknown."""
        if context.model not in self._entry_bytes:
            try:
                spec = spec_of(context.model).looking_far
                on_gpu = (self.service.models.device_in_use or "cpu").startswith("cuda")
                self._entry_bytes[context.model] = spec.entry_width * (2 if on_gpu else spec.dtype.itemsize)
            except Exception as error:
                if not expected(error):
                    raise
                self._entry_bytes[context.model] = 0
        return context.tokens * self._entry_bytes[context.model]

    def _latencies(self, context: ContextRow) -> Latency | None:
        """Return the times to the first word by the length of the text, of documents that were read alike."""
        now = time.monotonic()
        at, known = self._latency.get(context.id, (-LATENCY_SEC, None))
        if now - at < LATENCY_SEC:
            return known
        points = []
        read = self.store.contexts.all(model=context.model, most=MOST_READ)
        alike = [row for row in read if (row.method, row.status) == (context.method, "ready")]
        for row in alike[:MOST_ALIKE]:
            times = [
                each.values["time_to_first_token_seconds"]
                for session in self.store.sessions.all(row.id, most=MOST_ALIKE)
                for each in self.store.measurements.newest("answer", session.id, limit=MOST_ALIKE)
            ]
            if times:
                points.append((row.tokens, sorted(times)[len(times) // 2]))
        rate = context.tokens_per_second
        found = Latency(sorted(points), rate) if points and rate else None
        self._latency[context.id] = now, found
        return found

    def _model_line(self) -> str:
        held = self.service.models.held
        name = (held or self.service.models.default).rpartition("/")[2]
        return (
            f"{name} · {self.service.models.device_in_use}"
            if held
            else t("{model}, loaded when it is needed", model=name)
        )


def _rates(read: list[dict[str, Any]]) -> list[float]:
    """Return tokens per second between consecutive measurements of a reading."""
    rates = []
    for before, after in pairwise(read):
        seconds, tokens = after["seconds"] - before["seconds"], after["tokens_done"] - before["tokens_done"]
        if seconds > 0 and tokens > 0:
            rates.append(tokens / seconds)
    return rates
