"""Entries that are kept, moved to slots of their own: gathered, turned to their new positions, laid out."""

from __future__ import annotations

from torch import Tensor

from kernels import choice
from kernels.gathering import reference
from kernels.gathering.reference import Room
from kernels.rows import Slabs, reachable

__all__ = ["Room", "gather"]


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: Room) -> None:
    """See `reference.gather`; by Triton where that is the choice and it can reach the slabs."""
    if choice.implementation() == "triton" and reachable([*keys, *values], index):
        from kernels.gathering import kernel  # Triton is optional

        kernel.gather(keys, values, index, cos, sin, room)
        return
    reference.gather(keys, values, index, cos, sin, room)
