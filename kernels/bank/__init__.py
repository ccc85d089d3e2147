"""A bank of units on the device: units of consecutive rows of slabs, looked up through a table, fetched where missing.

Not here: the choice of units, and who owns a bank; that is the engine's.
"""

from kernels.bank import reference
from kernels.bank.state import NOWHERE, UnitBank, unit_bytes, units_bytes
from kernels.choice import dispatched

__all__ = ["NOWHERE", "UnitBank", "bring", "unit_bytes", "units_bytes"]

bring = dispatched(reference.bring, device="starts", slabs=("keys", "values"))
