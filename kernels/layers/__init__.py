"""The small steps of a transformer's layer as one kernel each: norms, gates, RoPE, and what surrounds attention.

Not here: which modules of a network they stand for (`engine/models/fusing.py`), and positions.
"""

from kernels.choice import dispatched
from kernels.layers import reference

__all__ = ["append", "gated", "merge", "rms_norm", "turn"]

rms_norm = dispatched(reference.rms_norm, device="x")
gated = dispatched(reference.gated, device="x")
turn = dispatched(reference.turn, device="x")
append = dispatched(reference.append, device="k")
merge = dispatched(reference.merge, device="first")
