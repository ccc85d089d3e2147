"""`knorm`: keeps the entries with the shortest keys (https://arxiv.org/abs/2406.11430). Nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from engine.methods.scored import ScoredMethod


@dataclass(frozen=True, kw_only=True)
class KeyNorm(ScoredMethod):
    """Evict the entries with the longest keys. Short keys were found to get much attention.

    Attributes:
        sinks: first entries that are never evicted. Others: see `ScoredMethod`.
    """

    name: ClassVar[str] = "knorm"
    family: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "A fixed memory of the entries with the shortest keys; needs no training."

    sinks: int = 4

    @property
    def spared_sinks(self) -> int:
        """First entries that are never evicted."""
        return self.sinks

    def score(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return minus the norm of each key, float32 [H, T]."""
        norm: Tensor = k.float().norm(dim=-1)
        return -norm
