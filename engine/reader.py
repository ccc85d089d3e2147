"""Reading: tokens in, a context out, progress on the way.

The reader knows nothing of files or pages. It can be stopped between any two records, saved, and resumed in another
process; the result is the same to the bit as without the interruption, on a CPU and with passes of the same size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.context import Context, new_memory, restore
from engine.errors import ContextMismatch, SettingsError
from engine.memories.memory import no_source
from engine.method import Method
from engine.model import Model
from engine.passes import Pass, condense, feed
from engine.records import LoadedParts, Parts, ReadProgress

CHUNK = 256  # tokens per pass on a CPU
GPU_CHUNK = 2048
CLOCK = ("done", "begun", "seconds", "distill_seconds", "catalyst_seconds")


def extended(model: Model, method: Method, ids: Tensor, meta: dict[str, Any]) -> dict[str, Any]:
    """A finished context as a checkpoint of a longer text, which begins with the one that it has read.

    Its tensors are those of the checkpoint too, and `Reader.resume` reads the rest. Where the shorter text ended a pass
    ended, and a condensing method made room for a question.

    Args:
        ids: int64 [T], the longer text; meta: the facts of the context's state.

    Returns:
        The facts of the checkpoint.

    Raises:
        SettingsError: nothing comes after what was read, or the method would have read it otherwise.
    """
    before, prefix = int(meta["source_tokens"]), len(model.chat.prefix)
    if before >= len(ids):
        raise SettingsError(f"There is nothing to add to a text of {before:,} tokens.")
    method.require_extendable(model.spec, before, len(ids), prefix)
    clock = dict.fromkeys(CLOCK, 0.0) | {"done": prefix + before, "begun": prefix + before}
    return {"memory": meta["memory"], "source_tokens": len(ids), "reader": clock}


def default_chunk(on_cpu: bool) -> int:
    """Tokens per pass that keep the device busy."""
    return CHUNK if on_cpu else GPU_CHUNK


class Reader:
    """One reading of one text by one model with one method."""

    def __init__(
        self,
        model: Model,
        method: Method,
        ids: Tensor,
        chunk: int | None = None,
        checkpoint: tuple[LoadedParts, dict[str, Any]] | None = None,
    ) -> None:
        """ids: int64 [T], all documents together; chunk: tokens per pass at most, by default what suits the device;
        checkpoint: see `resume`; passes are then no longer than those that it was taken between.

        Raises:
            SettingsError: an empty text, or settings that leave no room to read it.
            OutOfMemory: what is still to be read would not fit.
        """
        if len(ids) == 0:
            raise SettingsError("There is nothing to read: the text has no tokens.")
        chunk = default_chunk(model.device.type == "cpu") if chunk is None else chunk
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
        self.begun = 0  # tokens that were read by another reading, whose seconds are not this one's
        self.seconds = 0.0
        self.distill_seconds = 0.0
        self.catalyst_seconds = 0.0
        self.finished = False
        if checkpoint is None:
            self.memory.reserve(self.total)
        else:
            self._go_on(*checkpoint)
        self.memory.require_rest()

    def _go_on(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        clock = meta.get("reader")
        if clock is None:  # nothing more comes, for which anything would have to be reserved
            self.done, self.finished = self.total, True
        else:
            self.memory.reserve(self.total)
            for name in CLOCK:
                setattr(self, name, clock.get(name, 0))  # that of an older version did not say where it began
            self.chunk = min(self.chunk, max(1, int(clock.get("chunk", self.chunk))))  # nor how long its passes were
        restore(self.memory, parts, meta["memory"])
        if not self.finished:
            self.memory.reserve(self.total)  # what was restored may know of a shorter text: see `extended`

    @property
    def total(self) -> int:
        """Tokens to read, the model's own prefix included."""
        return len(self._ids)

    def run(self) -> Iterator[ReadProgress]:
        """Read on to the end, one record per pass. Stop iterating to pause or cancel."""
        if self.finished:
            yield self.progress("ready")
            return
        fed = feed(self.model, self.method, self.memory, self._ids[self.done :], self._source[self.done :], self.chunk)
        for step in fed:
            self._count(step)
            yield self.progress("reading" if step.tokens else "distilling")
        if self.memory.wants_room():
            self._count(condense(self.model, self.method, self.memory))
        self.finished = True
        yield self.progress("ready")

    def _count(self, step: Pass) -> None:
        self.done += step.tokens
        self.seconds += step.seconds
        self.catalyst_seconds += step.catalyst_seconds
        self.distill_seconds += step.condense_seconds

    def progress(self, stage: str) -> ReadProgress:
        """Where the reading stands."""
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
        """The finished reading.

        Raises:
            ContextMismatch: there is still something to read.
        """
        if not self.finished:
            raise ContextMismatch(f"Only {self.done} of {self.total} tokens have been read: run the reader to its end.")
        return self.so_far()

    def so_far(self) -> Context:
        """What has been read, between any two records: it can be asked until the next one, which changes it, and asking
        changes nothing of the reading.
        """
        return Context(self.model, self.method, self.memory, len(self.ids))

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """A checkpoint, between any two records; of a finished reading, the context's state."""
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
            ContextMismatch: the checkpoint is of another text, or does not fit model and method.
            OutOfMemory: what is still to be read would not fit.
        """
        if int(meta["source_tokens"]) != len(ids):
            raise ContextMismatch(
                f"The checkpoint is of a text of {meta['source_tokens']} tokens, this has {len(ids)}."
            )
        return cls(model, method, ids, chunk, (parts, meta))
