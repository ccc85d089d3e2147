"""A method: how a memory keeps or condenses what it has read, and the settings it does it with.

A method is a frozen dataclass whose fields are its settings. It declares what it needs (`catalyst`, `needs_novelty`)
and the reading loop provides it, so no loop asks which method it is running.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import SettingsError
from engine.memory import Memory
from engine.seam import ModelSpec

TurnTokens = Callable[[str], int]  # how many tokens a text takes when it is put to the model as a turn


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods. budget: entries per KV head and layer on the device; None for no limit."""

    name: ClassVar[str]
    family: ClassVar[str]  # "condensing" | "retrieving" | "yardstick" | "baseline"
    summary: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named settings
    budget: int | None = None

    @abstractmethod
    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """An empty memory with these settings."""

    def needs_novelty(self) -> bool:
        """Whether each token's -log p is wanted at `commit`."""
        return False

    def catalyst(self) -> str | None:
        """The prompt to put to the model before each condensing, or None."""
        return None

    def spans(self, total: int, prefix: int) -> list[tuple[int, int]]:
        """Which stretches of a text of `total` tokens are read, behind a prefix of `prefix` tokens."""
        return [(0, total)]

    def tail_reserve(self) -> int:
        """Entries that a finished reading leaves free for a first question."""
        return 0

    def pass_multiple(self) -> int:
        """Tokens that choose together what they see: a pass carries whole multiples of them, except at the end."""
        return 1

    def settings(self) -> dict[str, Any]:
        """The settings by name, JSON-able."""
        return dataclasses.asdict(self)


def require(condition: bool, message: str) -> None:
    """Raise SettingsError with the message unless the condition holds."""
    if not condition:
        raise SettingsError(message)
