"""What a CUDA graph can record of a memory: see `graphs.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.memories.slots import SlotMemory
    from engine.memories.window import WindowMemory

M = TypeVar("M", bound="SlotMemory | WindowMemory")


class StaticPass(ABC, Generic[M]):
    """Attention of one token over a memory, in shapes and at addresses that do not change with it."""

    def __init__(self, memory: M) -> None:
        """Over what holds its entries now, which must not be replaced."""
        self.memory = cast(M, memory.snapshot())
        self.memory.recordings = {}  # over what is no longer used
        self.length = torch.zeros(1, dtype=torch.int64, device=memory.spec.device)  # own entries

    def move_to(self, memory: M) -> None:
        """The next token stands behind all that the memory holds, which has begun its pass."""
        self.length.fill_(memory.length)

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """Attention output [HQ, 1, D] for q [HQ, 1, D] and k, v [H, 1, D], all before RoPE."""

    def over(self, memory: M) -> None:
        """What the pass has found out beside its output is the memory's, before its `commit`."""
