"""Quantisation of keys or values to 8, 4 or 2 bits, with one scale for each group of rows of a KV head.

Not here: the choice of groups, and the normalisation before it; that is `kernels/rows.py` and the engine.
"""

from kernels.choice import dispatched
from kernels.quantise import reference
from kernels.quantise.kinds import KINDS, SHARING, stored, width
from kernels.quantise.torch_impl import products, unpack

__all__ = ["KINDS", "SHARING", "dequantise", "products", "quantise", "stored", "unpack", "width"]

quantise = dispatched(reference.quantise, device="x")
dequantise = dispatched(reference.dequantise, device="codes")
