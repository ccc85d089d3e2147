"""One plan: the memory and the time that a reading needs, and the machine that it is made for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.memory_usage import free_bytes
from engine.methods.base import Method
from engine.parts.footprint import Footprint
from engine.planning.rates import Rates


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


@dataclass(frozen=True)
class Plan:
    """The needs of one reading. Times are None if the machine's rates are unknown."""

    method: Method
    quantize: str
    tokens: int
    chunk: int
    footprint: Footprint
    weight_bytes: int
    workspace_bytes: int
    reading_device_bytes: int  # at the peak of the reading
    asking_device_bytes: int  # at the peak of an answer to a question of `QUESTION` tokens
    device_bytes: int  # at most: a question may be as long as a pass
    host_bytes: int
    disk_bytes: int  # while the reading is saved, beside the files of the save before
    device_limit: int
    host_limit: int
    fits: bool
    longest: int | None  # most tokens that would fit with this method; None: no limit
    reading_sec: float | None
    first_token_sec: float | None
    answer_tokens_per_sec: float | None
    lacks: str = ""  # sentence about trained weights that are missing for this model
    possible: bool = True  # the missing weights can exist
    beyond: str = ""  # sentence about attending to more at once than the model was trained for

    @property
    def reading_tokens_per_sec(self) -> float | None:
        """Speed of reading, over the tokens that are read."""
        return min(self.tokens, self.footprint.work.passed) / self.reading_sec if self.reading_sec else None
