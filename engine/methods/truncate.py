"""`truncate`: the first and the last part of the text, the middle never read.

What LongBench does to texts that are too long (https://arxiv.org/abs/2308.14508, `pred.py`), and what InfiniPot's
paper compares with as TR. Here as the baseline that shows what reading the middle is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.base import Method, TurnTokens
from engine.models.spec import ModelSpec
from engine.parts.evictors.middle import MiddleEvictor
from engine.parts.slots import SlotStore


@dataclass(frozen=True, kw_only=True)
class Truncate(Method):
    """Half of the budget for the beginning of the text, half for its end, less `tail` for the conversation.

    Attributes:
        budget: entries per KV head.
        tail: entries that are left for the conversation, and evicted from its middle at a time.
    """

    name: ClassVar[str] = "truncate"
    family: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "Reads only the beginning and the end, as much as the budget holds; the middle is cut."

    budget: int | None = 2048
    tail: int = 256

    def __post_init__(self) -> None:
        """Refuse a tail that leaves no room to read something."""
        super().__post_init__()
        require(self.tail >= 16, f"'truncate' needs a tail of at least 16 entries, not {self.tail}.")
        require(
            self.budget is None or self.budget >= 2 * self.tail,
            f"A budget of {self.budget} does not hold a text and a tail of {self.tail}: "
            f"give at least {2 * self.tail}, or a smaller tail.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return slots that evict from their middle in a long conversation."""
        store = SlotStore(spec, self.budget)
        return Memory(spec, store, evictor=MiddleEvictor(store, self.tail))

    def spans(self, total: int, prefix: int) -> list[tuple[int, int]]:
        """Return the first and the last stretch of the text.

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
