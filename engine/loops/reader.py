"""Reader: tokens in, a context out, progress on the way.

The reader knows nothing of files or pages. It can be stopped between any two records, saved, and resumed in another
process. On a CPU and with passes of the same size, the result is bit for bit that of an uninterrupted reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.errors import ContextMismatch, SettingsError
from engine.loops.context import Context, new_memory, restore
from engine.loops.passes import Pass, condense, feed
from engine.methods.base import Method
from engine.model import Model
from engine.parts.mass import no_source
from engine.records import LoadedParts, Parts, ReadProgress

CHUNK = 256  # tokens per pass on a CPU
GPU_CHUNK = 2048
CLOCK = ("done", "begun", "seconds", "distill_seconds", "catalyst_seconds")


def extended(model: Model, method: Method, ids: Tensor, meta: dict[str, Any]) -> dict[str, Any]:
    """Turn a finished context into a checkpoint of a longer text that begins with the same tokens.

    The tensors stay as they are, and `Reader.resume` reads the rest. The shorter text's end also ended a pass, and a
    condensing method made space for a question there.

    Args:
        model: the model of the context.
        method: the method that read it.
        ids: int64 [T], the longer text.
        meta: the facts of the context's state.

    Returns:
        The facts of the checkpoint.

    Raises:
        SettingsError: the text is not longer, or the method would have read its beginning differently.
    """
    before, prefix = int(meta["source_tokens"]), len(model.chat.prefix)
    if before >= len(ids):
        raise SettingsError(f"There is nothing to add to a text of {before:,} tokens.")
    method.require_extendable(model.spec, before, len(ids), prefix)
    clock = dict.fromkeys(CLOCK, 0.0) | {"done": prefix + before, "begun": prefix + before}
    return {"memory": meta["memory"], "source_tokens": len(ids), "reader": clock}


def default_chunk(on_cpu: bool, method: Method | None = None) -> int:
    """Return the tokens per pass that keep a device busy; on a GPU at least the method's `gpu_pass`."""
    return CHUNK if on_cpu else max(GPU_CHUNK, method.gpu_pass if method else 0)


class Reader:
    """One reading of one text by one model with one method.

    Attributes:
        done: tokens read so far, the chat prefix included.
        begun: tokens that another reading had read, whose time does not count here.
        seconds: duration of the reading so far, over interruptions.
        distill_seconds: part of it for condensing.
        catalyst_seconds: part of it for the catalyst's tokens.
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        ids: Tensor,
        chunk: int | None = None,
        checkpoint: tuple[LoadedParts, dict[str, Any]] | None = None,
    ) -> None:
        """Prepare a reading of a text.

        Args:
            model: the model that reads.
            method: how its memory is kept.
            ids: int64 [T], all documents together.
            chunk: tokens per pass at most; None for the device's default.
            checkpoint: see `resume`. Passes are then at most as long as before.

        Raises:
            SettingsError: the text is empty, or the settings leave no space to read it.
            OutOfMemory: the rest of the text would not fit.
        """
        if len(ids) == 0:
            raise SettingsError("There is nothing to read: the text has no tokens.")
        chunk = default_chunk(model.device.type == "cpu", method) if chunk is None else chunk
        if chunk < 1:
            raise SettingsError(f"A pass carries at least one token, not {chunk}.")
        self.model, self.method, self.ids, self.chunk = model, method, ids, chunk
        prefix = torch.tensor(model.chat.prefix, dtype=torch.long)
        spans = method.spans(len(ids), len(prefix))
        positions = [torch.arange(start, end, dtype=torch.int32) for start, end in spans]
        self._ids = torch.cat([prefix, *(ids[start:end].long() for start, end in spans)])
        self._source = torch.cat([no_source(len(prefix)), *positions])
        self.memory = new_memory(model, method)
        self.done = 0
        self.begun = 0
        self.seconds = 0.0
        self.distill_seconds = 0.0
        self.catalyst_seconds = 0.0
        self.finished = False
        if checkpoint is None:
            self.memory.reserve(self.total)
        else:
            self._go_on(*checkpoint)
        if self.memory.archive:
            self.memory.archive.check_room()

    def _go_on(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Load a checkpoint of this text."""
        clock = meta.get("reader")
        if clock is None:  # a finished context: nothing more is read
            self.done, self.finished = self.total, True
        else:
            self.memory.reserve(self.total)
            for name in CLOCK:
                setattr(self, name, clock.get(name, 0))  # older versions did not save `begun`
            self.chunk = min(self.chunk, max(1, int(clock.get("chunk", self.chunk))))  # nor `chunk`
        restore(self.memory, parts, meta["memory"])
        if not self.finished:
            self.memory.reserve(self.total)  # the state may be of a shorter text: see `extended`

    @property
    def total(self) -> int:
        """Tokens to read, the model's own prefix included."""
        return len(self._ids)

    def run(self) -> Iterator[ReadProgress]:
        """Read to the end, one record per pass. Stop iterating to pause or cancel."""
        if self.finished:
            yield self.progress("ready")
            return
        fed = feed(self.model, self.method, self.memory, self._ids[self.done :], self._source[self.done :], self.chunk)
        for step in fed:
            self._count(step)
            yield self.progress("reading" if step.tokens else "distilling")
        if self.memory.evictor.needs_final_eviction():
            self._count(condense(self.model, self.method, self.memory))
        self.finished = True
        yield self.progress("ready")

    def _count(self, step: Pass) -> None:
        self.done += step.tokens
        self.seconds += step.seconds
        self.catalyst_seconds += step.catalyst_seconds
        self.distill_seconds += step.condense_seconds

    def progress(self, stage: str) -> ReadProgress:
        """Return the record of a stage."""
        speed = (self.done - self.begun) / self.seconds if self.seconds else 0.0
        return ReadProgress(
            stage=stage,
            tokens_done=self.done,
            tokens_total=self.total,
            seconds=self.seconds,
            distill_seconds=self.distill_seconds,
            catalyst_seconds=self.catalyst_seconds,
            tokens_per_second=speed,
            usage=self.memory.usage(),
        )

    def context(self) -> Context:
        """Return the context of a finished reading.

        Raises:
            ContextMismatch: the reading is not finished.
        """
        if not self.finished:
            raise ContextMismatch(f"Only {self.done} of {self.total} tokens have been read: run the reader to its end.")
        return self.so_far()

    def so_far(self) -> Context:
        """Return a context of the part that has been read.

        It may be asked until the next record, which changes it. Asking changes nothing of the reading.
        """
        return Context(self.model, self.method, self.memory, len(self.ids))

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return a checkpoint between two records; for a finished reading, the state of its context."""
        if self.finished:
            return self.context().state()
        parts, meta = self.memory.state()
        clock = {name: getattr(self, name) for name in (*CLOCK, "chunk")}
        return parts, {"memory": meta, "source_tokens": len(self.ids), "reader": clock}

    @classmethod
    def resume(
        cls,
        model: Model,
        method: Method,
        ids: Tensor,
        parts: LoadedParts,
        meta: dict[str, Any],
        chunk: int | None = None,
    ) -> Reader:
        """Continue from a checkpoint. The caller compares fingerprints first.

        Raises:
            ContextMismatch: the checkpoint belongs to another text, or does not fit model and method.
            OutOfMemory: the rest of the text would not fit.
        """
        if int(meta["source_tokens"]) != len(ids):
            raise ContextMismatch(
                f"The checkpoint is of a text of {meta['source_tokens']} tokens, this has {len(ids)}."
            )
        return cls(model, method, ids, chunk, (parts, meta))
