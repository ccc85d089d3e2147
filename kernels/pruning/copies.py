"""Copies on the device of keys that lie elsewhere, for pruning. Sizes: H KV heads, NB query blocks, C chunks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernels.rows import Bank


@dataclass(frozen=True)
class Copies:
    """Keys that are read instead of equal ones in slabs.

    Attributes:
        every: a power of two: row i of `keys` is row i * every of the slabs.
        count: first rows of the slabs that `keys` was copied from.
        keys: [H, count / every, D], rounded up. If quantised, scales are those of the slabs.
        units: copies of whole chunks, or None.
        places: int64 [NB, C], row of `units` where each chunk begins, `kernels.bank.NOWHERE` or more without one.
    """

    every: int
    count: int
    keys: Bank
    units: Bank | None = None
    places: Tensor | None = None

    @property
    def banks(self) -> tuple[Bank, ...]:
        """All copies."""
        return (self.keys,) if self.units is None else (self.keys, self.units)
