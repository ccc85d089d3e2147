"""`streaming`: sinks and the most recent tokens (StreamingLLM, https://arxiv.org/abs/2309.17453).

A baseline: it reads for ever at constant memory and knows nothing of what left its window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.base import Method, TurnTokens
from engine.models.spec import ModelSpec
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.slots import SlotStore
from engine.parts.window import WindowStore
from engine.parts.window_plan import window_footprint


@dataclass(frozen=True, kw_only=True)
class Streaming(Method):
    """Sinks and a window.

    Attributes:
        budget: sinks and window together, entries.
        sinks: first tokens, always seen.
    """

    name: ClassVar[str] = "streaming"
    family: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "Keeps the first few tokens and the most recent ones; everything between is forgotten."

    budget: int | None = 2048
    sinks: int = 4

    def __post_init__(self) -> None:
        """Refuse a budget without a window."""
        super().__post_init__()
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(
            self.budget is None or self.budget >= self.sinks + 16,
            f"A budget of {self.budget} leaves no window beside {self.sinks} sinks: give at least {self.sinks + 16}.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty window; without a budget, slots for everything."""
        if self.budget is None:
            return Memory(spec, SlotStore(spec))
        return Memory(spec, WindowStore(spec, self.sinks, self.budget - self.sinks))

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprint of sinks and window; nothing grows with the text."""
        if self.budget is None:
            return super().footprints(spec, task)
        return [window_footprint(spec, task, self.sinks, self.budget - self.sinks)]
