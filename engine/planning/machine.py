"""The memory, disk and rates of a machine, against which readings are planned."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.memory_usage import free_bytes
from engine.planning.rates import Rates

GPU_BASE = 600 << 20  # bytes of a CUDA context and its libraries


@dataclass(frozen=True)
class Machine:
    """Memory, disk and rates that a reading may use."""

    device: int  # bytes of free memory
    host: int  # bytes of free memory
    shared: bool  # there is no GPU, and both are the same memory, `device`
    rates: Rates | None = None  # None: neither measured nor stated
    base: int = 0  # bytes of the device that its driver takes
    disk: int | None = None  # free bytes for saved readings; None: no limit

    @classmethod
    def now(cls, device: torch.device, rates: Rates | None = None) -> Machine:
        """Return this machine, with the memory that is free at the moment."""
        shared, host = device.type == "cpu", free_bytes(torch.device("cpu"))
        return cls(host if shared else free_bytes(device), host, shared, rates)
