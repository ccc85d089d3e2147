"""`exact`: everything is kept in host memory, and each question token attends to the exact best of it.

The yardstick of the retrieving family: what InfLLM and InfiniteHiP approximate with representatives and hierarchies
is computed here exactly. The text is read with sinks and a sliding window, and every key (before RoPE) and value goes
to the host tier. Then every token of a question or an answer attends, per query head, to the top-k of all kept
entries that have left its window, at one constant distance (InfLLM's rule, see `positions.py`), beside the sinks and
its window, in one softmax. Searching costs time linear in the text, so this is for small models or patient people.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from engine.attention import Picked, Segment, hide
from engine.footprint import Footprint, Task
from engine.host import HostTier, host_bytes
from engine.measure import require_memory
from engine.memory import Memory
from engine.method import Method, TurnTokens, require
from engine.positions import far_query_position
from engine.records import DEVICE, HOST, LoadedParts, Parts, Usage
from engine.seam import ModelSpec
from engine.slots import SlotMemory
from engine.window import WindowMemory, plan_window

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Exact(Method):
    """budget: sinks, window and top-k together, what one query sees at most.

    sinks: first tokens, always seen; top_k: far entries per query and query head; store: dtype of the host tier.
    """

    name: ClassVar[str] = "exact"
    family: ClassVar[str] = "yardstick"
    summary: ClassVar[str] = "Keeps everything in host memory; each question attends to the exact best matches."

    budget: int | None = 512
    sinks: int = 4
    top_k: int = 128
    store: str = "bfloat16"

    def __post_init__(self) -> None:
        """There must be a window beside sinks and top-k."""
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(self.top_k >= 1, f"top_k is at least 1, not {self.top_k}.")
        require(self.store in DTYPES, f"store is one of {', '.join(DTYPES)}, not '{self.store}'.")
        least = self.sinks + self.top_k + 32
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no window beside {self.sinks} sinks and the {self.top_k} best entries: "
            f"give at least {least}, or a smaller top_k.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """An empty memory; without a budget the window holds everything and nothing is ever far."""
        if self.budget is None:
            return SlotMemory(spec)
        window = self.budget - self.sinks - self.top_k
        return ExactMemory(spec, self.sinks, window, self.top_k, DTYPES[self.store])

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Sinks and window on the device, everything behind the sinks in the host tier, all of it searched."""
        if self.budget is None:
            return super().plan(spec, task)
        seen = plan_window(spec, task, self.sinks, self.budget - self.sinks - self.top_k)
        far = max(0, task.total - self.sinks)
        usage = Usage(
            {**seen.usage.entries, HOST: far},
            {**seen.usage.bytes, HOST: host_bytes(spec, DTYPES[self.store], far, task.total)},
        )
        return dataclasses.replace(seen, usage=usage, answering=seen.answering + min(self.top_k, far), searched=far)


class ExactMemory(WindowMemory):
    """Sinks and window on the device, everything behind the sinks in the host tier."""

    def __init__(self, spec: ModelSpec, sinks: int, window: int, top_k: int, dtype: torch.dtype) -> None:
        """top_k: far entries that each query attends to, once retrieving."""
        super().__init__(spec, sinks, window)
        self.top_k = top_k
        self.host = HostTier(spec, dtype)
        self.retrieving = False  # off while the text is read, on in every conversation

    def room(self) -> int:
        """While retrieving a pass may not outgrow the window: what it carries is not in the host tier yet."""
        return self.window if self.retrieving else super().room()

    def reserve(self, tokens: int) -> None:
        """Refuse a text that the host's memory cannot hold; else the last slab is no larger than it must be."""
        self.host.expected = tokens
        wide = (
            torch.empty((), dtype=self.host.dtype).element_size()
            / torch.empty((), dtype=self.spec.dtype).element_size()
        )
        require_memory(int(tokens * self.spec.entry_bytes * wide), torch.device("cpu"), f"Keeping {tokens:,} tokens")

    def _segments(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """The window's segments, and the far entries if there are any."""
        segments, sources = super()._segments(layer, q, k, v)
        held = self.layers[layer]
        if not self.retrieving or held.layer.sliding_window is not None:
            return segments, sources
        count = q.shape[1]
        # Entry i of the host tier is token sinks + i; query number n no longer sees it in its window if i is below:
        limits = torch.arange(self.seen, self.seen + count) - self.sinks - self.window + 1
        if int(limits[-1]) <= 0:
            return segments, sources
        turned = held.layer.rope.to_constant(q, far_query_position(self.sinks, self.window))
        at_zero = held.layer.rope.to_constant  # keys stand at position 0, where rotation is the identity (or a scale)
        index, found = self.host.search(layer, turned, limits.clamp_min(0), self.top_k)
        keys, values, source = self.host.gather(layer, index, q.device)
        segments.append(Picked(turned, at_zero(keys, 0), values, hide(~found).to(q.device)))
        return segments, [*sources, source]

    def commit(self, novelty: Tensor | None = None) -> None:
        """Send the tokens of the pass to the host tier as well."""
        begin, fresh = self.length, self._to_sinks
        super().commit(novelty)
        self.host.append(
            [held.keys[:, begin : self.length] for held in self.layers],
            [held.values[:, begin : self.length] for held in self.layers],
            self._incoming[fresh:],
        )

    def fork(self) -> Self:
        """The host tier is shared; from here on queries search it."""
        child = super().fork()
        child.host = self.host.fork()
        child.retrieving = True
        return child

    def snapshot(self) -> Self:
        """The host tier's slabs are only ever appended to."""
        child = super().snapshot()
        child.host = self.host.snapshot()
        return child

    def positions(self, layer: int) -> Tensor:
        """int32 [H, N]: sinks, then everything in the host tier."""
        row = torch.cat([self.source[: min(self.sinks, self.seen)].cpu(), self.host.source()])
        return row.expand(self.spec.layers[layer].kv_heads, -1)

    def usage(self) -> Usage:
        """On the device at most what one query sees; on the host everything."""
        device = super().usage()
        return Usage(
            {DEVICE: device.entries[DEVICE], HOST: self.host.length},
            {DEVICE: device.bytes[DEVICE], HOST: self.host.nbytes()},
        )

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Window and own slabs."""
        parts, meta = super().state()
        return {**parts, **self.host.state()}, meta

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Window and own slabs."""
        super().restore(parts, meta)
        self.host.restore(parts)
