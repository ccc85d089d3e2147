"""Activation Beacon's eviction: when a window is full, its raw entries go and its beacons stay.

Source: Long Context Compression with Activation Beacon (https://arxiv.org/abs/2401.03462), section 3.1. Above the
budget, which the paper does not have, every second beacon is dropped, counted from the beginning of the text, and from
there on only every second new one is kept; next time every fourth, and so on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.memory_usage import require_memory
from engine.models.attention_interface import ExtraTokens
from engine.parts.evictors.base import UNLIMITED, Evictor
from engine.parts.evictors.beacon_windows import RAW, BeaconWindows, beacons_in
from engine.parts.mass import NOT_IN_SOURCE
from engine.parts.slot_plan import slot_bytes
from engine.parts.slots import SlotStore
from engine.trained.beacons import Beacons


class BeaconEvictor(Evictor):
    """Beacons, then the open window, in slots whose numbers are their positions."""

    store: SlotStore

    in_order = False

    def __init__(self, store: SlotStore, windows: BeaconWindows, beacons: Beacons) -> None:
        """beacons: in the dtype and on the device of the model."""
        super().__init__(store)
        self.windows = windows
        self.beacons = beacons
        self.window = windows.window
        self.ratio = windows.ratio_for(0)  # of the open window; until a text is announced, of an empty one
        self.whole: int | None = None  # tokens of a text that is kept raw; None where it has beacons
        self.made = 0  # beacons that have outlasted their windows, whether still there or not
        self.fresh = 0  # raw tokens in the open window
        self._arriving = 0  # raw tokens of the pass

    def reserve(self, tokens: int) -> None:
        """Choose the ratio for a text of this length; without a budget, make room for all beacons."""
        store, spec = self.store, self.store.spec
        capacity = self.windows.capacity(tokens)
        if capacity is not None and capacity != store.capacity and store.entries == 0:
            needed = slot_bytes(spec, capacity)
            require_memory(needed, spec.device, f"Keeping the beacons of {tokens:,} tokens on the device")
            store.capacity, store.own = capacity, store.new_slots(capacity)
        self.ratio = self.windows.ratio_for(tokens)
        self.whole = tokens if self.ratio == RAW else None

    def begin_pass(self, source: Tensor) -> Tensor:
        """Return the source positions with the beacons at their places; those stand for no source yet.

        `order` becomes, on the device: int64 [T], the places of the pass's tokens and then its beacons among
        themselves, and who stands at each place; None without beacons.
        """
        self._arriving, self.order = len(source), None
        place = window_places(self.fresh, len(source), self.ratio)
        if len(place) == len(source):
            return source
        standing = torch.full_like(place, NOT_IN_SOURCE)
        standing[place[: len(source)]] = source.long()
        sent = torch.stack([place, place.argsort()]).to(self.store.spec.device, non_blocking=True)
        self.order = sent[0], sent[1]
        return standing.int()

    def extra_tokens(self) -> ExtraTokens | None:
        """Return the beacons of the pass."""
        return self.beacons.extra_tokens(self.store.tokens - self._arriving)

    def recordable(self) -> bool:
        """Tell whether no beacon passes with the token."""
        return super().recordable() and self.order is None

    def end_pass(self, tokens: int) -> None:
        """Count the raw tokens: beacons are none of the text's."""
        self.store.seen += self._arriving - tokens
        self.fresh += self._arriving

    def room(self) -> int:
        """Return what is left of the window."""
        whole = self.windows.budget is None and self.ratio == RAW
        return UNLIMITED if whole else self.window - self.fresh

    def needs_final_eviction(self) -> bool:
        """Tell whether the text ended with a full window."""
        return self.room() == 0

    def _grow(self, outlasting: int) -> None:
        """Without a budget, make room for the open window, however much there is beside it."""
        if self.windows.budget is None and self.store.capacity is not None:
            self.store.capacity = max(self.store.capacity, outlasting + self.windows.open_entries)

    def evict(self) -> None:
        """Keep only the beacons of the full window; they take the source of the token before them."""
        store = self.store
        new = self.window if self.ratio == RAW else beacons_in(self.window, self.ratio)
        old = store.entries - self.window - beacons_in(self.window, self.ratio)
        width = self.window // new + (self.ratio != RAW)  # places of a unit and its beacon
        slots = torch.arange(old + new)
        slots[old:] = old + torch.arange(1, new + 1) * width - 1
        named = slots.clone()
        if self.ratio != RAW:
            named[old:] -= 1
        kept = self._evenly(old, new) if self.whole is None else self._latest(old + new)
        slots, named = torch.stack([slots[kept], named[kept]]).to(store.spec.device, non_blocking=True)
        sources = [store.positions(layer)[:, named] for layer in range(len(store.spec.layers))]
        self._grow(old + new)
        self.store.keep_same(slots)
        for held, source in zip(store.own, sources, strict=True):
            held.source[:, : store.length] = source
        self.made, self.fresh = self.made + new, 0  # not before: memory may run out
        if self.whole is not None:
            self.ratio = self.windows.ratio_beside(store.entries, 1)

    def _evenly(self, old: int, new: int) -> Tensor:
        """Return which of the old entries and the new stay, bool [old + new]: every `stride_for`-th of all made."""
        before = self.windows.stride_for(self.made)
        number = torch.cat([torch.arange(1, old + 1) * before, self.made + torch.arange(1, new + 1)])
        return number % self.windows.stride_for(self.made + new) == 0

    def _latest(self, count: int) -> Tensor:
        """Return which of `count` entries stay, bool [count]: the raw text, and the latest of what was said."""
        budget = self.windows.budget
        assert self.whole is not None
        assert budget is not None
        slot = torch.arange(count)
        return (slot < self.whole) | (slot >= count - (budget - self.whole))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return where in the window the store stands."""
        return {}, {"ratio": self.ratio, "whole": self.whole, "made": self.made, "fresh": self.fresh}

    def load(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`. The ratio is that of the open window, also in a conversation."""
        self.whole = meta.get("whole")
        self.ratio, self.made, self.fresh = int(meta["ratio"]), int(meta["made"]), int(meta["fresh"])
        self._grow(self.store.entries)


def window_places(begin: int, tokens: int, ratio: int) -> Tensor:
    """Return where tokens of a pass stand among themselves and their beacons, int64 [T + K]: tokens, then beacons.

    Args:
        begin: tokens of the window before them.
        tokens: T.
        ratio: alpha, or RAW for no beacons.
    Source: the paper's equation 2.
    """
    number = torch.arange(tokens)
    if ratio == RAW:
        return number
    place = number + (begin + number) // ratio - begin // ratio
    return torch.cat([place, place[(begin + number + 1) % ratio == 0] + 1])
