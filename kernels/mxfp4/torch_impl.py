"""MXFP4 in PyTorch, for CPUs. Signatures and meaning are those of `reference`."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from kernels.mxfp4.reference import GROUP


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return `reference.unpack`, by look-up of two weights at once."""
    if which is not None:
        blocks, scales = blocks.index_select(0, which), scales.index_select(0, which)
    pairs, powers = _pairs(dtype, blocks.device), _powers(dtype, blocks.device)
    weight = pairs.index_select(0, blocks.reshape(-1).int()).view(dtype).view(*scales.shape, GROUP)
    return weight.mul_(powers.index_select(0, scales.reshape(-1).int()).view(*scales.shape, 1)).flatten(2)


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """Return `reference.product` of weights dequantised first."""
    return (unpack(blocks, scales, which, x.dtype) @ x[..., None])[..., 0]


@cache
def _pairs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return [256]: the two weights of each byte, stored as one wide number so that one look-up gives both."""
    half = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=dtype)
    weights, byte = torch.cat([half, -half]), torch.arange(256)
    pairs = torch.stack([weights[byte & 15], weights[byte >> 4]], dim=1)
    wide = {2: torch.int32, 4: torch.int64, 8: torch.complex128}[dtype.itemsize]
    return pairs.view(wide)[:, 0].to(device)


@cache
def _powers(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return [256]: the power of two of each scale byte."""
    return torch.tensor([*(2.0 ** (byte - 127) for byte in range(255)), math.nan], dtype=dtype, device=device)
