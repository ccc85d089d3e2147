"""Looking again: a question is asked twice, the second time only of the passages that it looked at most.

Among very many entries a question's tokens still give most of their far attention to the passage that answers it, but
each head also brings in the look-alikes that it likes best, and the answer is made of them all. So a method that keeps
everything may ask twice: after the first time, what has stood out is where the second time may look. Where nothing
stands out (a question about the whole text), everything is looked at as before. A method that chooses so coarsely what
to look at that often nothing can stand out may look closely at more of the best passages in between.

Entries are those of the host tier; E of them, N chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.parts.sources import REACH, passages
from engine.records import Passage

MOST = 3  # passages that may stand out
AHEAD = 3.0  # the best stands out if it got so many times what the next after those got
BESIDE = 0.25  # of the best one's attention, for others to stand beside it; less is a look-alike
CLOSE = 16  # passages that are looked at closely where none stands out
AROUND = 64  # tokens to each side of what was looked at: what a text says of a thing is spread over its neighbours
WIDEST = MOST * (2 * REACH + 1 + 2 * AROUND)  # entries that may stand out together; among fewer, one look is enough


@dataclass(frozen=True)
class FocusedEntries:
    """Where to look.

    entries: int64 [N], ascending; until: how many entries there were. What has come since is always looked at.
    """

    entries: Tensor
    until: int

    @staticmethod
    def of(mass: Tensor, source: Tensor, far: int) -> FocusedEntries | None:
        """Of a question that was asked: what stood out, and all that is not far yet or not in the source.

        Args:
            mass: float32 [source tokens], attention that its tokens gave.
            source: int32 [E], the source position of every entry, negative for what is not in the source.
            far: of the entries, those that are behind the window when the question comes.
        """
        found = _found(mass, source, far, MOST + 1)
        if not found or (len(found) > MOST and found[0].weight < AHEAD * found[MOST].weight):
            return None
        return FocusedEntries._on(
            [each for each in found[:MOST] if each.weight >= BESIDE * found[0].weight], source, far
        )

    @staticmethod
    def close(mass: Tensor, source: Tensor, far: int) -> FocusedEntries | None:
        """The same of the best `CLOSE` passages, whether they stand out or not; None if nothing got any attention."""
        found = _found(mass, source, far, CLOSE)
        return FocusedEntries._on(found, source, far) if found else None

    @staticmethod
    def named(tokens: Tensor, source: Tensor, far: int) -> FocusedEntries:
        """The same of these tokens of the source, int64 [N]."""
        return FocusedEntries._of(torch.isin(source, tokens), source, far)

    @staticmethod
    def _on(found: list[Passage], source: Tensor, far: int) -> FocusedEntries:
        wanted = torch.zeros(len(source), dtype=torch.bool)
        for passage in found:
            wanted[max(0, passage.start - AROUND) : passage.end + AROUND] = True
        return FocusedEntries._of(wanted, source, far)

    @staticmethod
    def _of(wanted: Tensor, source: Tensor, far: int) -> FocusedEntries:
        wanted = wanted | (source < 0)
        wanted[far:] = True
        return FocusedEntries(wanted.nonzero()[:, 0], len(source))

    def behind(self, far: int) -> Tensor:
        """int64 [N]: the entries to look at when so many are behind the window."""
        late = torch.arange(self.until, max(self.until, far))
        return torch.cat([self.entries[: int(torch.searchsorted(self.entries, far))], late])


@dataclass(frozen=True)
class SecondLook:
    """Where a memory looks while a question is asked and answered.

    again: how often the question is to be asked before it is asked for good; focus: where to look, None for everywhere.
    """

    again: int
    focus: FocusedEntries | None = None

    def after(self, mass: Tensor, source: Tensor, far: int) -> SecondLook:
        """When it has been asked once more; see `FocusedEntries.of`."""
        found = FocusedEntries.of(mass, source, far)
        if found is not None or self.again == 1:
            return SecondLook(0, found)
        close = FocusedEntries.close(mass, source, far)
        return SecondLook(self.again - 1 if close is not None else 0, close)


def _found(mass: Tensor, source: Tensor, far: int, most: int) -> list[Passage]:
    known = source[:far]
    given = torch.where(known >= 0, mass.to(source.device)[known.clamp_min(0).long()], 0.0)
    return passages(given, most, least=0.0)
