"""Softmax attention with log-sum-exp over rows of slabs: all rows, or a list of rows for each block of queries.

Not here: the choice of listed rows and their positions; that is the engine's.
"""

from kernels.attention import reference
from kernels.attention.visible import BlockTable, VisibleRange
from kernels.choice import dispatched

__all__ = ["BlockTable", "VisibleRange", "attend"]

attend = dispatched(reference.attend, device="q", slabs=("keys", "values"))
