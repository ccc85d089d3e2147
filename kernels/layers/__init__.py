"""The small steps of a transformer's layer as one kernel each: norms, and the product of an MLP's gate.

Not here: which modules of a network they stand for (`engine/models/fusing.py`).
"""

from kernels.choice import dispatched
from kernels.layers import reference

__all__ = ["gated", "rms_norm"]

rms_norm = dispatched(reference.rms_norm, device="x")
gated = dispatched(reference.gated, device="x")
