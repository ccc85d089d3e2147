"""The base of methods that keep the entries with the highest scores.

A new one is its settings and `score` (entries judged as they arrive), or an evictor of its own: see `knorm.py` and
`tova.py`, and the recipe in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from engine.errors import require
from engine.memory import Memory
from engine.methods.base import Method, TurnTokens
from engine.models.spec import ModelSpec
from engine.parts.evictors.footprints import scored_footprint
from engine.parts.evictors.scored import ArrivalScoreEvictor, ScoredEvictor
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.quantized_slots import MODEL, STORES, Quantization
from engine.parts.sharing import SHARES
from engine.parts.slots import SlotStore


@dataclass(frozen=True, kw_only=True)
class ScoredMethod(Method):
    """A text is read in chunks; after each, the entries with the lowest scores are evicted (`ScoredEvictor`).

    Attributes:
        budget: entries per KV head that outlast a chunk, on average.
        chunk: tokens between two evictions, None for half the budget.
        stabilizers: last entries of a chunk that are spared, None for a sixth of the budget.
        local: last tokens of the text, which come on top of the budget.
        pooling: neighbours over which scores are max-pooled before eviction (odd, 1 for none).
        share: how the budget is shared among layers and heads (`sharing.py`).
        store: dtype of the entries: the model's, or a quantisation.
    """

    family: ClassVar[str] = "condensing"
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"share": SHARES, "store": STORES}

    budget: int | None = 1024
    chunk: int | None = None
    stabilizers: int | None = None
    local: int = 100
    pooling: int = 9
    share: str = "even"
    store: str = MODEL

    def __post_init__(self) -> None:
        """Refuse settings that contradict one another."""
        super().__post_init__()
        require(
            self.budget is None or self.budget >= 16,
            f"'{self.name}' needs a budget of 16 or more, not {self.budget}.",
        )
        require(self.chunk is None or self.chunk >= 1, f"chunk is a number of tokens, 1 or more, not {self.chunk}.")
        require(self.stabilizers is None or self.stabilizers >= 0, f"stabilizers is 0 or more, not {self.stabilizers}.")
        require(
            self.budget is None or self.stabilizer_entries + self.spared_sinks < self.budget,
            f"{self.stabilizers} stabilizers leave nothing of a budget of {self.budget} to choose: "
            f"raise the budget, or lower stabilizers.",
        )
        require(self.local >= 0, f"local is a number of tokens, 0 or more, not {self.local}.")
        require(self.pooling >= 1 and self.pooling % 2 == 1, f"pooling is odd and positive, not {self.pooling}.")

    @property
    def chunk_tokens(self) -> int:
        """Tokens between two evictions."""
        return self.chunk or max(1, (self.budget or 0) // 2)

    @property
    def stabilizer_entries(self) -> int:
        """Last entries of a chunk that are spared."""
        return (self.budget or 0) // 6 if self.stabilizers is None else self.stabilizers

    @property
    def spared_sinks(self) -> int:
        """First entries that are never evicted."""
        return 0

    def weight_bytes(self, spec: ModelSpec) -> int:
        """Return the bytes of trained weights beside the model's."""
        return 0

    def passing(self, spec: ModelSpec) -> int:
        """Return the entries beyond the budget: the chunk and the last tokens."""
        return 0 if self.budget is None else self.chunk_tokens + self.local

    def quantization(self, turn_tokens: TurnTokens) -> Quantization | None:
        """Return the quantisation given by `store`, or None for the model's dtype."""
        return Quantization.of(self.store, self.budget)

    def footprints(self, spec: ModelSpec, task: ReadingTask) -> Iterable[Footprint]:
        """Yield the footprints of slots, evictor and trained weights."""
        yield from super().footprints(spec, task)
        yield Footprint(weight_bytes=self.weight_bytes(spec))

    def kept_footprint(self, spec: ModelSpec, task: ReadingTask) -> Footprint:
        """Return what the best entries and the last tokens take."""
        capacity = self.capacity(spec)
        if self.budget is None or capacity is None:
            return super().kept_footprint(spec, task)
        return scored_footprint(spec, task.total, capacity, self.budget, self.local, self.share)

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return empty slots with their evictor."""
        store = SlotStore(spec, self.capacity(spec), self.share, self.quantization(turn_tokens))
        return Memory(spec, store, evictor=self.new_evictor(spec, store))

    def new_evictor(self, spec: ModelSpec, store: SlotStore) -> ScoredEvictor:
        """Return an evictor that judges entries by `score` as they arrive."""
        return ArrivalScoreEvictor(store, self.eviction, self.score)

    @property
    def eviction(self) -> Mapping[str, Any]:
        """The settings as `ScoredEvictor` takes them."""
        return {
            "budget": self.budget,
            "chunk": self.chunk_tokens,
            "stabilizers": self.stabilizer_entries,
            "local": self.local,
            "pooling": self.pooling,
            "sinks": self.spared_sinks,
        }

    def score(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the scores of new entries [H, T]; the lowest are evicted first.

        Args:
            layer: number of the layer.
            q: [HQ, T, D], before RoPE.
            k: [H, T, D], before RoPE.
            v: [H, T, D].
        """
        raise NotImplementedError
