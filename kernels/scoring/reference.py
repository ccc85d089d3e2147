"""Dot products with quantised rows in plain PyTorch; the CPU implementation.

Sizes: H KV heads, R queries of a KV head, N rows, P rows of a quantisation group, D head size, W bytes of a quantised
row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import quantise

STEP = 4096  # rows dequantised at a time, to fit the cache of a core; whole groups
GPU_STEP = 32768  # the same for a GPU, to bound its memory


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
    count, page = out.shape[2], codes.shape[1] // scale.shape[1]
    step = STEP if q.device.type == "cpu" else GPU_STEP
    for at in range(0, count, step):
        end = min(at + step, count)
        if q.device.type == "cpu":
            found = quantise.products(q, codes[:, at:end], kind)
        else:
            found = (q.to(wide) @ quantise.unpack(codes[:, at:end], kind, wide).transpose(1, 2)).float()
        each = scale[:, None, at // page : -(-end // page)].repeat_interleave(page, dim=2)[..., : end - at]
        torch.addcmul(shift[..., None], found, each, out=out[..., at:end])
