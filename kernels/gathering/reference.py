"""Gathering of entries in plain PyTorch; the CPU implementation.

Sizes: H KV heads, M gathered entries, D head size, R rotated width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.rotation import rotate
from kernels.rows import Slabs, take, to_device


@dataclass(frozen=True)
class EntryBuffers:
    """Buffers that gathered entries are written to, [H, capacity, D] each with capacity >= M.

    Attributes:
        keys: keys before RoPE.
        rotated: the same keys after RoPE.
        values: values; 0 heads if keys are also the values.
    """

    keys: Tensor
    rotated: Tensor
    values: Tensor


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: EntryBuffers) -> None:
    """Write the first M rows of `room`: row m of a head is entry index[m] of that head, rotated to position m.

    Args:
        keys, values: slabs [H, capacity, D]; keys before RoPE, in the dtype of the room.
        index: int64 [H, M].
        cos, sin: [M, R/2], rotation to positions 0, 1, 2, ...
        room: buffers to write; rows from M on are left unchanged.
    """
    count = index.shape[1]
    found = take(keys, index)
    room.keys[:, :count] = found
    room.rotated[:, :count] = rotate(found, cos, sin)
    if len(room.values):
        room.values[:, :count] = take(values, index)


def gather_rows(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return rows [H, M, D] of an index int64 [H, M], counted over all slabs, on this device and in this dtype.

    An index on the device of the slabs avoids a copy.
    """
    return to_device(take(slabs, index.to(slabs[0][0].device)), device).to(dtype)
