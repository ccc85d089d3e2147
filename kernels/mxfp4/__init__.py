"""Weights in MXFP4: dequantise them, or multiply them with one input row each without dequantising first.

Not here: the layers these weights belong to, and the routing of tokens to experts.
"""

from kernels.choice import dispatched
from kernels.mxfp4 import reference
from kernels.mxfp4.reference import GROUP

__all__ = ["GROUP", "product", "unpack"]

unpack = dispatched(reference.unpack, device="blocks")
product = dispatched(reference.product, device="x")
