"""`exact`: everything is kept, and each question token attends to the exact best of it.

The yardstick of the retrieving family: what InfLLM and InfiniteHiP approximate with representatives and hierarchies
is computed here exactly. The text is read with sinks and a sliding window, and every key (before RoPE) and value goes
to the host tier. Then every token of a question or an answer attends, per query head, to the top-k of all kept
entries that have left its window, beside the sinks and its window, in one softmax. Keys are compared at one constant
distance (InfLLM's rule, see `positions.py`). Inside the model's window the best are attended to at true distances.
A question that is asked again (`focus.py`) searches what stood out the first time. Searching everything costs time
linear in the text, so this is for small models or patient people.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.archived import ArchiveSettings, DistanceSettings
from engine.methods.base import Method, TurnTokens
from engine.methods.presets import EXACT
from engine.models.spec import ModelSpec
from engine.parts.archive.options import DTYPES, least_window
from engine.parts.archive.sketch import KINDS, NONE, SKETCHES
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.selectors.retrieval_plan import Selection, search_footprint, selector_footprint
from engine.parts.selectors.top_k import TopKSelector
from engine.parts.slots import SlotStore
from engine.parts.window import WindowStore
from engine.parts.window_plan import window_footprint


@dataclass(frozen=True, kw_only=True)
class Exact(ArchiveSettings, DistanceSettings, Method):
    """Search everything for each query of a conversation.

    Attributes:
        budget: sinks, window and top-k together: entries that one query sees at most.
        sinks: first tokens, always seen.
        top_k: far entries per query and query head.
        sketch: kind of sketches of the keys, on the device, by which the best are found (`sketch.py`).
        Others: see `ArchiveSettings` and `DistanceSettings`.
    """

    name: ClassVar[str] = "exact"
    family: ClassVar[str] = "yardstick"
    summary: ClassVar[str] = "Keeps everything; each question attends to the exact best matches."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = EXACT
    quicker: ClassVar[Sequence[Mapping[str, Any]]] = ({"preset": "sketched", "sketch": "int4"}, {"preset": "sketched"})
    long_window: ClassVar[str | None] = "wide"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {**ArchiveSettings.archive_choices, "sketch": SKETCHES}

    budget: int | None = 512
    sinks: int = 4
    top_k: int = 128
    sketch: str = NONE

    def __post_init__(self) -> None:
        """Refuse a budget without a window beside sinks and top-k."""
        super().__post_init__()
        require(self.sinks >= 0, f"sinks cannot be negative ({self.sinks}).")
        require(self.top_k >= 1, f"top_k is at least 1, not {self.top_k}.")
        least = self.sinks + self.top_k + 16 + least_window(self.store, 1, sketched=self.sketch != NONE)
        require(
            self.budget is None or self.budget >= least,
            f"A budget of {self.budget} leaves no window beside {self.sinks} sinks and the {self.top_k} best entries: "
            f"give at least {least}, or a smaller top_k.",
        )

    @property
    def window(self) -> int:
        """Tokens in the window."""
        assert self.budget is not None, "without a budget there is no window"
        return self.budget - self.sinks - self.top_k

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty memory; without a budget, slots for everything, where nothing is ever far."""
        if self.budget is None:
            return Memory(spec, SlotStore(spec))
        store = WindowStore(spec, self.sinks, self.window, keeps_wider=True)
        archive = self.new_archive(spec, KINDS.get(self.sketch))
        selector = TopKSelector(spec, store, archive, self.top_k, self.extend_always)
        return Memory(spec, store, selector=selector)

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprints of window, archive and selector. All of the archive is searched."""
        if self.budget is None:
            yield from super().footprints(spec, task)
            return
        selection = Selection(
            chosen=self.top_k,
            compared=1.0,
            looks=self.looks,
            while_reading=False,
            each_query=True,
            recorded=self.recordable,
            positions=self.true_positions(spec, task),
        )
        yield window_footprint(spec, task, self.sinks, self.window, keeps_wider=True)
        yield self.archive_footprint(spec, task, self.sinks)
        yield selector_footprint(spec, task, self.sinks, selection)
        yield search_footprint(spec, task, self.sinks, DTYPES[self.store], self.top_k, KINDS.get(self.sketch))
