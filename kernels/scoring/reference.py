"""Scores of rows in codes in plain PyTorch; also what the engine runs on a CPU.

Sizes: H KV heads, R queries that share one, N rows, P rows that share a scale, D head size, W bytes of a row's codes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import quantise

STEP = 4096  # rows that become numbers at a time, so that a core's cache holds these; whole pages
GPU_STEP = 32768  # and so that a GPU's memory does


def scores(
    q: Tensor, codes: Tensor, scale: Tensor, shift: Tensor, kind: torch.dtype, wide: torch.dtype, out: Tensor
) -> None:
    """Write dot products of queries with the numbers that codes stand for to `out`, which may be part of a tensor.

    Args:
        q: float32 [H, R, D].
        codes: [H, capacity, W], of `quantise.stored(kind)`; the first N rows count.
        scale: float32 [H, capacity / P].
        shift: float32 [H, R], added to all products of a query.
        kind: one of `quantise.KINDS`.
        wide: what is multiplied on a GPU, float32 or bfloat16, which holds every code; a CPU multiplies in float32.
        out: float32 [H, R, N], its last dimension contiguous.
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
