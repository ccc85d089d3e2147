"""Checkpoints: save a reading while it goes on.

The state is taken between two steps and does not change afterwards, so a thread writes it to disk while the next passes
are computed. One checkpoint is written at a time. An error in it is raised after a later step.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from app.reading.open_context import to_host
from app.reading.progress import Report
from app.reading.token_stream import PART, Stream
from sessions import ContextRow, Part, TensorFolder

if TYPE_CHECKING:
    import engine

CHECKPOINT_SEC = 10.0
"""Least time between two checkpoints; twenty times as long as the last one took, if that is more."""


def save(
    folder: TensorFolder,
    row: ContextRow,
    stream: Stream,
    model: "engine.Model",
    parts: dict[str, Part],
    reader: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    beside: bool = False,
) -> None:
    """Save the stream, with the parts and facts of a reader under way or of the finished context.

    The saved state also holds the tokens that the chat template puts before a text (for `model_of`), the fingerprint of
    the model's files (for `readings.find_finished`), and the row of the database (for `repair.take_back`).

    Args:
        folder: the folder of the context.
        row: the context.
        stream: its text as tokens.
        model: the model that reads.
        parts: tensors of the memory.
        reader: facts of a reader under way.
        context: facts of the finished context.
        beside: keep files that were saved before, and replace only these parts.
    """
    kept = {**parts, PART: Part(stream.tensors(), sealed=True)}
    before = {"prefix": model.chat.prefix, "day": model.chat.day.isoformat()}
    by = {"stamp": model.stamp, "fingerprint": model.fingerprint}
    fixed = {name: getattr(row, name) for name in ("model", "method", "settings", "budget", "tokens", "created_at")}
    meta = {"stretches": stream.meta(), **before, "model": by, "row": fixed, "reader": reader, "context": context}
    folder.save(kept, meta, row.fingerprint, beside)


class _Writing(NamedTuple):
    """A checkpoint that is being written.

    now: the progress that it saves.
    full: bytes of memory that can be dropped once it is on disk.
    seconds: how long writing took.
    """

    now: Report
    full: int
    seconds: Future[float]


class Checkpoints:
    """The checkpoints of one reading. Leaving it waits for one that is being written."""

    def __init__(
        self,
        folder: TensorFolder,
        row: ContextRow,
        stream: Stream,
        reader: "engine.Reader",
        period_sec: float,
        on_saved: Callable[[Report], None],
    ) -> None:
        """Prepare the thread that writes.

        Args:
            folder: the folder of the context.
            row: the context.
            stream: its text as tokens.
            reader: the reading.
            period_sec: least time between two checkpoints.
            on_saved: told the progress that a checkpoint has saved.
        """
        self._folder, self._row, self._stream, self._reader = folder, row, stream, reader
        self._period, self._on_saved = period_sec, on_saved
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
                with suppress(Exception):  # the first error is the cause
                    self.settle()

    def after_step(self, now: Report) -> None:
        """Start a checkpoint if one is due.

        One is due early if memory can be dropped once it is saved. If more of that has come since the last checkpoint
        began, wait for that one first, so that memory never holds more than two checkpoints' worth.

        Raises:
            sessions.StoreError: the last checkpoint could not be written.
        """
        if self._writing and (self._writing.seconds.done() or self._reclaimable() > self._writing.full):
            self.settle()
        if not self._writing and (time.monotonic() >= self._next or self._reclaimable()):
            self._begin(now)

    def save_now(self, now: Report) -> None:
        """Save a checkpoint and wait for it.

        Raises:
            sessions.StoreError: it could not be written.
        """
        self.settle()
        self._begin(now)
        self.settle()

    def _reclaimable(self) -> int:
        """Return the bytes of memory that could be dropped if the reading were saved now."""
        archive = self._reader.memory.archive
        return archive.reclaimable_bytes() if archive else 0

    def _begin(self, now: Report) -> None:
        parts, facts = self._reader.state()
        kept, full = to_host(parts), self._reclaimable()

        def write() -> float:
            began = time.monotonic()
            save(self._folder, self._row, self._stream, self._reader.model, kept, reader=facts)
            return time.monotonic() - began

        self._writing = _Writing(now, full, self._thread.submit(write))

    def settle(self) -> None:
        """Wait for the checkpoint that is being written, and drop the memory that it saved.

        Raises:
            sessions.StoreError: it could not be written.
        """
        if not self._writing:
            return
        writing, self._writing = self._writing, None
        took = writing.seconds.result()
        self._next = time.monotonic() + max(self._period, 20 * took)
        if writing.full and (archive := self._reader.memory.archive):
            archive.use_mapped_files(self._folder.load(self._row.fingerprint, contents=False)[0])
        self._on_saved(writing.now)
