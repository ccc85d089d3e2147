"""Weights in MXFP4: dequantise them, or multiply them with one input row each without dequantising first.

Not here: the layers these weights belong to, and the routing of tokens to experts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.mxfp4 import reference
from kernels.mxfp4.reference import GROUP

__all__ = ["GROUP", "product", "unpack"]


def unpack(blocks: Tensor, scales: Tensor, which: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return `reference.unpack`, in Triton if it is chosen."""
    if choice.uses_triton(blocks.device):
        from kernels.mxfp4 import kernel  # Triton is optional

        return kernel.unpack(blocks, scales, which, dtype)
    return reference.unpack(blocks, scales, which, dtype)


def product(x: Tensor, blocks: Tensor, scales: Tensor, which: Tensor) -> Tensor:
    """Return `reference.product`, in Triton if it is chosen."""
    if choice.uses_triton(x.device):
        from kernels.mxfp4 import kernel  # Triton is optional

        return kernel.product(x, blocks, scales, which)
    return reference.product(x, blocks, scales, which)
