"""The base of all evictors. By itself it keeps everything."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from torch import Tensor

from engine.models.attention_interface import ExtraTokens
from engine.parts.store import Store

UNLIMITED = sys.maxsize


class Evictor:
    """Decides which entries leave a store that is full. This one never lets anything go."""

    shares_pass = True  # whether a catalyst may follow text in one pass
    in_order = True  # whether nothing stands between the tokens of a pass
    # Gives the scores, float32 [H, T], of q [HQ, T, D] and k, v [H, T, D] of a layer, before RoPE, on arrival
    importance: Callable[[int, Tensor, Tensor, Tensor], Tensor] | None = None

    def __init__(self, store: Store) -> None:
        """Evict from this store."""
        self.store = store
        self.catalyst_tokens = 0  # of the pass, its last tokens that are a catalyst's; they are never kept
        self.order: tuple[Tensor, Tensor] | None = None  # of a pass with extra tokens: see `BeaconEvictor`

    def reserve(self, tokens: int) -> None:
        """Learn how many tokens the text has."""

    def begin_pass(self, source: Tensor) -> Tensor:
        """Return the source positions, int32 [T] on the host, of the pass with its extra tokens."""
        return source

    def extra_tokens(self) -> ExtraTokens | None:
        """Return the tokens that the method adds to the pass, or None."""
        return None

    def observed(self, tokens: int) -> int:
        """Return how many of the last tokens of a pass have their attention handed to `observe`."""
        return self.catalyst_tokens

    def judges(self, number: int) -> bool:
        """Tell whether the attention to slots `number` is wanted: whether they are evicted from."""
        return self.store.evicts_from(number)

    def observe(self, number: int, attention: Tensor) -> None:
        """Take the attention [HQ, N] that observed tokens gave to the entries of slots `number`."""

    def end_pass(self, tokens: int) -> None:
        """Count the tokens that the pass has kept."""

    def room(self) -> int:
        """Return how many tokens the next pass may carry; 0 if `evict` must be called first."""
        return UNLIMITED

    def needs_final_eviction(self) -> bool:
        """Tell whether to evict once more when a text has been read, before anything is said."""
        return False

    @contextmanager
    def catalyst_scoring(self, tokens: int) -> Iterator[None]:
        """Treat the last `tokens` of the passes inside as a catalyst's."""
        self.catalyst_tokens = tokens
        try:
            yield
        finally:
            self.catalyst_tokens = 0

    def catalyst_shares_pass(self) -> bool:
        """Tell whether a catalyst may follow the tokens that fill the memory in the same pass."""
        return False

    def evict(self) -> None:
        """Make room. Called where there is none, and before a passage is read again."""
        raise AssertionError(f"{type(self).__name__} never runs out of room")

    def recordable(self) -> bool:
        """Tell whether the pass of one token that has begun can be recorded."""
        return not self.catalyst_tokens

    def fork(self, store: Store) -> Self:
        """Return an evictor with the same state for a fork or snapshot of the store."""
        child = copy.copy(self)
        child.store = store
        return child

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON-able facts for `load`."""
        return {}, {}

    def load(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore the values saved by `state`."""
