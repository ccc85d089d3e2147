"""A method: how a memory keeps or condenses what it has read, and the settings it does it with.

A method is a frozen dataclass whose fields are its settings. It declares what it needs (`catalyst`, `needs_novelty`,
`weights_digest`) and the reading loop provides it, so no loop asks which method it is running; it says what it will
cost (`plan`), so the planner need not know it either.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.models.spec import ModelSpec
from engine.parts.footprint import Footprint, Task
from engine.parts.footprint import TurnTokens as TurnTokens
from engine.parts.quantized_slots import Quantization
from engine.parts.slot_plan import plan_slots


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods. budget: entries per KV head and layer on the device; None for no limit."""

    name: ClassVar[str]
    family: ClassVar[str]  # "condensing" | "retrieving" | "yardstick" | "baseline"
    summary: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named settings
    long_window: ClassVar[str | None] = None  # the preset for models whose window holds its budget
    # Settings with which it answers sooner, for more of a GPU's memory; what finds most comes first
    quicker: ClassVar[Sequence[Mapping[str, Any]]] = ()
    chosen_first: ClassVar[bool] = False  # of condensing methods that fit, before those whose budget is larger
    weights_setting: ClassVar[str | None] = None  # the setting that names the file of the trained weights it needs
    reads_again: ClassVar[bool] = False  # whether it forgets so that passages are worth reading again (`rereading.py`)
    choices: ClassVar[Mapping[str, Collection[Any]]] = {}  # settings that are one of a few, and which
    budget: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings that are none of those there are.

        Raises:
            SettingsError: naming them.
        """
        for name, known in self.choices.items():
            value = getattr(self, name)
            require(value in known, f"{name} is one of {', '.join(map(str, known))}, not {value!r}.")

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

    def quantization(self, turn_tokens: TurnTokens) -> Quantization | None:
        """How its slots are coded; None where entries stay in the model's own type."""
        return None

    def passing(self, spec: ModelSpec) -> int:
        """Entries that a memory may hold beyond the budget: tokens on their way through, not judged yet."""
        return 0

    def spans(self, total: int, prefix: int) -> list[tuple[int, int]]:
        """Which stretches of a text of `total` tokens are read, behind a prefix of `prefix` tokens."""
        return [(0, total)]

    def require_extendable(self, spec: ModelSpec, before: int, total: int, prefix: int) -> None:
        """See that what remains of a text of `before` tokens is what a text of `total` tokens begins with.

        Raises:
            SettingsError: it would have been read otherwise, had more been known to come.
        """
        require(
            self.spans(before, prefix) == [(0, before)] and self.spans(total, prefix) == [(0, total)],
            f"{self.name} chooses what it reads by the length of the whole: read all of it together.",
        )

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """What a reading of that size will keep and attend to; nothing is allocated.

        Here: slots for the whole text, or for `budget` entries and those that pass. A method whose memory is another
        one brings arithmetic of its own.
        """
        passed = task.prefix + sum(end - start for start, end in self.spans(task.tokens, task.prefix))
        capacity = None if self.budget is None else self.budget + self.passing(spec)
        return plan_slots(spec, passed, task.chunk, capacity, self.quantization(task.turn_tokens))

    def pass_multiple(self) -> int:
        """Tokens that choose together what they see: a pass carries whole multiples of them, except at the end."""
        return 1

    def settings(self) -> dict[str, Any]:
        """The settings by name, JSON-able."""
        return dataclasses.asdict(self)
