"""Second looks: a question is asked twice, the second time only over the passages with most of its attention.

Among very many entries, a question's tokens still give most of their far attention to the passage that answers it. But
each head also selects similar passages of its own, and the answer mixes them all. So a method that keeps everything may
ask twice, and restrict the second pass to the passages that stood out in the first. If none stands out (a question
about the whole text), everything is searched as before. Where a method selects so coarsely that often none can stand
out, a pass over more of the best passages may come in between.

Entries are those of the host tier. Sizes: E of them, N selected.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.parts.sources import REACH, passages
from engine.records import Passage

MOST = 3  # passages that stand out at most
AHEAD = 3.0  # least ratio of the best passage's attention to that of the passage after these
BESIDE = 0.25  # least share of the best passage's attention; passages with less are look-alikes
CLOSE = 16  # passages of the pass in between, if none stands out
AROUND = 64  # tokens added to each side of a passage, since facts are spread over neighbouring sentences
WIDEST = MOST * (2 * REACH + 1 + 2 * AROUND)  # most entries that may stand out; with fewer, one pass is enough


@dataclass(frozen=True)
class FocusedEntries:
    """Entries that may be looked up.

    Attributes:
        entries: int64 [N], ascending.
        until: number of entries at that time; later ones may always be looked up.
    """

    entries: Tensor
    until: int

    @staticmethod
    def of(mass: Tensor, source: Tensor, far: int) -> FocusedEntries | None:
        """Select the passages that stood out in a question, with all entries that are near or not of the text.

        Args:
            mass: float32 [source tokens], the attention of the question's tokens.
            source: int32 [E], the source position of every entry, negative for entries that are not of the text.
            far: number of entries behind the window when the question comes.

        Returns:
            The entries, or None if no passage stood out.
        """
        found = _found(mass, source, far, MOST + 1)
        if not found or (len(found) > MOST and found[0].weight < AHEAD * found[MOST].weight):
            return None
        return FocusedEntries._on(
            [each for each in found[:MOST] if each.weight >= BESIDE * found[0].weight], source, far
        )

    @staticmethod
    def close(mass: Tensor, source: Tensor, far: int) -> FocusedEntries | None:
        """Select the best `CLOSE` passages, whether they stand out or not; None if none got attention."""
        found = _found(mass, source, far, CLOSE)
        return FocusedEntries._on(found, source, far) if found else None

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
        """Return the entries to look up when `far` entries are behind the window, int64 [N]."""
        late = torch.arange(self.until, max(self.until, far))
        return torch.cat([self.entries[: int(torch.searchsorted(self.entries, far))], late])


@dataclass(frozen=True)
class SecondLook:
    """State of a question that may be asked several times.

    Attributes:
        again: how often it is still asked before it is answered.
        focus: entries to look up, None for all.
    """

    again: int
    focus: FocusedEntries | None = None

    def after(self, mass: Tensor, source: Tensor, far: int) -> SecondLook:
        """Return the state after one more pass over the question; see `FocusedEntries.of`."""
        found = FocusedEntries.of(mass, source, far)
        if found is not None or self.again == 1:
            return SecondLook(0, found)
        close = FocusedEntries.close(mass, source, far)
        return SecondLook(self.again - 1 if close is not None else 0, close)


def _found(mass: Tensor, source: Tensor, far: int, most: int) -> list[Passage]:
    known = source[:far]
    given = torch.where(known >= 0, mass.to(source.device)[known.clamp_min(0).long()], 0.0)
    return passages(given, most, least=0.0)
