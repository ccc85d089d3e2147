"""`beacon`: the text condensed, window by window, into the keys and values of tokens of the method's own.

Long Context Compression with Activation Beacon (https://arxiv.org/abs/2401.03462, section 3.1). A text is read in
windows of w tokens, and behind every alpha of them goes a beacon, a token with projections of its own (`beacons.py`).
When a window is full, its raw entries are dropped and its w / alpha beacons stay; what comes next attends to all
beacons so far and to its own window. Positions are relative: 0, 1, 2, ... over beacons, then window, in which beacons
take places like any token. A window that is not full yet keeps raw entries and beacons; questions and answers
continue in it, and are condensed like the text when it fills.

The ratio alpha is chosen when a text is read: given, or the smallest with which text and one further window fit the
budget (`ratio=0`), which is none at all where the raw entries fit. The same ratio serves the conversation, unless it is
none: then each window that begins later has the smallest with which it fits beside what is there. With a ratio and no
budget beacons grow with the text, as in the paper; with neither there are none.

Not in the paper: what happens above the budget. Then every second beacon is dropped, counted from the beginning of the
text, and from there on only every second new one is kept; next time every fourth, and so on. So what is kept is spread
evenly over all that was read and said, as a larger ratio would have it. A text that was read without beacons stays
whole, and of the conversation the oldest entries go. The budget counts what outlasts its window; the open window comes
on top (`passing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.base import Method, TurnTokens
from engine.models.spec import ModelSpec
from engine.parts.evictors.beacon_windows import BeaconWindows
from engine.parts.evictors.beacons import BeaconEvictor
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.slot_plan import slot_footprint
from engine.parts.slots import SlotStore
from engine.trained.beacons import KIND, RATIOS, beacon_numbers, find_beacons
from engine.trained.sidecar_weights import sidecar_digest

WINDOW = 2048  # the authors', for models whose own window is 16K or more
WINDOW_SHARE = 8  # share of the model's own window, for smaller ones


@dataclass(frozen=True, kw_only=True)
class Beacon(Method):
    """Beacons by the interleaved scheme.

    Attributes:
        budget: beacons that outlast their windows, None for all.
        ratio: alpha, raw tokens per beacon; 0 for the smallest that fits.
        window: w, tokens; 0 for an eighth of the model's own window, at most 2048.
        weights: file of the beacon weights, empty for those beside the model.
    """

    name: ClassVar[str] = "beacon"
    family: ClassVar[str] = "condensing"
    summary: ClassVar[str] = "Every few tokens are condensed into one trained token, 2 to 32 times smaller."
    weights_setting: ClassVar[str | None] = KIND.setting
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"ratio": (0, *RATIOS)}

    budget: int | None = 2048
    ratio: int = 0
    window: int = 0
    weights: str = ""

    def __post_init__(self) -> None:
        """Refuse settings that contradict one another."""
        super().__post_init__()
        require(self.budget is None or self.budget >= 16, f"'beacon' needs a budget of 16 or more, not {self.budget}.")
        require(self.window >= 0, f"window is a number of tokens, or 0 to choose by itself, not {self.window}.")
        require(
            self.window % (self.ratio or RATIOS[0]) == 0,
            f"A window of {self.window} tokens cannot be divided by the ratio {self.ratio or RATIOS[0]}: give a window "
            f"that is a multiple of the ratio.",
        )

    def windows(self, spec: ModelSpec) -> BeaconWindows:
        """Return how a text is condensed for this model; a window that is not given can be divided by every ratio."""
        largest = RATIOS[-1]
        window = self.window or max(largest, min(WINDOW, spec.window // WINDOW_SHARE) // largest * largest)
        return BeaconWindows(window, self.ratio, self.budget)

    def weights_digest(self, spec: ModelSpec) -> str:
        """Return a digest of the beacon weights."""
        return sidecar_digest(KIND, spec, self.weights)

    def passing(self, spec: ModelSpec) -> int:
        """Return the most entries of the open window: its raw tokens and their beacons."""
        return self.windows(spec).open_entries

    def require_extendable(self, spec: ModelSpec, before: int, total: int, prefix: int) -> None:
        """Check that more of the text would not change the ratio."""
        super().require_extendable(spec, before, total, prefix)
        was, now = (self.windows(spec).ratio_for(prefix + tokens) for tokens in (before, total))
        require(
            was == now,
            f"{self.name} has read this at a ratio of {was}, and would read it at {now} together with what is to be "
            f"added: read all of it together, or begin again with a ratio that you set.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return empty slots with their evictor.

        Raises:
            WeightsError: no beacon weights, or none that fit this model and window.
        """
        windows = self.windows(spec)
        beacons = find_beacons(spec, self.weights, windows.window)
        capacity = windows.capacity(0)
        store = SlotStore(spec, capacity, keeps_windows=capacity is None)  # a beacon stays, whatever window a layer has
        return Memory(spec, store, evictor=BeaconEvictor(store, windows, beacons))

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprints of slots, beacons and their weights. Each beacon is a token that passes."""
        yield Footprint(weight_bytes=beacon_numbers(spec) * spec.dtype.itemsize)
        windows = self.windows(spec)
        capacity = windows.capacity(task.total)
        if capacity is None:
            yield from super().footprints(spec, task)
        else:
            yield slot_footprint(spec.without_windows(), task.total, task.chunk, capacity)
            yield windows.footprint(task.total, max(task.total, task.prefix + task.beginning_of))
