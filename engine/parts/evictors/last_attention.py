"""TOVA's eviction: the entries that the last token attends to least are evicted.

Source: Transformers are Multi-State RNNs (https://arxiv.org/abs/2401.06104), section 3.2. The paper evicts one entry a
step; here the last token of a chunk judges all entries at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from engine.parts.evictors.scored import ScoredEvictor
from engine.parts.slots import SlotStore
from engine.parts.store import Store


class LastAttentionEvictor(ScoredEvictor):
    """Scores are the attention of the last token before an eviction, averaged over the heads of a layer."""

    def __init__(self, store: SlotStore, settings: Mapping[str, Any]) -> None:
        """Evict from these slots. settings: those of `ScoredEvictor`."""
        super().__init__(store, settings)
        self.attention: dict[int, Tensor] = {}  # of each slots [N], of the last token that was observed

    def observed(self, tokens: int) -> int:
        """Return 1 for a pass that fills the store, because its last token judges, else 0."""
        return int(self.budget is not None and tokens == self.room())

    def observe(self, number: int, attention: Tensor) -> None:
        """Keep the last token's attention."""
        self.attention[number] = attention.mean(dim=0)

    def recordable(self) -> bool:
        """Tell whether nobody observes the token."""
        return super().recordable() and not self.observed(self.store.tokens)

    def score(self, number: int) -> Tensor:
        """Return the last token's attention, the same for all heads; what came after it was not judged and stays."""
        held, device = self.store.held(number), self.store.spec.device
        score = torch.arange(1, held + 1, dtype=torch.float32, device=device)  # above any attention, newest highest
        known = self.attention.get(number, score[:0])
        score[: len(known)] = known
        return score.repeat(self.store.heads[number].kv_heads, 1)

    def evict(self) -> None:
        """Evict, and forget what the last token attended to."""
        super().evict()
        self.attention = {}

    def fork(self, store: Store) -> Self:
        """Return an evictor whose observations are its own."""
        child = super().fork(store)
        child.attention = dict(self.attention)
        return child

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return where in the chunk the store stands, and what the last token attended to."""
        tensors, meta = super().state()
        return {**tensors, **{f"{number}.attention": given for number, given in self.attention.items()}}, meta

    def load(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Take back what `state` returned."""
        super().load(tensors, meta)
        device = self.store.spec.device
        self.attention = {int(name.split(".")[0]): given.to(device) for name, given in tensors.items()}
