"""Gathering of entries: copy selected rows into new slots and rotate them to their new positions, or copy them
unchanged.
"""

from kernels.choice import dispatched
from kernels.gathering import reference
from kernels.gathering.buffers import EntryBuffers

__all__ = ["EntryBuffers", "gather", "gather_rows"]

gather = dispatched(reference.gather, device="index", slabs=("keys", "values"))
gather_rows = dispatched(reference.gather_rows, device="device", slabs=("slabs",))
