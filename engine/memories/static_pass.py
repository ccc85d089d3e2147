"""What a CUDA graph can record of a memory: see `graphs.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from engine.models.spec import ModelSpec, Scoring


class Recorded(Protocol):
    """A static pass over a memory, recorded."""

    key: tuple[int, ...]

    def replay(self, ids: Tensor, memory: Any) -> Tensor:
        """The hidden state [1, hidden] after a token, which stands behind all that the memory holds."""


class Growing(Protocol):
    """What a static pass needs of its memory."""

    spec: ModelSpec
    length: int  # own entries, the token's not yet among them
    recordings: dict[int, Recorded]

    def snapshot(self) -> Self:
        """The memory as it is now."""


M = TypeVar("M", bound=Growing)


class StaticPass(ABC, Generic[M]):
    """Attention of one token over a memory, in shapes and at addresses that do not change with it."""

    def __init__(self, memory: M) -> None:
        """Over what holds its entries now, which must not be replaced."""
        self.memory = memory.snapshot()
        self.memory.recordings = {}  # over what is no longer used
        self.length = torch.zeros(1, dtype=torch.int64, device=memory.spec.device)  # own entries

    def move_to(self, memory: M) -> None:
        """The next token stands behind all that the memory holds, which has begun its pass."""
        self.length.fill_(memory.length)

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention output [HQ, 1, D] for q [HQ, 1, D] and k, v [H, 1, D], all before RoPE."""

    def over(self, memory: M) -> None:
        """What the pass has found out beside its output is the memory's, before its `commit`."""
