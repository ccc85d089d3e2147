"""Gathering of entries: copy selected rows into new slots and rotate them to their new positions, or copy them
unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.gathering import reference
from kernels.gathering.reference import EntryBuffers
from kernels.rows import Slabs, reachable

__all__ = ["EntryBuffers", "gather", "gather_rows"]


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: EntryBuffers) -> None:
    """Run `reference.gather`, in Triton if it is chosen and can read the slabs."""
    if choice.uses_triton(index.device) and reachable([*keys, *values], index):
        from kernels.gathering import kernel  # Triton is optional

        kernel.gather(keys, values, index, cos, sin, room)
        return
    reference.gather(keys, values, index, cos, sin, room)


def gather_rows(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return `reference.gather_rows`, in Triton if it is chosen and the device can read the slabs."""
    if choice.uses_triton(device):
        sent = index.to(device, non_blocking=True)
        if reachable(slabs, sent):
            from kernels.gathering import kernel  # Triton is optional

            return kernel.gather_rows(slabs, sent, device, dtype)
    return reference.gather_rows(slabs, index, device, dtype)
