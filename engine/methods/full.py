"""`full`: everything stays on the device. The reference that every other method is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.memories.coded import MODEL, STORES, Coding
from engine.memories.memory import Memory
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Full(Method):
    """Plain causal attention. Memory grows with the text, and so does the time per token.

    store: what entries are kept as (`coded.py`).
    """

    name: ClassVar[str] = "full"
    family: ClassVar[str] = "yardstick"
    summary: ClassVar[str] = "Keeps everything on the device: the reference, for texts that fit the model's window."
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"store": STORES}

    store: str = MODEL

    def __post_init__(self) -> None:
        """There is nothing to limit."""
        super().__post_init__()
        require(self.budget is None, f"'full' keeps everything and takes no budget (got {self.budget}).")

    def coding(self, turn_tokens: TurnTokens) -> Coding | None:
        """By the store."""
        return Coding.of(self.store, None)

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Slots without a limit."""
        return SlotMemory(spec, coding=self.coding(turn_tokens))
