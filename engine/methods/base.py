"""The base of methods: settings, the parts of their memory, and what these cost.

A method is a frozen dataclass whose fields are its settings. It declares what it needs (`catalyst`, `needs_novelty`,
`weights_digest`) and loops provide it, so no loop asks which method it is running. Its cost (`plan`) is the sum over
its parts.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.models.spec import ModelSpec
from engine.parts.footprint import Footprint, ReadingTask, state_footprint
from engine.parts.footprint import TurnTokens as TurnTokens
from engine.parts.quantized_slots import Quantization
from engine.parts.slot_plan import slot_footprint, unscored_footprint


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods. budget: entries per KV head and layer on the device; None for no limit."""

    name: ClassVar[str]
    family: ClassVar[str]  # "condensing" | "retrieving" | "yardstick" | "baseline"
    summary: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # named settings
    long_window: ClassVar[str | None] = None  # the preset for models whose window holds its budget
    # Settings with which it answers sooner, for more of a GPU's memory; those that find most come first
    quicker: ClassVar[Sequence[Mapping[str, Any]]] = ()
    chosen_first: ClassVar[bool] = False  # of condensing methods that fit, before those whose budget is larger
    weights_setting: ClassVar[str | None] = None  # setting that names the file of the trained weights it needs
    gpu_pass: ClassVar[int] = 0  # tokens of a pass of text on a GPU, if longer passes than usual spare it work
    choices: ClassVar[Mapping[str, Collection[Any]]] = {}  # values of settings that have a few
    budget: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that a setting cannot have, and resolve the path of trained weights.

        Raises:
            SettingsError: naming the setting and its values.
        """
        for name, known in self.choices.items():
            value = getattr(self, name)
            require(value in known, f"{name} is one of {', '.join(map(str, known))}, not {value!r}.")
        if self.weights_setting and (path := getattr(self, self.weights_setting)):
            # A saved reading must find them from another working directory.
            object.__setattr__(self, self.weights_setting, str(Path(path).expanduser().resolve()))

    @abstractmethod
    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty memory with these settings."""

    def needs_novelty(self) -> bool:
        """Tell whether each token's -log p is needed at `commit`."""
        return False

    def catalyst(self) -> str | None:
        """Return the prompt to put to the model before each condensing, or None."""
        return None

    def weights_digest(self, spec: ModelSpec) -> str:
        """Return a digest of the trained weights beside the model's own; empty if it needs none.

        Raises:
            SettingsError: it needs some, and there are none that fit this model.
        """
        return ""

    def quantization(self, turn_tokens: TurnTokens) -> Quantization | None:
        """Return how its slots are quantised, or None for the model's dtype."""
        return None

    def passing(self, spec: ModelSpec) -> int:
        """Return the entries that a memory may hold beyond the budget, of tokens that are not judged yet."""
        return 0

    def capacity(self, spec: ModelSpec) -> int | None:
        """Return the most entries of its slots, or None for no limit."""
        return None if self.budget is None else self.budget + self.passing(spec)

    def spans(self, total: int, prefix: int) -> list[tuple[int, int]]:
        """Return the stretches of a text of `total` tokens that are read, behind a prefix of `prefix` tokens."""
        return [(0, total)]

    def require_extendable(self, spec: ModelSpec, before: int, total: int, prefix: int) -> None:
        """Check that a text of `before` tokens was read as the beginning of one of `total` tokens would be.

        Raises:
            SettingsError: it was not.
        """
        require(
            self.spans(before, prefix) == [(0, before)] and self.spans(total, prefix) == [(0, total)],
            f"{self.name} chooses what it reads by the length of the whole: read all of it together.",
        )

    def plan(self, spec: ModelSpec, task: ReadingTask) -> Footprint:
        """Return the sum of the footprints of all parts, and of recurrent layers' states; nothing is allocated."""
        return sum(self.footprints(spec, task), state_footprint(spec.state_bytes))

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprint of each part, the store's first: here slots, and what their evictor leaves in them."""
        passed, capacity = self.passed(task), self.capacity(spec)
        yield slot_footprint(spec, passed, task.chunk, capacity, self.quantization(task.turn_tokens))
        yield self.kept_footprint(spec, task)

    def kept_footprint(self, spec: ModelSpec, task: ReadingTask) -> Footprint:
        """Return what the evictor leaves in slots; here all, or the last up to the capacity."""
        return unscored_footprint(spec, self.passed(task), task.chunk, self.capacity(spec))

    def passed(self, task: ReadingTask) -> int:
        """Return the tokens of a text that are read, prefix included."""
        return task.prefix + sum(end - start for start, end in self.spans(task.tokens, task.prefix))

    def pass_multiple(self) -> int:
        """Return how many tokens select together; passes are multiples of it, except the last."""
        return 1

    def pass_limit(self) -> int | None:
        """Return how many tokens of a text a pass may carry at most, however much room there is; None for no limit."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, JSON-able."""
        return dataclasses.asdict(self)
