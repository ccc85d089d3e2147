"""Column sums of attention probabilities: the attention each key gets, without the full [T, N] matrix."""

from __future__ import annotations

from torch import Tensor

from kernels import choice
from kernels.attention.reference import BlockTable, VisibleRange
from kernels.columns import reference
from kernels.rows import Slabs, reachable

__all__ = ["column_sums"]


def column_sums(
    q: Tensor,
    keys: Slabs,
    span: VisibleRange,
    lists: BlockTable | None,
    total: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """Compute `reference.column_sums`, in Triton if it is chosen and can read the slabs."""
    if choice.uses_triton(q.device) and reachable(keys, q):
        from kernels.columns import kernel  # Triton is optional

        return kernel.column_sums(q, keys, span, lists, total, scaling, softcap)
    return reference.column_sums(q, keys, span, lists, total, scaling, softcap)
