"""How beacons condense a text: the ratio that its windows have, and how many beacons stay above the budget."""

from __future__ import annotations

from dataclasses import dataclass

from engine.parts.footprint import Footprint, Work
from engine.records import DEVICE, Usage
from engine.trained.beacons import RATIOS

RAW = 1  # the ratio of a text that fits without beacons


@dataclass(frozen=True)
class BeaconWindows:
    """Windows and ratios for one model. Letters are those of the paper (Activation Beacon, section 3.1)."""

    window: int  # w, tokens
    ratio: int  # alpha, raw tokens per beacon; 0 for the smallest that fits
    budget: int | None  # beacons that outlast their windows, None for all

    @property
    def condenses(self) -> bool:
        """True if raw entries are ever dropped."""
        return self.budget is not None or self.ratio > 0

    @property
    def open_entries(self) -> int:
        """Most entries of the open window: raw tokens and their beacons."""
        return self.window + self.window // (self.ratio or RATIOS[0]) if self.condenses else 0

    def ratio_for(self, tokens: int) -> int:
        """Return alpha for a text of so many tokens, prefix included; RAW if it fits as it is."""
        return self.ratio or self.ratio_beside(0, tokens // self.window + 1)

    def ratio_beside(self, held: int, windows: int) -> int:
        """Return the smallest ratio that lets `windows` windows fit beside `held` entries, or else the largest."""
        if self.budget is None:
            return RAW
        able = [ratio for ratio in (RAW, *RATIOS) if self.window % ratio == 0]
        return next((each for each in able if held + windows * self.window // each <= self.budget), able[-1])

    def stride_for(self, beacons: int) -> int:
        """Return s if one beacon of s is kept when `beacons` have outlasted their windows."""
        stride = 1
        while self.budget is not None and beacons // stride > self.budget:
            stride *= 2
        return stride

    def capacity(self, tokens: int) -> int | None:
        """Return the entries to allocate for a text of so many tokens; None if nothing is condensed.

        They are the budget, or without one all beacons, and the open window.
        """
        if not self.condenses:
            return None
        outlasting = tokens // self.window * self.window // self.ratio if self.budget is None else self.budget
        return outlasting + self.open_entries

    def footprint(self, total: int, whole: int) -> Footprint:
        """Return what a `BeaconEvictor` leaves of `total` tokens, the beginning of a text of `whole`."""
        ratio = self.ratio_for(whole)
        full, rest = divmod(total, self.window)
        made, outlasting = beacons_in(total, ratio), full * self.window // ratio
        kept = outlasting // self.stride_for(outlasting)
        held = kept + rest + beacons_in(rest, ratio)
        work = Work(
            passed=total,
            inserted=made,
            attended=self._mean_beacons(outlasting) + min(self.open_entries, total + made) / 2,
            widest=min(total + made, kept + self.window + beacons_in(self.window, ratio)),
            attended_per_answer_token=held,
        )
        return Footprint(Usage({DEVICE: held}, {}), work=work)

    def _mean_beacons(self, outlasting: int) -> float:
        """Return how many beacons there are on average; above the budget they swing between half of it and all."""
        if self.budget is None or outlasting <= self.budget:
            return outlasting / 2
        return (self.budget * self.budget / 2 + (outlasting - self.budget) * self.budget * 3 / 4) / outlasting


def beacons_in(tokens: int, ratio: int) -> int:
    """Return the beacons among the first `tokens` tokens of a window, or in all of a text."""
    return 0 if ratio == RAW else tokens // ratio
