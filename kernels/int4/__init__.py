"""Weights of 4 bits in the layout of PyTorch's product on a GPU, unpacked for products with many rows.

Not here: quantising them, and PyTorch's own packing and product (`engine/models/integers.py`).
"""

from kernels.choice import dispatched
from kernels.int4 import reference

__all__ = ["unpack"]

unpack = dispatched(reference.unpack, device="codes")
