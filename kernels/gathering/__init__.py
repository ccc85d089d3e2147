"""Entries gathered: moved to slots of their own, turned to their new positions and laid out; or as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.gathering import reference
from kernels.gathering.reference import Room
from kernels.rows import Slabs, reachable

__all__ = ["Room", "gather", "taken"]


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: Room) -> None:
    """See `reference.gather`; by Triton where that is the choice and it can reach the slabs."""
    if choice.by_triton(index.device) and reachable([*keys, *values], index):
        from kernels.gathering import kernel  # Triton is optional

        kernel.gather(keys, values, index, cos, sin, room)
        return
    reference.gather(keys, values, index, cos, sin, room)


def taken(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """See `reference.taken`; by Triton where that is the choice and it can reach the slabs from the device."""
    if choice.by_triton(device):
        sent = index.to(device, non_blocking=True)
        if reachable(slabs, sent):
            from kernels.gathering import kernel  # Triton is optional

            return kernel.taken(slabs, sent, device, dtype)
    return reference.taken(slabs, index, device, dtype)
