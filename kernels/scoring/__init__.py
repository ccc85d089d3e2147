"""Dot products of queries with quantised rows (8, 4 or 2 bits), without writing the dequantised rows.

Not here: the normalisation of rows before quantisation; that is `kernels/rows.py`.
"""

from kernels.choice import dispatched
from kernels.scoring import reference

__all__ = ["scores"]

scores = dispatched(reference.scores, device="q")
