"""Dot products with quantised rows in PyTorch, for CPUs. Signature and meaning are those of `reference`."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import quantise

STEP = 4096  # rows dequantised at a time, to fit the cache of a core; whole groups
GPU_STEP = 32768  # the same for a GPU, to bound its memory


def scores(
    q: Tensor, codes: Tensor, scale: Tensor, shift: Tensor, kind: torch.dtype, wide: torch.dtype, out: Tensor
) -> None:
    """Run `reference.scores` in steps; the scale of each group is applied to the products."""
    count, group = out.shape[2], codes.shape[1] // scale.shape[1]
    step = STEP if q.device.type == "cpu" else GPU_STEP
    for at in range(0, count, step):
        end = min(at + step, count)
        if q.device.type == "cpu":
            found = quantise.products(q, codes[:, at:end], kind)
        else:
            found = (q.to(wide) @ quantise.unpack(codes[:, at:end], kind, wide).transpose(1, 2)).float()
        each = scale[:, None, at // group : -(-end // group)].repeat_interleave(group, dim=2)[..., : end - at]
        torch.addcmul(shift[..., None], found, each, out=out[..., at:end])
