"""Dot products with quantised rows, in float32: the reference for the other implementations.

Sizes: H KV heads, R queries of a KV head, N rows, P rows of a quantisation group, D head size, W bytes of a quantised
row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.quantise import unpack


def scores(
    q: Tensor, codes: Tensor, scale: Tensor, shift: Tensor, kind: torch.dtype, wide: torch.dtype, out: Tensor
) -> None:
    """Write the dot products of queries with dequantised rows to `out`, which may be a slice of a tensor.

    Args:
        q: float32 [H, R, D].
        codes: [H, capacity, W], dtype `quantise.stored(kind)`; the first N rows are used.
        scale: float32 [H, capacity / P].
        shift: float32 [H, R], added to all products of a query.
        kind: one of `quantise.KINDS`.
        wide: dtype of the factors on a GPU, float32 or bfloat16 (it holds every code exactly). A CPU uses float32.
        out: float32 [H, R, N], last dimension contiguous.
    """
    count, group_size = out.shape[2], codes.shape[1] // scale.shape[1]
    numbers = unpack(codes[:, :count], kind, q.dtype)  # [H, N, D]
    by_row = scale.repeat_interleave(group_size, dim=1)[:, :count]
    out.copy_(torch.einsum("hrd,hnd,hn->hrn", q, numbers, by_row.to(q.dtype)) + shift[..., None])
