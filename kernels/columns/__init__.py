"""Column sums of attention probabilities: the attention each key gets, without the full [T, N] matrix."""

from kernels.choice import dispatched
from kernels.columns import reference

__all__ = ["column_sums"]

column_sums = dispatched(reference.column_sums, device="q", slabs=("keys",))
