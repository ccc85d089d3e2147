"""`truncate`: the first and the last part of the text, the middle never read.

What LongBench does to texts that are too long (https://arxiv.org/abs/2308.14508, `pred.py`), and what InfiniPot's
paper compares with as TR. Here as the baseline that shows what reading the middle is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from engine.memories.memory import Memory
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Truncate(Method):
    """Half of the budget for the beginning of the text, half for its end, less `tail` for the conversation."""

    name: ClassVar[str] = "truncate"
    family: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "Reads only the beginning and the end, as much as the budget holds; the middle is cut."

    budget: int | None = 2048
    tail: int = 256

    def __post_init__(self) -> None:
        """The tail must leave room to read something."""
        super().__post_init__()
        require(self.tail >= 16, f"'truncate' needs a tail of at least 16 entries, not {self.tail}.")
        require(
            self.budget is None or self.budget >= 2 * self.tail,
            f"A budget of {self.budget} does not hold a text and a tail of {self.tail}: "
            f"give at least {2 * self.tail}, or a smaller tail.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Slots of which the middle is dropped."""
        return MiddleCutMemory(spec, self.budget, self.tail)

    def spans(self, total: int, prefix: int) -> list[tuple[int, int]]:
        """The first and the last stretch.

        Raises:
            SettingsError: tail and prefix leave nothing of the budget to read with.
        """
        if self.budget is None or total + prefix <= self.budget - self.tail:
            return [(0, total)]
        kept = self.budget - self.tail - prefix
        require(
            kept >= 2,
            f"A budget of {self.budget} holds nothing of a text beside a tail of {self.tail} and the {prefix} tokens "
            f"that this model's chat template puts before it: give at least {self.tail + prefix + 2}.",
        )
        return [(0, kept - kept // 2), (total - kept // 2, total)]


class MiddleCutMemory(SlotMemory):
    """A long conversation is cut as the text was: `tail` entries from the middle make room."""

    def __init__(self, spec: ModelSpec, budget: int | None, tail: int) -> None:
        """budget: entries in all, or None; tail: entries freed at a time."""
        super().__init__(spec, budget)
        self.tail = tail

    def room(self) -> int:
        """What is left of the budget."""
        return super().room() if self.capacity is None else self.capacity - self.entries

    def condense(self) -> None:
        """Drop the `tail` entries in the middle."""
        middle = (self.entries - self.tail) // 2
        slots = torch.arange(self.entries, device=self.spec.device)
        slots = slots[(slots < middle) | (slots >= middle + self.tail)]
        self.keep({number: slots.expand(self.heads[number].kv_heads, -1) for number in self.judged})
