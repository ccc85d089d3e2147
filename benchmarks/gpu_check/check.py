"""One run of the check: its device, its time, and the table it fills in."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.gpu_check.gauge import computed_in, free_all
from benchmarks.gpu_kernels import ALL
from engine import EngineError, Rates
from engine.memory_usage import is_out_of_memory

PENDING = "not reached: no time left"
LEAST_SEC = 0.2  # shorter attempts are not started
Row = dict[str, Any]
T = TypeVar("T")
log = logging.getLogger(__name__)


class NotReached(BaseException):
    """The time of an attempt is over. Not an Exception, as Triton's interpreter would swallow it."""


@dataclass
class Check:
    """One run.

    Attributes:
        rows: the tables; each row has a `part`, which is its table, and a `status`.
        kernels: which kernels are checked, of `gpu_kernels`.
        measured: rates of this machine, once they were measured; rates: the same for the JSON file, with more.
        keep: called after each attempt, to save the rows in case the run is killed.
    """

    place: torch.device
    tiny: bool
    limit: int  # device bytes that PyTorch may use
    host: int  # host bytes for texts
    ends: float  # by time.monotonic
    folder: Path  # for weights beside a model
    lengths: tuple[int, ...]  # tokens
    methods: tuple[str, ...]  # methods and caches
    rows: list[Row] = field(default_factory=list)
    kernels: str = ALL
    measured: Rates | None = None
    rates: Row = field(default_factory=dict)
    keep: Callable[[], None] = lambda: None

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the computation."""
        return computed_in(self.place)

    def left(self) -> float:
        """Return the remaining seconds."""
        return self.ends - time.monotonic()

    def row(self, part: str, **facts: Any) -> Row:
        """Return the row with these facts; a new one has the status "not reached"."""
        for row in self.rows:
            if row["part"] == part and facts.items() <= row.items():
                return row
        self.rows.append({"part": part, **facts, "status": PENDING})
        return self.rows[-1]

    def attempt(self, facts: Row, share_sec: float, do: Callable[[float], T]) -> T | None:
        """Fill in the rows with these facts within a share of the time.

        An error is noted in the rows that are still empty, and the run continues.
        do: gets the deadline, by time.monotonic; it is interrupted a little later.
        """
        share_sec = min(share_sec, self.left())
        if share_sec < LEAST_SEC:
            return None
        began = time.monotonic()
        try:
            with _alarm(min(1.2 * share_sec + 1.0, self.left())):
                return do(began + share_sec)
        except NotReached:
            self.missed(facts, status=f"not reached: stopped after {time.monotonic() - began:.0f} s")
        except Exception as error:  # one failing cell must not end the whole run
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            if isinstance(error, EngineError) or is_out_of_memory(error):
                self.missed(facts, status=said)
            else:
                log.exception("%s failed", facts)
                self.missed(facts, ok=False, status=f"failed: {said}")
        finally:
            free_all(self.place)
            self.keep()
        return None

    def missed(self, facts: Row, **why: Any) -> None:
        """Note the reason in the rows with these facts that are still pending."""
        for row in self.rows:
            if row["status"] == PENDING and facts.items() <= row.items():
                row |= why


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise NotReached in this thread when the time is over, and again every second until it has an effect."""

    def ring(number: int, frame: object) -> None:
        raise NotReached

    handler = signal.signal(signal.SIGALRM, ring)
    others, _ = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, others)
        signal.signal(signal.SIGALRM, handler)
