"""The keys of memory units (`units.py`), and the tensors of a pass that looks them up at fixed addresses.

Sizes: U and N units, H KV heads, D head size, NB blocks of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FIT_BYTES = 64 << 20  # of units' keys in float32 at a time


class Units:
    """The memory units of one layer: their representatives' keys before RoPE, summed, [U, H * D]."""

    def __init__(self, shared: Tensor) -> None:
        """shared: [U, H * D], units of a context, never written."""
        self.shared = shared
        self.own = shared.new_empty(0, shared.shape[1])
        self.count = 0  # own units

    @property
    def total(self) -> int:
        """Units, shared ones included."""
        return len(self.shared) + self.count

    def reserve(self, units: int) -> None:
        """Make room for `units` own units."""
        grown = self.own.new_empty(units, self.own.shape[1])
        grown[: self.count] = self.own[: self.count]
        self.own = grown

    def make_room(self, more: int) -> None:
        """Grow, by doubling, until `more` units fit behind those that there are."""
        end = self.count + more
        if end > len(self.own):
            self.reserve(max(end, 2 * len(self.own), 64))

    def append(self, rows: Tensor) -> None:
        """Add units [N, H * D]."""
        self.make_room(len(rows))
        end = self.count + len(rows)
        self.own[self.count : end] = rows
        self.count = end

    def fit(self, queries: Tensor, fresh: Tensor | None) -> Tensor:
        """Return dot products float32 [NB, U + N] of queries [NB, H * D] with all units and N that are to be added.

        fresh: [N, H * D]; None to compare all the room there is instead, so that shapes stay the same.
        """
        step = max(1, FIT_BYTES // (4 * queries.shape[1]))
        own = (self.own,) if fresh is None else (self.own[: self.count], fresh)
        every = [part for rows in (self.shared, *own) if len(rows) for part in torch.split(rows, step)]
        fits = [queries.float() @ rows.float().T for rows in every or [self.shared]]
        return fits[0] if len(fits) == 1 else torch.cat(fits, dim=1)

    def fork(self) -> Units:
        """Return units of a conversation's own behind these."""
        assert len(self.shared) == 0, "a conversation is a fork of a context, not of another conversation"
        return Units(self.own[: self.count])


@dataclass(frozen=True)
class FixedUnits:
    """Tensors of a fixed pass, at addresses that stay. Lo layers look far; the window's buffer has `capacity` rows.

    Attributes:
        facts: int64 [4 + size]: complete units; the row of the next one; its first entry; the last entry behind the
            window; the buffer's rows of its entries, `capacity` for those that have left the buffer.
        known: float32 [Lo, size], scores of these entries before the pass.
        added: float32 [Lo, capacity + 1], what the pass adds to the scores, by the buffer's rows; the last stays 0.
        share: float32 [capacity], the share of a product that counts for each row.
    """

    facts: Tensor
    known: Tensor
    added: Tensor
    share: Tensor

    @staticmethod
    def empty(layers: int, size: int, capacity: int, device: torch.device) -> FixedUnits:
        """Return tensors of these sizes."""
        known, added = torch.zeros(layers, size, device=device), torch.zeros(layers, capacity + 1, device=device)
        facts = torch.zeros(4 + size, dtype=torch.int64, device=device)
        return FixedUnits(facts, known, added, torch.zeros(capacity, device=device))
