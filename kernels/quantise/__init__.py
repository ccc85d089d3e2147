"""Quantisation of keys or values to 8, 4 or 2 bits, with one scale for each group of rows of a KV head.

Not here: the choice of groups, and the normalisation before it; that is `kernels/rows.py` and the engine.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.quantise import reference
from kernels.quantise.reference import KINDS, SHARING, products, stored, unpack, width

__all__ = ["KINDS", "SHARING", "dequantise", "products", "quantise", "stored", "unpack", "width"]


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return `reference.quantise`, in Triton if it is chosen."""
    if choice.uses_triton(x.device):
        from kernels.quantise import kernel  # Triton is optional

        return kernel.quantise(x, kind)
    return reference.quantise(x, kind)


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return `reference.dequantise`, in Triton if it is chosen."""
    if choice.uses_triton(codes.device):
        from kernels.quantise import kernel  # Triton is optional

        return kernel.dequantise(codes, scale, kind, dtype)
    return reference.dequantise(codes, scale, kind, dtype)
