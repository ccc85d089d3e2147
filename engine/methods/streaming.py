"""`streaming`: sinks and the most recent tokens (StreamingLLM, https://arxiv.org/abs/2309.17453).

A baseline: it reads for ever at constant memory and knows nothing of what left its window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.footprint import Footprint, Task
from engine.memories.memory import Memory
from engine.memories.slots import SlotMemory
from engine.memories.window import WindowMemory, plan_window
from engine.method import Method, TurnTokens, require
from engine.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Streaming(Method):
    """budget: sinks and window together."""

    name: ClassVar[str] = "streaming"
    family: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "Keeps the first few tokens and the most recent ones; everything between is forgotten."

    budget: int | None = 2048
    sinks: int = 4

    def __post_init__(self) -> None:
        """There must be a window."""
        super().__post_init__()
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(
            self.budget is None or self.budget >= self.sinks + 16,
            f"A budget of {self.budget} leaves no window beside {self.sinks} sinks: give at least {self.sinks + 16}.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """An empty window; without a budget, one as long as the text, in slots."""
        if self.budget is None:
            return SlotMemory(spec)
        return WindowMemory(spec, self.sinks, self.budget - self.sinks)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Sinks and window; nothing grows with the text."""
        if self.budget is None:
            return super().plan(spec, task)
        return plan_window(spec, task, self.sinks, self.budget - self.sinks)
