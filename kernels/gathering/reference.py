"""Gathering of entries, in float32: the reference for the other implementations.

Sizes: H KV heads, M gathered entries, D head size, R rotated width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.gathering.buffers import EntryBuffers
from kernels.rotation import rotate
from kernels.rows import Slabs, dense


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, buffers: EntryBuffers) -> None:
    """Write the first M rows of `buffers`: row m of a head is entry index[m] of that head, rotated to position m.

    Args:
        keys: slabs [H, capacity, D], before RoPE, in the dtype of the buffers.
        values: slabs of the same shape.
        index: int64 [H, M].
        cos: [M, R/2], cosines of the rotation to positions 0, 1, 2, ...
        sin: [M, R/2], its sines.
        buffers: buffers to write; rows from M on are left unchanged.
    """
    count, wide = index.shape[1], torch.promote_types(buffers.keys.dtype, torch.float32)
    found = gather_rows(keys, index, index.device, wide)
    buffers.keys[:, :count] = found
    buffers.rotated[:, :count] = rotate(found, cos, sin)
    if len(buffers.values):
        buffers.values[:, :count] = gather_rows(values, index, index.device, wide)


def gather_rows(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return rows [H, M, D] of an index int64 [H, M], counted over all slabs, on this device and in this dtype."""
    rows = dense(slabs, torch.promote_types(dtype, torch.float32))  # [H, N, D]
    head = torch.arange(len(rows), device=rows.device)[:, None]
    return rows[head, index.to(rows.device)].to(device, dtype)
