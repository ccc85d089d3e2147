"""A method: how a memory keeps or condenses what it has read, and the settings it does it with.

A method is a frozen dataclass whose fields are its settings. It declares what it needs (`catalyst`, `needs_novelty`,
`weights_digest`) and the reading loop provides it, so no loop asks which method it is running; it says what it will
cost (`plan`), so the planner need not know it either.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import SettingsError
from engine.footprint import Footprint, Task, mean_attended
from engine.footprint import TurnTokens as TurnTokens
from engine.memories.coded import Coding, level_bytes
from engine.memories.memory import Memory
from engine.memories.slots import FIRST_CAPACITY, plan_unlimited, saved_bytes, slot_bytes
from engine.records import DEVICE, Usage
from engine.seam import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods. budget: entries per KV head and layer on the device; None for no limit."""

    name: ClassVar[str]
    family: ClassVar[str]  # "condensing" | "retrieving" | "yardstick" | "baseline"
    summary: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named settings
    long_window: ClassVar[str | None] = None  # the preset for models whose window holds its budget
    chosen_first: ClassVar[bool] = False  # of condensing methods that fit, before those whose budget is larger
    weights_setting: ClassVar[str | None] = None  # the setting that names the file of the trained weights it needs
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

    def weights_digest(self, spec: ModelSpec) -> str:
        """A digest of the trained weights that it needs beside the model's own; empty if it needs none.

        Raises:
            SettingsError: it needs some, and there are none that fit this model.
        """
        return ""

    def coding(self, turn_tokens: TurnTokens) -> Coding | None:
        """How its slots are coded; None where entries stay in the model's own type."""
        return None

    def passing(self, spec: ModelSpec) -> int:
        """Entries that a memory may hold beyond the budget: tokens on their way through, not judged yet."""
        return 0

    def spans(self, total: int, prefix: int) -> list[tuple[int, int]]:
        """Which stretches of a text of `total` tokens are read, behind a prefix of `prefix` tokens."""
        return [(0, total)]

    def tail_reserve(self) -> int:
        """Entries that a finished reading leaves free for a first question."""
        return 0

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """What a reading of that size will keep and attend to; nothing is allocated.

        Here: slots for the whole text, or for `budget` entries and those that pass. A method whose memory is another
        one brings arithmetic of its own.
        """
        passed = task.prefix + sum(end - start for start, end in self.spans(task.tokens, task.prefix))
        coding = self.coding(task.turn_tokens)
        if self.budget is None:
            return plan_unlimited(spec, passed, task.chunk, coding)
        room = self.budget + self.passing(spec)
        held, size = min(passed, room), slot_bytes(spec, room, coding)
        levels = 0 if coding is None else level_bytes(spec)
        levelled = levels if coding is not None and passed >= coding.waiting else 0
        return Footprint(
            usage=Usage({DEVICE: held}, {DEVICE: size + levelled}),
            spare_bytes=size,
            tail_bytes=slot_bytes(spec, max(room, FIRST_CAPACITY), coding) + levels,
            saved_bytes=saved_bytes(spec, held, coding) + levelled,
            passed=passed,
            attended=mean_attended(passed, held),
            widest=held,
            answering=held,
            coded=coding is not None,
        )

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
