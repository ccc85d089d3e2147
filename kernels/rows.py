"""Rows of keys or values that lie in several slabs, one behind the other.

Row i of a bank is row i - n of the slab that begins at row n. Sizes: H KV heads, N rows asked for, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Slabs = Sequence[tuple[Tensor, int]]  # [H, capacity, D] contiguous, and how many rows of it count


def take(slabs: Slabs, index: Tensor) -> Tensor:
    """Rows [H, N, D] of every head's own index [H, N], int64 within the bank."""
    heads, size = slabs[0][0].shape[0], slabs[0][0].shape[2]
    if len(slabs) == 1:
        return _flat(slabs[0][0]).index_select(0, _flat_index(slabs[0][0], index)).view(heads, -1, size)
    rows = slabs[0][0].new_empty(index.numel(), size)
    at = 0
    for slab, length in slabs:
        here = ((index >= at) & (index < at + length)).view(-1).nonzero()[:, 0]
        if len(here):
            places = _flat_index(slab, index - at)[here]
            rows.index_copy_(0, here, _flat(slab).index_select(0, places))
        at += length
    return rows.view(heads, -1, size)


def take_same(slabs: Slabs, index: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows [H, N, D] of one index [N] for all heads, int64 within the bank, where the index is and in that dtype.

    Slabs may be of several dtypes and on several devices.
    """
    heads, size = slabs[0][0].shape[0], slabs[0][0].shape[2]
    rows = torch.empty(heads, len(index), size, dtype=dtype, device=index.device)
    at = 0
    for slab, length in slabs:
        here = ((index >= at) & (index < at + length)).nonzero()[:, 0]
        if len(here) == len(index):
            return slab.index_select(1, (index - at).to(slab.device)).to(index.device, dtype)
        if len(here):
            found = slab.index_select(1, (index[here] - at).to(slab.device))
            rows.index_copy_(1, here, found.to(index.device, dtype))
        at += length
    return rows


def _flat(slab: Tensor) -> Tensor:
    return slab.view(-1, slab.shape[2])


def _flat_index(slab: Tensor, index: Tensor) -> Tensor:
    head = torch.arange(index.shape[0], device=index.device)[:, None]
    return (index + head * slab.shape[1]).reshape(-1)
