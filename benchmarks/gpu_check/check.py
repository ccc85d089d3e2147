"""One run of the check: where it is, the time it has, and the table that it fills in."""

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
from engine import EngineError
from engine.measure import ran_out

PENDING = "not reached: no time left"
LEAST_SEC = 0.2  # with less, nothing is begun
Row = dict[str, Any]
T = TypeVar("T")
log = logging.getLogger(__name__)


class NotReached(BaseException):
    """The time of an attempt is spent. No Exception, just as KeyboardInterrupt: Triton's interpreter swallows those."""


@dataclass
class Check:
    """One run. rows: the tables of all parts; each row has a `part` and a `status`.

    keep: what is done after each attempt, so that a run which the machine ends has not been for nothing.
    """

    place: torch.device
    tiny: bool
    limit: int  # bytes of the device that PyTorch may take
    host: int  # and of the host's memory, for what is kept of a text
    ends: float  # by time.monotonic
    folder: Path  # for what lies beside a model
    lengths: tuple[int, ...]  # tokens
    methods: tuple[str, ...]  # and caches
    rows: list[Row] = field(default_factory=list)
    keep: Callable[[], None] = lambda: None

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return computed_in(self.place)

    def left(self) -> float:
        """Seconds that are left."""
        return self.ends - time.monotonic()

    def row(self, part: str, **facts: Any) -> Row:
        """The row with these facts. Where there is none it is laid out, and says that it was not reached."""
        for row in self.rows:
            if row["part"] == part and facts.items() <= row.items():
                return row
        self.rows.append({"part": part, **facts, "status": PENDING})
        return self.rows[-1]

    def attempt(self, facts: Row, share_sec: float, do: Callable[[float], T]) -> T | None:
        """Fill in the rows with these facts, within a share of the time.

        What stops it is said in those that are not filled in by then, and the run goes on.

        do: is given the moment, by time.monotonic, at which it should be over; it is interrupted a little later.
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
        except Exception as error:  # one cell must not end a run that was paid for
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            if isinstance(error, EngineError) or ran_out(error):
                self.missed(facts, status=said)
            else:
                log.exception("%s failed", facts)
                self.missed(facts, ok=False, status=f"failed: {said}")
        finally:
            free_all(self.place)
            self.keep()
        return None

    def missed(self, facts: Row, **why: Any) -> None:
        """Say why in the rows with these facts of which nothing has been said yet."""
        for row in self.rows:
            if row["status"] == PENDING and facts.items() <= row.items():
                row |= why


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise NotReached in this thread when the time is over, and again every second until it is heard."""

    def ring(number: int, frame: object) -> None:
        raise NotReached

    handler = signal.signal(signal.SIGALRM, ring)
    others, _ = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, others)
        signal.signal(signal.SIGALRM, handler)
