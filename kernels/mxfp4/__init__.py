"""Weights in MXFP4: unpacked, or multiplied with one row of inputs each as they are.

Not here: whose weights they are, and which of them a token goes through.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.mxfp4 import reference
from kernels.mxfp4.reference import GROUP

__all__ = ["GROUP", "product", "unpack"]


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """See `reference.unpack`; by Triton where that is the choice."""
    if choice.by_triton(blocks.device):
        from kernels.mxfp4 import kernel  # Triton is optional

        return kernel.unpack(blocks, scales, which, dtype)
    return reference.unpack(blocks, scales, which, dtype)


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """See `reference.product`; by Triton where that is the choice."""
    if choice.by_triton(x.device):
        from kernels.mxfp4 import kernel  # Triton is optional

        return kernel.product(x, blocks, scales, which)
    return reference.product(x, blocks, scales, which)
