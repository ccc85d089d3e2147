"""Gathering of kept entries in plain PyTorch; also what the engine runs on a CPU.

Sizes: H KV heads, M entries kept, D head size, R rotated width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.rotation import rotate
from kernels.rows import Slabs, sent, take


@dataclass(frozen=True)
class Room:
    """Where entries go: keys before RoPE, keys after it, values; [H, capacity, D] each, capacity at least M.

    Of values there may be no heads: keys are values too.
    """

    keys: Tensor
    rotated: Tensor
    values: Tensor


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, room: Room) -> None:
    """Write the first M rows of a room: row m of a head is entry index[m] of that head, turned to position m.

    Args:
        keys, values: [H, capacity, D] each, keys before RoPE, in the dtype of the room.
        index: int64 [H, M].
        cos, sin: [M, R/2], what turns a key to position 0, 1, 2, ...
        room: written to; what lies behind its first M rows is left alone.
    """
    count = index.shape[1]
    found = take(keys, index)
    room.keys[:, :count] = found
    room.rotated[:, :count] = rotate(found, cos, sin)
    if len(room.values):
        room.values[:, :count] = take(values, index)


def taken(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Rows [H, M, D] of an index int64 [H, M] into a bank, as they are, in a dtype and on a device.

    The index is best where the slabs are.
    """
    return sent(take(slabs, index.to(slabs[0][0].device)), device).to(dtype)
