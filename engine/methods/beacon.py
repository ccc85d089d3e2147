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

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.errors import WeightsError
from engine.footprint import Footprint, Task
from engine.measure import require_memory
from engine.memories.memory import NOT_IN_SOURCE, Memory
from engine.memories.slot_plan import plan_slots, slot_bytes
from engine.memories.slots import SlotMemory
from engine.method import Method, TurnTokens, require
from engine.models.attention_interface import ExtraTokens
from engine.models.spec import ModelSpec, Scoring
from engine.records import DEVICE, LoadedParts, Parts, Usage
from engine.trained.beacons import KIND, RATIOS, Beacons, beacon_numbers, find_beacons
from engine.trained.sidecar_weights import sidecar_digest

RAW = 1  # the ratio of a text that fits without beacons
WINDOW = 2048  # the authors', for models whose own window is 16K or more
WINDOW_SHARE = 8  # of what the model was trained for, for smaller ones


@dataclass(frozen=True, kw_only=True)
class Beacon(Method):
    """Beacons by the interleaved scheme.

    budget: beacons that outlast their windows, None for all; ratio: alpha, raw tokens a beacon, 0 for the smallest that
    fits; window: w, 0 for an eighth of the model's own window, at most 2048; weights: file of the beacon weights, empty
    for those beside the model.
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
        """Reject settings that contradict one another."""
        super().__post_init__()
        require(self.budget is None or self.budget >= 16, f"'beacon' needs a budget of 16 or more, not {self.budget}.")
        require(self.window >= 0, f"window is a number of tokens, or 0 to choose by itself, not {self.window}.")
        require(
            self.window % (self.ratio or RATIOS[0]) == 0,
            f"A window of {self.window} tokens cannot be divided by the ratio {self.ratio or RATIOS[0]}: give a window "
            f"that is a multiple of the ratio.",
        )
        if self.weights:  # a saved reading must find them from another working directory
            object.__setattr__(self, "weights", str(Path(self.weights).expanduser().resolve()))

    def window_tokens(self, spec: ModelSpec) -> int:
        """w; one that is not given can be divided by every ratio."""
        largest = RATIOS[-1]
        return self.window or max(largest, min(WINDOW, spec.window // WINDOW_SHARE) // largest * largest)

    def ratio_for(self, spec: ModelSpec, tokens: int) -> int:
        """Alpha for a text of so many tokens, the prefix included; RAW if it fits as it is."""
        return self.ratio or self.ratio_beside(spec, 0, tokens // self.window_tokens(spec) + 1)

    def ratio_beside(self, spec: ModelSpec, held: int, windows: int) -> int:
        """The smallest ratio with which so many windows fit the budget beside `held` entries; if none, the largest."""
        if self.budget is None:
            return RAW
        window = self.window_tokens(spec)
        able = [ratio for ratio in (RAW, *RATIOS) if window % ratio == 0]
        return next((each for each in able if held + windows * window // each <= self.budget), able[-1])

    def stride_for(self, beacons: int) -> int:
        """Of how many beacons one is kept when so many have outlasted their windows."""
        stride = 1
        while self.budget is not None and beacons // stride > self.budget:
            stride *= 2
        return stride

    def weights_digest(self, spec: ModelSpec) -> str:
        """A digest of the beacon weights."""
        return sidecar_digest(KIND, spec, self.weights)

    def passing(self, spec: ModelSpec) -> int:
        """The open window: its raw tokens and their beacons."""
        window = self.window_tokens(spec)
        return window + window // (self.ratio or RATIOS[0]) if self.condenses else 0

    @property
    def condenses(self) -> bool:
        """Whether raw entries ever go."""
        return self.budget is not None or self.ratio > 0

    def capacity(self, spec: ModelSpec, tokens: int) -> int | None:
        """Entries to make room for: the budget, or without one all beacons of so many tokens, and the open window.

        None where nothing is condensed.
        """
        if not self.condenses:
            return None
        window = self.window_tokens(spec)
        outlasting = tokens // window * window // self.ratio if self.budget is None else self.budget
        return outlasting + self.passing(spec)

    def require_extendable(self, spec: ModelSpec, before: int, total: int, prefix: int) -> None:
        """See that more of the text would not ask for another ratio."""
        super().require_extendable(spec, before, total, prefix)
        was, now = (self.ratio_for(spec, prefix + tokens) for tokens in (before, total))
        require(
            was == now,
            f"{self.name} has read this at a ratio of {was}, and would read it at {now} together with what is to be "
            f"added: read all of it together, or begin again with a ratio that you set.",
        )

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Nothing read yet.

        Raises:
            WeightsError: no beacon weights, or none that fit this model and window.
        """
        beacons, window = find_beacons(spec, self.weights), self.window_tokens(spec)
        if beacons.window and beacons.window != window:
            raise WeightsError(
                f"These beacon weights were trained with windows of {beacons.window} tokens, and the window is set to "
                f"{window}: set window={beacons.window}."
            )
        return BeaconMemory(spec, self, beacons)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """Beacons of the windows that are full, and the open window; each beacon is a token that passes."""
        weights, capacity = beacon_numbers(spec) * spec.dtype.itemsize, self.capacity(spec, task.total)
        if capacity is None:
            return dataclasses.replace(super().plan(spec, task), weight_bytes=weights)
        plain = plan_slots(_without_windows(spec), task.total, task.chunk, capacity, None)
        whole = max(task.total, task.prefix + task.beginning_of)
        window, ratio = self.window_tokens(spec), self.ratio_for(spec, whole)
        full, rest = divmod(task.total, window)
        made = beacons_in(task.total, ratio)
        outlasting = full * window // ratio
        kept = outlasting // self.stride_for(outlasting)
        opened = rest + beacons_in(rest, ratio)
        most = min(task.total + made, kept + window + beacons_in(window, ratio))
        size, opening = plain.usage.bytes[DEVICE], self.passing(spec)
        return dataclasses.replace(
            plain,
            usage=Usage({DEVICE: kept + opened}, {DEVICE: size}),
            inserted=made,
            attended=_mean_beacons(outlasting, self.budget) + min(opening, task.total + made) / 2,
            widest=most,
            answering=kept + opened,
            weight_bytes=weights,
        )


def _without_windows(spec: ModelSpec) -> ModelSpec:
    """Beacons are kept in every layer, whatever sliding window it has."""
    return dataclasses.replace(
        spec, layers=tuple(dataclasses.replace(layer, sliding_window=None) for layer in spec.layers)
    )


def _mean_beacons(outlasting: int, budget: int | None) -> float:
    """Beacons that are there on average while so many are made; above the budget they swing between half and all."""
    if budget is None or outlasting <= budget:
        return outlasting / 2
    return (budget * budget / 2 + (outlasting - budget) * budget * 3 / 4) / outlasting


class BeaconMemory(SlotMemory):
    """Beacons, then the open window, in slots whose numbers are their positions."""

    def __init__(self, spec: ModelSpec, settings: Beacon, beacons: Beacons) -> None:
        """beacons: in the dtype and on the device of the model."""
        capacity = settings.capacity(spec, 0)
        super().__init__(spec, capacity, lets_go=capacity is None)  # see `_without_windows`
        self.settings = settings
        self.beacons = beacons
        self.window = settings.window_tokens(spec)
        self.ratio = settings.ratio_for(spec, 0)  # of the open window; until a text is announced, of an empty one
        self.whole: int | None = None  # tokens of a text that is kept raw; None where it has beacons
        self.made = 0  # beacons that have outlasted their windows, whether still there or not
        self.fresh = 0  # raw tokens in the open window
        self._arriving = 0  # raw tokens of the pass
        # The places of its tokens and then its beacons among themselves, and who stands at each; None without beacons
        self._orders: tuple[Tensor, Tensor] | None = None

    def reserve(self, tokens: int) -> None:
        """Learns how long the text is, and chooses the ratio; without a budget, makes room for all beacons."""
        super().reserve(tokens)
        capacity = self.settings.capacity(self.spec, tokens)
        if capacity is not None and capacity != self.capacity and self.entries == 0:
            needed = slot_bytes(self.spec, capacity)
            require_memory(needed, self.spec.device, f"Keeping the beacons of {tokens:,} tokens on the device")
            self.capacity, self.own = capacity, self._new_slots(capacity)
        self.ratio = self.settings.ratio_for(self.spec, tokens)
        self.whole = tokens if self.ratio == RAW else None

    def begin(self, source: Tensor) -> None:
        """Find the places of the beacons; in the open window they stand for no source, for their tokens are there."""
        super().begin(source)
        self._arriving, self._orders = len(source), None
        place = window_places(self.fresh, len(source), self.ratio)
        if len(place) > len(source):
            standing = torch.full_like(place, NOT_IN_SOURCE)
            standing[place[: len(source)]] = source.long()
            sent = torch.stack([place, place.argsort(), standing]).to(self.spec.device, non_blocking=True)
            self._orders = sent[0], sent[1]
            self._incoming = sent[2].int()

    def static_kind(self) -> int | None:
        """None where a beacon passes with the token."""
        return super().static_kind() if self._orders is None else None

    def extra_tokens(self) -> ExtraTokens | None:
        """The beacons of the pass."""
        return self.beacons.extra_tokens(len(self._incoming) - self._arriving)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Causal attention over all slots, beacons at their places."""
        if self._orders is None:
            return super().attend(layer, q, k, v, scoring)
        place, order = self._orders
        q, k, v = (x[:, order] for x in (q, k, v))
        output = super().attend(layer, q, k, v, scoring)
        return output[:, place]

    def commit(self, novelty: Tensor | None = None) -> None:
        """Keep tokens and beacons of the pass until their window is full."""
        super().commit(novelty)
        self.seen += self._arriving - len(self._incoming)
        self.fresh += self._arriving

    def room(self) -> int:
        """What is left of the window."""
        whole = self.settings.budget is None and self.ratio == RAW
        return super().room() if whole else self.window - self.fresh

    def wants_room(self) -> bool:
        """Where a text ends with a full window."""
        return self.room() == 0

    def _grow(self, outlasting: int) -> None:
        """Without a budget: room for the open window, however much there is beside it."""
        if self.settings.budget is None and self.capacity is not None:
            self.capacity = max(self.capacity, outlasting + self.settings.passing(self.spec))

    def condense(self) -> None:
        """The window is full: only its beacons stay, and take the source of the token before them."""
        new = self.window if self.ratio == RAW else beacons_in(self.window, self.ratio)
        old = self.entries - self.window - beacons_in(self.window, self.ratio)
        width = self.window // new + (self.ratio != RAW)  # places of a unit and its beacon
        slots = torch.arange(old + new)
        slots[old:] = old + torch.arange(1, new + 1) * width - 1
        named = slots.clone()
        if self.ratio != RAW:
            named[old:] -= 1
        kept = self._evenly(old, new) if self.whole is None else self._latest(old + new)
        slots, named = torch.stack([slots[kept], named[kept]]).to(self.spec.device, non_blocking=True)
        sources = [self.positions(layer)[:, named] for layer in range(len(self.spec.layers))]
        self._grow(old + new)
        self.keep({number: slots.expand(self.heads[number].kv_heads, -1) for number in self.judged})
        for held, source in zip(self.own, sources, strict=True):
            held.source[:, : self.length] = source
        self.made, self.fresh = self.made + new, 0  # not before: memory may run out
        if self.whole is not None:
            self.ratio = self.settings.ratio_beside(self.spec, self.entries, 1)

    def _evenly(self, old: int, new: int) -> Tensor:
        """Which of the old entries and the new stay, bool [old + new]: every `stride_for` of all that were made."""
        before = self.settings.stride_for(self.made)
        number = torch.cat([torch.arange(1, old + 1) * before, self.made + torch.arange(1, new + 1)])
        return number % self.settings.stride_for(self.made + new) == 0

    def _latest(self, count: int) -> Tensor:
        """Which of so many entries stay, bool [count]: the raw text, and the latest of what was said that fit."""
        assert self.whole is not None
        assert self.settings.budget is not None
        slot = torch.arange(count)
        return (slot < self.whole) | (slot >= count - (self.settings.budget - self.whole))

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """The slots, and where in the window they stand."""
        parts, meta = super().state()
        return parts, meta | {"ratio": self.ratio, "whole": self.whole, "made": self.made, "fresh": self.fresh}

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """The ratio is that of the open window, even if a conversation is restored."""
        super().restore(parts, meta)
        self.whole = meta.get("whole")
        self.ratio, self.made, self.fresh = int(meta["ratio"]), int(meta["made"]), int(meta["fresh"])
        self._grow(self.entries)


def beacons_in(tokens: int, ratio: int) -> int:
    """Beacons among so many first tokens of a window, or in all of a text."""
    return 0 if ratio == RAW else tokens // ratio


def window_places(begin: int, tokens: int, ratio: int) -> Tensor:
    """Where tokens of a pass stand among themselves and their beacons, int64 [T + K]: tokens first, then beacons.

    Args:
        begin: tokens of the window before them; ratio: alpha, or RAW for no beacons.
    Source: the paper's equation 2.
    """
    number = torch.arange(tokens)
    if ratio == RAW:
        return number
    place = number + (begin + number) // ratio - begin // ratio
    return torch.cat([place, place[(begin + number + 1) % ratio == 0] + 1])
