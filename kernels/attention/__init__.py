"""Attention over rows of a bank: all of them, or a list for each block of queries; with its log-sum-exp.

Not here: choosing what is listed, and position rules; that is the engine's.
"""

from __future__ import annotations

from torch import Tensor

from kernels import choice
from kernels.attention import reference
from kernels.attention.reference import Lists, Span
from kernels.rows import Slabs, reachable

__all__ = ["Lists", "Span", "attend"]


def attend(
    q: Tensor,
    keys: Slabs,
    values: Slabs,
    span: Span,
    lists: Lists | None,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """See `reference.attend`; by Triton where that is the choice and it can reach the slabs."""
    if choice.by_triton(q.device) and reachable(keys, q) and reachable(values, q):
        from kernels.attention import kernel  # Triton is optional

        return kernel.attend(q, keys, values, span, lists, scaling, softcap)
    return reference.attend(q, keys, values, span, lists, scaling, softcap)
