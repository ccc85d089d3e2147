"""Eviction by a score: the base of all methods that judge entries one by one.

A text is read in chunks. When a chunk is over, all but the `budget` entries with the highest scores are evicted, with
the chunk's last ones (stabilizers) spared, which keep the context continuous where reading goes on. The last `local`
tokens of the text come after that and are not evicted. A conversation is evicted from by the same scores: when another
chunk of tokens has been said, all but the last `local` are judged again.

Source: Locret (https://arxiv.org/abs/2410.01805), Algorithm 1 and appendix H; pooling is not in the paper.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from engine.parts.evictors.base import UNLIMITED, Evictor
from engine.parts.slots import SlotStore, pooled

Judge = Callable[[int, Tensor, Tensor, Tensor], Tensor]
DECIMALS = 3  # of scores on arrival: the last bits of a key depend on the size of its pass


class ScoredEvictor(Evictor):
    """Evicts the entries with the lowest scores whenever a chunk is over."""

    store: SlotStore

    def __init__(self, store: SlotStore, settings: Mapping[str, Any]) -> None:
        """Evict from these slots.

        settings:
            budget: entries per KV head that stay, on average; None to keep everything.
            chunk: tokens between two evictions.
            stabilizers: last entries of a chunk that are spared while a text is read.
            local: last tokens of the text, and of a conversation, that are spared.
            pooling: neighbours over which scores are max-pooled (odd, 1 for none).
            sinks: first entries that are spared.
        """
        super().__init__(store)
        self.budget: int | None = settings["budget"]
        self.chunk: int = settings["chunk"]
        self.stabilizers: int = settings["stabilizers"]
        self.local: int = settings["local"]
        self.pooling: int = settings["pooling"]
        self.sinks: int = settings["sinks"]
        self.text_end = 0  # where the last `local` tokens of the text begin; 0 while no text is announced
        self.fresh = 0  # tokens since the last eviction; in a conversation, with those that it spared

    @abstractmethod
    def score(self, number: int) -> Tensor:
        """Return the scores of all entries in slots `number`, float32 [H, held]."""

    def reserve(self, tokens: int) -> None:
        """Learn where the text ends."""
        self.text_end = max(0, tokens - self.local)

    def end_pass(self, tokens: int) -> None:
        """Count the tokens since the last eviction."""
        self.fresh += tokens

    @property
    def _in_text(self) -> bool:
        """True while chunks are read, rather than the text's last tokens or a conversation."""
        return self.store.seen < self.text_end or (self.store.seen == self.text_end and self.fresh > 0)

    def room(self) -> int:
        """Return how many tokens the chunk still takes."""
        if self.budget is None:
            return UNLIMITED
        if self._in_text:  # more of a text may come after the tokens that were its last
            return max(0, min(self.chunk - self.fresh, self.text_end - self.store.seen))
        return self.chunk + self.local - self.fresh

    def needs_final_eviction(self) -> bool:
        """Tell whether a chunk is over, so that a conversation begins with room for a whole one."""
        return self.room() == 0

    def evict(self) -> None:
        """Keep the entries with the highest scores, and those that are spared."""
        assert self.budget is not None
        if self._in_text:
            spared = 0 if self.store.seen == self.text_end else self.stabilizers
            self._keep(self.budget, spared)
            self.fresh = 0
        else:
            self._keep(self.budget + self.local, self.local)
            self.fresh = self.local

    def _keep(self, size: int, spared: int) -> None:
        """Keep `size` entries per head on average, among them the first `sinks` and the last `spared` of each."""
        if size >= self.store.entries:
            return
        scores = {number: pooled(self.score(number), self.pooling) for number in self.store.evictable}
        for score in scores.values():
            score[:, score.shape[1] - spared :] = float("inf")
            if self.sinks:
                score[:, : self.sinks] = float("inf")
        self.store.keep_best(scores, size, spared + self.sinks)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return where in the chunk the store stands."""
        return {}, {"text_end": self.text_end, "fresh": self.fresh}

    def load(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`."""
        self.text_end, self.fresh = int(meta["text_end"]), int(meta["fresh"])


class ArrivalScoreEvictor(ScoredEvictor):
    """Entries get a score once, when they arrive, which stays with them."""

    def __init__(self, store: SlotStore, settings: Mapping[str, Any], judge: Judge) -> None:
        """judge: gives the scores [H, T] of q [HQ, T, D] and k, v [H, T, D] of a layer, before RoPE."""
        super().__init__(store, settings)
        self.judge = judge

    def importance(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the scores of new entries, float32 [H, T], rounded so that equal tokens are equals in any pass."""
        return self.judge(layer, q, k, v).float().round(decimals=DECIMALS)

    def score(self, number: int) -> Tensor:
        """Return the scores that entries were given."""
        return self.store.column(number, "score")
