"""The second look: a question is asked twice, the second time only of the passages that it looked at most.

Among very many entries a question's tokens still give most of their far attention to the passage that answers it, but
each head also brings in the look-alikes that it likes best, and the answer is made of them all. So a method that keeps
everything may ask twice: after the first time, what has stood out is where the second time may look. Where nothing
stands out (a question about the whole text), everything is looked at as before.

Entries are those of the host tier; E of them, N chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.sources import REACH, passages

MOST = 3  # passages that may stand out
AHEAD = 3.0  # the best stands out if it got so many times what the next after those got
BESIDE = 0.25  # of the best one's attention, for others to stand beside it; less is a look-alike
AROUND = 64  # tokens to each side of what was looked at: what a text says of a thing is spread over its neighbours
WIDEST = MOST * (2 * REACH + 1 + 2 * AROUND)  # entries that may stand out together; among fewer, one look is enough


@dataclass(frozen=True)
class Focus:
    """Where to look.

    entries: int64 [N], ascending; until: how many entries there were. What has come since is always looked at.
    """

    entries: Tensor
    until: int

    @staticmethod
    def of(mass: Tensor, source: Tensor, far: int) -> Focus | None:
        """Of a question that was asked: what stood out, and all that is not far yet or not in the source.

        Args:
            mass: float32 [source tokens], attention that its tokens gave.
            source: int32 [E], the source position of every entry, negative for what is not in the source.
            far: of the entries, those that are behind the window when the question comes.
        """
        known = source[:far]
        given = torch.where(known >= 0, mass.to(source.device)[known.clamp_min(0).long()], 0.0)
        found = passages(given, MOST + 1, least=0.0)
        if not found or (len(found) > MOST and found[0].weight < AHEAD * found[MOST].weight):
            return None
        wanted = source < 0
        wanted[far:] = True
        for passage in found[:MOST]:
            if passage.weight >= BESIDE * found[0].weight:
                wanted[max(0, passage.start - AROUND) : passage.end + AROUND] = True
        return Focus(wanted.nonzero()[:, 0], len(source))

    def behind(self, far: int) -> Tensor:
        """int64 [N]: the entries to look at when so many are behind the window."""
        late = torch.arange(self.until, max(self.until, far))
        return torch.cat([self.entries[: int(torch.searchsorted(self.entries, far))], late])
