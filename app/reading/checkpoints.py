"""Checkpoints: what has been read is saved while the reading goes on.

The state of a reading is taken between two steps and does not change afterwards, so a thread writes it to the disk
while the next passes are worked out. One is written at a time; what went wrong with it is raised after a later step.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from app.reading.open_context import to_keep
from app.reading.progress import Report
from app.reading.token_stream import PART, Stream
from app.service import Service
from sessions import ContextRow, Part

if TYPE_CHECKING:
    import engine

CHECKPOINT_SEC = 10.0
"""A checkpoint is due after this long, or after twenty times what the last one took."""


def save(
    service: Service,
    row: ContextRow,
    stream: Stream,
    model: "engine.Model",
    parts: dict[str, Part],
    reader: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    beside: bool = False,
) -> None:
    """Save the stream, with the parts and facts of a reader under way or of the finished context, if there is one.

    The ids that the model's chat template puts before a text are kept to be compared: see `model_of`; so is what tells
    the model by its files: see `readings.known`; and what the database says of it, for `repair.take_back`.

    Args:
        beside: what is saved already stays, but for these parts.
    """
    kept = {**parts, PART: Part(stream.tensors(), sealed=True)}
    before = {"prefix": model.chat.prefix, "day": model.chat.day.isoformat()}
    by = {"stamp": model.stamp, "fingerprint": model.fingerprint}
    fixed = {name: getattr(row, name) for name in ("model", "method", "settings", "budget", "tokens", "created_at")}
    meta = {"stretches": stream.meta(), **before, "model": by, "row": fixed, "reader": reader, "context": context}
    service.store.contexts.state(row.id).save(kept, meta, row.fingerprint, beside)


class _Writing(NamedTuple):
    """A checkpoint on its way to the disk. full: bytes that can be let go of once it is there; seconds: it took."""

    now: Report
    full: int
    seconds: Future[float]


class Checkpoints:
    """The checkpoints of one reading. Leaving it waits for the one that is being written, if there is one."""

    def __init__(
        self, service: Service, row: ContextRow, stream: Stream, reader: "engine.Reader", period_sec: float
    ) -> None:
        """period_sec: between two of them, unless writing one takes so long that they should be rarer."""
        self._service, self._row, self._stream, self._reader = service, row, stream, reader
        self._period = period_sec
        self._next = time.monotonic() + period_sec
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: _Writing | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._thread:
            if error is None:
                self.settle()
            else:
                with suppress(Exception):  # the first error says more
                    self.settle()

    def after_step(self, now: Report) -> None:
        """Begin to save what has been read so far, if that is due.

        It is due early where memory can be let go of that is saved; if more of it has come since the last checkpoint
        began, that one is waited for, so that there is never more than what is written and what has come meanwhile.

        Raises:
            sessions.StoreError: the last checkpoint could not be written.
        """
        memory = self._reader.memory
        if self._writing and (self._writing.seconds.done() or memory.full_in_memory() > self._writing.full):
            self.settle()
        if not self._writing and (time.monotonic() >= self._next or memory.full_in_memory()):
            self._begin(now)

    def save_now(self, now: Report) -> None:
        """Save what has been read so far, and wait for it.

        Raises:
            sessions.StoreError: it could not be written.
        """
        self.settle()
        self._begin(now)
        self.settle()

    def _begin(self, now: Report) -> None:
        parts, facts = self._reader.state()
        kept, full = to_keep(parts), self._reader.memory.full_in_memory()

        def write() -> float:
            began = time.monotonic()
            save(self._service, self._row, self._stream, self._reader.model, kept, reader=facts)
            return time.monotonic() - began

        self._writing = _Writing(now, full, self._thread.submit(write))

    def settle(self) -> None:
        """Wait for the checkpoint that is being written, and let go of what it saved.

        Raises:
            sessions.StoreError: it could not be written.
        """
        if not self._writing:
            return
        writing, self._writing = self._writing, None
        took = writing.seconds.result()
        self._next = time.monotonic() + max(self._period, 20 * took)
        store, row, now = self._service.store, self._row, writing.now
        if writing.full:
            self._reader.memory.adopt(store.contexts.state(row.id).load(row.fingerprint, contents=False)[0])
        store.contexts.update(row.id, tokens_read=now.tokens_done, seconds=now.seconds, usage=now.usage)
