"""`tova`: keeps the entries that the last token attends to (https://arxiv.org/abs/2401.06104). Nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.methods.scored import ScoredMethod
from engine.models.spec import ModelSpec
from engine.parts.evictors.last_attention import LastAttentionEvictor
from engine.parts.slots import SlotStore


@dataclass(frozen=True, kw_only=True)
class Tova(ScoredMethod):
    """Evict the entries that the last token of a chunk attends to least, averaged over heads."""

    name: ClassVar[str] = "tova"
    family: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "A fixed memory of what the latest token attends to; needs no training."

    pooling: int = 1

    def new_evictor(self, spec: ModelSpec, store: SlotStore) -> LastAttentionEvictor:
        """Return an evictor that lets the last token judge."""
        return LastAttentionEvictor(store, self.eviction)
