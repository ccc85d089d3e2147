"""Softmax attention with log-sum-exp over rows of slabs: all rows, or a list of rows for each block of queries.

Not here: the choice of listed rows and their positions; that is the engine's.
"""

from __future__ import annotations

from torch import Tensor

from kernels import choice
from kernels.attention import reference
from kernels.attention.reference import BlockTable, VisibleRange
from kernels.rows import Slabs, reachable

__all__ = ["BlockTable", "VisibleRange", "attend"]


def attend(
    q: Tensor,
    keys: Slabs,
    values: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `reference.attend`, in Triton if it is chosen and can read the slabs."""
    if choice.uses_triton(q.device) and reachable(keys, q) and reachable(values, q):
        from kernels.attention import kernel  # Triton is optional

        return kernel.attend(q, keys, values, span, lists, scaling, softcap)
    return reference.attend(q, keys, values, span, lists, scaling, softcap)
