"""Gathering of entries: copy selected rows into new slots and rotate them to their new positions, or copy them
unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.gathering import reference
from kernels.gathering.reference import Room
from kernels.rows import Slabs, reachable

__all__ = ["Room", "gather", "taken"]


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: Room) -> None:
    """Run `reference.gather`, in Triton if it is chosen and can read the slabs."""
    if choice.by_triton(index.device) and reachable([*keys, *values], index):
        from kernels.gathering import kernel  # Triton is optional

        kernel.gather(keys, values, index, cos, sin, room)
        return
    reference.gather(keys, values, index, cos, sin, room)


def taken(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return `reference.taken`, in Triton if it is chosen and the device can read the slabs."""
    if choice.by_triton(device):
        sent = index.to(device, non_blocking=True)
        if reachable(slabs, sent):
            from kernels.gathering import kernel  # Triton is optional

            return kernel.taken(slabs, sent, device, dtype)
    return reference.taken(slabs, index, device, dtype)
