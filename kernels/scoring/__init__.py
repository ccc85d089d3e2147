"""Dot products of queries with quantised rows (8, 4 or 2 bits), without writing the dequantised rows.

Not here: the normalisation of rows before quantisation; that is `kernels/rows.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import choice
from kernels.scoring import reference

__all__ = ["scores"]


def scores(
    q: Tensor, codes: Tensor, scale: Tensor, shift: Tensor, kind: torch.dtype, wide: torch.dtype, out: Tensor
) -> None:
    """Run `reference.scores`, in Triton if it is chosen."""
    if choice.uses_triton(q.device):
        from kernels.scoring import kernel  # Triton is optional

        kernel.scores(q, codes, scale, shift, kind, wide, out)
        return
    reference.scores(q, codes, scale, shift, kind, wide, out)
