"""MXFP4 in plain PyTorch: the reference for the other implementations.

A weight has four bits: sign, two of exponent, one of mantissa. Each 32 weights of a row share a power of two. Source:
the OCP Microscaling Formats specification 1.0, sections 5.2 and 5.4.1 (elements E2M1, scales E8M0).
Sizes: E matrices (experts) of R rows and C columns, K chosen ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32  # weights that share a scale
ELEMENTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of codes 0 to 7; 8 to 15 are their negatives


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the dequantised weights [K, R, C] in `dtype`.

    Args:
        blocks: uint8 [E, R, C / 32, 16], codes of 32 weights; the first of two is in the low half of a byte.
        scales: uint8 [E, R, C / 32], exponent of two plus 127; 255 is NaN.
        which: int64 [K], chosen matrices; None for all in order.
        dtype: of the weights returned.
    """
    if which is not None:
        blocks, scales = blocks[which], scales[which]
    elements = torch.tensor([*ELEMENTS, *(-each for each in ELEMENTS)], dtype=torch.float64, device=blocks.device)
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(3)  # [K, R, C / 32, 32]
    power = torch.exp2(scales.double() - 127).masked_fill(scales == 255, float("nan"))
    return (elements[codes.int()] * power[..., None]).flatten(2).to(dtype)


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """Return [K, R]: matrix which[k] times x[k], in the dtype of x.

    Args:
        x: [K, C].
        blocks: as in `unpack`.
        scales: as in `unpack`.
        which: int64 [K].
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.einsum("krc,kc->kr", unpack(blocks, scales, which, wide), x.to(wide)).to(x.dtype)
