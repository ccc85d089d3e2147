"""MXFP4 in plain PyTorch; also what the engine runs on a CPU.

A weight is four bits: a sign, two of an exponent, one of a mantissa. 32 in a row share a power of two. Source: the OCP
Microscaling Formats specification 1.0, sections 5.2 and 5.4.1 (elements E2M1, scales E8M0). Sizes: E matrices of R rows
and C columns, K of them chosen.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

GROUP = 32  # weights that share a scale


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Weights [K, R, C] in dtype.

    Args:
        blocks: uint8 [E, R, C / 32, 16]: the codes of 32 weights, the first of two in the low half of a byte.
        scales: uint8 [E, R, C / 32]: of each 32 the exponent of two, 127 more; 255 stands for no number.
        which: int64 [K], the matrices; None for all, in their order.
    """
    if which is not None:
        blocks, scales = blocks.index_select(0, which), scales.index_select(0, which)
    pairs, powers = _pairs(dtype, blocks.device), _powers(dtype, blocks.device)
    weight = pairs.index_select(0, blocks.reshape(-1).int()).view(dtype).view(*scales.shape, GROUP)
    return weight.mul_(powers.index_select(0, scales.reshape(-1).int()).view(*scales.shape, 1)).flatten(2)


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """[K, R]: matrix which[k], int64 [K], times x[k], in the dtype of x [K, C]; blocks, scales: as in `unpack`."""
    return (unpack(blocks, scales, which, x.dtype) @ x[..., None])[..., 0]


@cache
def _pairs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """[256]: the two weights of each byte, as one number of their size together: so they are looked up at once."""
    half = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=dtype)
    weights, byte = torch.cat([half, -half]), torch.arange(256)
    pairs = torch.stack([weights[byte & 15], weights[byte >> 4]], dim=1)
    wide = {2: torch.int32, 4: torch.int64, 8: torch.complex128}[dtype.itemsize]
    return pairs.view(wide)[:, 0].to(device)


@cache
def _powers(dtype: torch.dtype, device: torch.device) -> Tensor:
    """[256]: what each byte of the scales stands for."""
    return torch.tensor([*(2.0 ** (byte - 127) for byte in range(255)), math.nan], dtype=dtype, device=device)
