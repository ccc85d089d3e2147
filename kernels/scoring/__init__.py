"""Dot products of queries with rows in codes, which are read as they are: 8, 4 or 2 bits a number.

Not here: what rows are shifted and divided by before they are coded, which is `kernels/rows.py`.
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
    """See `reference.scores`; by Triton where that is the choice."""
    if choice.by_triton(q.device):
        from kernels.scoring import kernel  # Triton is optional

        kernel.scores(q, codes, scale, shift, kind, wide, out)
        return
    reference.scores(q, codes, scale, shift, kind, wide, out)
