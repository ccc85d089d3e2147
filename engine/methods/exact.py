"""`exact`: everything is kept in host memory, and each question token attends to the exact best of it.

The yardstick of the retrieving family: what InfLLM and InfiniteHiP approximate with representatives and hierarchies
is computed here exactly. The text is read with sinks and a sliding window, and every key (before RoPE) and value goes
to the host tier. Then every token of a question or an answer attends, per query head, to the top-k of all kept
entries that have left its window, at one constant distance (InfLLM's rule, see `positions.py`), beside the sinks and
its window, in one softmax. A question that is asked again (`focus.py`) searches what stood out the first time.
Searching everything costs time linear in the text, so this is for small models or patient people.

Among more entries than a model was trained for, more of them come near the one that is looked for, and attention
spreads. Beyond the model's window scores are therefore multiplied by ln(tokens) / ln(window), which Qwen calls
LogN-Scaling (https://arxiv.org/abs/2309.16609; Chiang and Cholak, https://arxiv.org/abs/2202.12172).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.footprint import Footprint, Task
from engine.host.retrieving import RetrievingMemory
from engine.host.settings import (
    DTYPES,
    LOOKS,
    TIERS,
    least_window,
    plan_retrieving,
    searching_everything,
)
from engine.host.sketch import KINDS, NONE, SKETCHES
from engine.memories.attention import Segment
from engine.memories.memory import UNLIMITED, Memory
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.methods.static_sketched import StaticSketched
from engine.models.spec import ModelSpec
from engine.records import HOST


@dataclass(frozen=True, kw_only=True)
class Exact(Method):
    """budget: sinks, window and top-k together, what one query sees at most.

    sinks: first tokens, always seen; top_k: far entries per query and query head; looks: see `LOOKS`; logn:
    whether scores grow with the logarithm of what has been read, beyond the model's window; store: a key of `DTYPES`;
    tier: host, or disk for full slabs; sketch: of the keys, on the device, by which the best are found (`sketch.py`).
    """

    name: ClassVar[str] = "exact"
    family: ClassVar[str] = "yardstick"
    summary: ClassVar[str] = "Keeps everything in host memory; each question attends to the exact best matches."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},
        "light": {"budget": 1024, "sinks": 16, "top_k": 256, "looks": 1, "store": "int4"},  # small models without a GPU
        "wide": {"budget": 6144, "sinks": 128, "top_k": 2048, "looks": 1},  # sees as much as the papers' methods do
        "sketched": {"budget": 3072, "sinks": 128, "top_k": 512, "looks": 1, "sketch": "int2"},
    }
    quicker: ClassVar[Sequence[Mapping[str, Any]]] = ({"preset": "sketched", "sketch": "int4"}, {"preset": "sketched"})
    long_window: ClassVar[str | None] = "wide"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {
        "looks": LOOKS,
        "store": DTYPES,
        "tier": TIERS,
        "sketch": SKETCHES,
    }

    budget: int | None = 512
    sinks: int = 4
    top_k: int = 128
    looks: int = 2
    logn: bool = True
    store: str = "bfloat16"
    tier: str = HOST
    sketch: str = NONE

    def __post_init__(self) -> None:
        """There must be a window beside sinks and top-k."""
        super().__post_init__()
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(self.top_k >= 1, f"top_k is at least 1, not {self.top_k}.")
        least = self.sinks + self.top_k + 16 + least_window(self.store, 1, sketched=self.sketch != NONE)
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
        return ExactMemory(spec, self, window)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Sinks and window on the device, everything behind the sinks in the host tier, all of it searched."""
        if self.budget is None:
            return super().plan(spec, task)
        window = self.budget - self.sinks - self.top_k
        plain = plan_retrieving(
            spec,
            task,
            self.sinks,
            window,
            self.store,
            self.top_k,
            compared=1.0,
            reading=False,
            tier=self.tier,
            looks=self.looks,
            recorded=self.sketch != NONE and self.looks == 1 and self.tier == HOST and task.total > self.sinks,
        )
        return searching_everything(plain, spec, task, self.store, self.top_k, KINDS.get(self.sketch))


class ExactMemory(RetrievingMemory):
    """Reads with its window alone; in a conversation every query searches the host tier."""

    def __init__(self, spec: ModelSpec, settings: Exact, window: int) -> None:
        """window: W, in tokens."""
        dtype = DTYPES[settings.store]
        sketch = KINDS.get(settings.sketch)
        super().__init__(spec, settings.sinks, window, dtype, 1, settings.tier, settings.looks, sketch)
        self.settings = settings
        self._growth: Tensor | None = None  # of this pass: what its queries are multiplied by, [T, 1]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Nothing is searched."""
        answering, self.answering = self.answering, False
        try:
            yield
        finally:
            self.answering = answering

    def pass_limit(self) -> int:
        """Without a search a pass may be of any length."""
        return super().pass_limit() if self.answering else UNLIMITED

    def picks(self) -> int:
        """In a conversation, top_k."""
        return self.settings.top_k if self.answering else 0

    def _looking_far(self, layer: int, q: Tensor) -> tuple[list[Segment], list[Tensor]]:
        """In a conversation, at the best of everything."""
        if not self.answering:
            return self._near(layer, q)
        return self._searched(layer, q if self._growth is None else q * self._growth)

    def begin(self, source: Tensor) -> None:
        """Scores grow by ln(tokens so far) / ln(tokens that the model is used to), but not at a second look."""
        super().begin(source)
        self._growth, end = None, self.seen + len(source)
        if self.settings.logn and self.answering and self.looked_at is None and end > self.used_to:
            count = torch.arange(self.seen + 1, end + 1, device=self.spec.device)
            self._growth = self.growth(count)

    @property
    def used_to(self) -> int:
        """Tokens among which the model finds its way."""
        return max(self.spec.window, self.sinks + self.window)

    def growth(self, count: Tensor) -> Tensor:
        """What scores are multiplied by [T, 1] where so many tokens [T] have been read."""
        return (count.float().log() / math.log(self.used_to)).clamp_min(1).to(self.spec.dtype)[:, None]

    def static_kind(self) -> int | None:
        """By sketches, once something is far and before anything stands out."""
        sketch = self.host.sketch
        searching = self.answering and self.looked_at is None and int(self.evicted(1)[0]) > 0
        return 0 if searching and sketch is not None and sketch.length and self.read_in_place() else None

    def static_pass(self, kind: int) -> StaticSketched:
        """Over buffers, slabs and sketches as they are now."""
        return StaticSketched(self)
