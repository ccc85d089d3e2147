"""InfiniPot's evictor: keep entries that a catalyst prompt attends to (CaP) or that were surprising when read (NuC).

Source: InfiniPot (https://arxiv.org/abs/2410.01518), Code 1 of appendix B.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from engine.parts.evictors.base import UNLIMITED, Evictor
from engine.parts.slots import SlotStore, highest, pooled


def spare(budget: int) -> int:
    """Return the entries that are free once a text that did not fit is read, so that a first question need not wait."""
    return min(256, budget // 4)


class CatalystEvictor(Evictor):
    """Distils a full store to a share of its budget: first the most novel, then the most representative."""

    store: SlotStore

    def __init__(
        self,
        store: SlotStore,
        prompt_tokens: int,
        keep: float,
        novelty_share: float,
        pooling: int,
    ) -> None:
        """Evict from these slots. Settings are those of `InfiniPot`.

        prompt_tokens: entries that the catalyst takes while the store is distilled; they count against the budget.
        """
        super().__init__(store)
        self.prompt_tokens = prompt_tokens
        self.keep, self.novelty_share, self.pooling = keep, novelty_share, pooling
        self.attention: dict[int, Tensor] = {}  # by number of evictable slots: the catalyst's attention [HQ, N]

    def room(self) -> int:
        """Return how many entries are free beside the catalyst's."""
        capacity = self.store.capacity
        return UNLIMITED if capacity is None else max(0, capacity - self.prompt_tokens - self.store.entries)

    def needs_final_eviction(self) -> bool:
        """Tell whether the text did not fit: one that does is not distilled before something is said."""
        capacity, store = self.store.capacity, self.store
        return capacity is not None and store.entries < store.seen and self.room() < spare(capacity)

    def catalyst_shares_pass(self) -> bool:
        """Tell whether the catalyst may follow the text in its last pass; not in a store that quantises its entries."""
        return self.shares_pass and self.store.capacity is not None and self.store.quantization is None

    @contextmanager
    def catalyst_scoring(self, tokens: int) -> Iterator[None]:
        """Treat the last `tokens` of the passes inside as the catalyst's; their attention counts until left."""
        self.attention = {}
        try:
            with super().catalyst_scoring(tokens):
                yield
        finally:
            self.attention = {}

    def observe(self, number: int, attention: Tensor) -> None:
        """Keep the catalyst's attention until `evict`."""
        self.attention[number] = attention

    def evict(self) -> None:
        """Distil the store to |C| entries."""
        store = self.store
        assert store.capacity is not None
        size = min(round(self.keep * store.capacity), store.entries)
        novel = round(self.novelty_share * size)
        scores = {number: self._representative(number) for number in store.evictable}
        if novel:
            for number, score in scores.items():
                score.scatter_(1, highest(store.column(number, "score"), novel), float("inf"))
        store.keep_best(scores, size, novel)

    def _representative(self, number: int) -> Tensor:
        """Return CaP scores [H, held]: attention summed over the catalyst's tokens, one per KV head, pooled."""
        if number not in self.attention:
            heads, held = self.store.heads[number].kv_heads, self.store.held(number)
            return torch.zeros(heads, held, device=self.store.spec.device)
        summed = self.attention[number].view(self.store.heads[number].kv_heads, -1, self.store.held(number))
        return pooled(summed.amax(dim=1), self.pooling)
