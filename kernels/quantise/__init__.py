"""Pages of keys or values in 8 or 4 bits: one scale for the rows that one KV head has on one page.

Not here: which rows make a page, and what is done to them before; that is `kernels/rows.py` and the engine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.quantise import reference
from kernels.quantise.reference import KINDS, SHARING, products, stored, unpack, width

__all__ = ["KINDS", "SHARING", "dequantise", "products", "quantise", "stored", "unpack", "width"]


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """See `reference.quantise`; by Triton where that is the choice."""
    if choice.by_triton(x.device):
        from kernels.quantise import kernel  # Triton is optional

        return kernel.quantise(x, kind)
    return reference.quantise(x, kind)


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """See `reference.dequantise`; by Triton where that is the choice."""
    if choice.by_triton(codes.device):
        from kernels.quantise import kernel  # Triton is optional

        return kernel.dequantise(codes, scale, kind, dtype)
    return reference.dequantise(codes, scale, kind, dtype)
