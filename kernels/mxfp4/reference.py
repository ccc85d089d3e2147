"""MXFP4 in plain PyTorch; the CPU implementation.

A weight has four bits: sign, two of exponent, one of mantissa. Each 32 weights of a row share a power of two. Source:
the OCP Microscaling Formats specification 1.0, sections 5.2 and 5.4.1 (elements E2M1, scales E8M0).
Sizes: E matrices (experts) of R rows and C columns, K chosen ones.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

GROUP = 32  # weights that share a scale


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the dequantised weights [K, R, C] in `dtype`.

    Args:
        blocks: uint8 [E, R, C / 32, 16], codes of 32 weights; the first of two is in the low half of a byte.
        scales: uint8 [E, R, C / 32], exponent of two plus 127; 255 is NaN.
        which: int64 [K], chosen matrices; None for all in order.
    """
    if which is not None:
        blocks, scales = blocks.index_select(0, which), scales.index_select(0, which)
    pairs, powers = _pairs(dtype, blocks.device), _powers(dtype, blocks.device)
    weight = pairs.index_select(0, blocks.reshape(-1).int()).view(dtype).view(*scales.shape, GROUP)
    return weight.mul_(powers.index_select(0, scales.reshape(-1).int()).view(*scales.shape, 1)).flatten(2)


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """Return [K, R]: matrix which[k] times x[k], in the dtype of x.

    Args:
        x: [K, C].
        blocks, scales: as in `unpack`.
        which: int64 [K].
    """
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
