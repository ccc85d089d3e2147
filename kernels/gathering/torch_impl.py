"""Gathering of entries in PyTorch, for CPUs. Signatures and meaning are those of `reference`."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.gathering.buffers import EntryBuffers
from kernels.rotation import rotate
from kernels.rows import Slabs, take, to_device


def gather(keys: Slabs, values: Slabs, index: Tensor, cos: Tensor, sin: Tensor, buffers: EntryBuffers) -> None:
    """Run `reference.gather` on rows in their own dtype."""
    count = index.shape[1]
    found = take(keys, index)
    buffers.keys[:, :count] = found
    buffers.rotated[:, :count] = rotate(found, cos, sin)
    if len(buffers.values):
        buffers.values[:, :count] = take(values, index)


def gather_rows(slabs: Slabs, index: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return `reference.gather_rows`. An index on the device of the slabs avoids a copy."""
    return to_device(take(slabs, index.to(slabs[0][0].device)), device).to(dtype)
