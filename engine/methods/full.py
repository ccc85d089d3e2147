"""`full`: everything stays on the device. The reference that every other method is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.base import Method, TurnTokens
from engine.models.spec import ModelSpec
from engine.parts.quantized_slots import MODEL, STORES, Quantization
from engine.parts.slots import SlotStore


@dataclass(frozen=True, kw_only=True)
class Full(Method):
    """Plain causal attention. Memory grows with the text, and so does the time per token.

    Attributes:
        store: dtype of the entries: the model's, or a quantisation.
    """

    name: ClassVar[str] = "full"
    family: ClassVar[str] = "yardstick"
    summary: ClassVar[str] = "Keeps everything on the device: the reference, for texts that fit the model's window."
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"store": STORES}

    store: str = MODEL

    def __post_init__(self) -> None:
        """Refuse a budget: nothing is limited."""
        super().__post_init__()
        require(self.budget is None, f"'full' keeps everything and takes no budget (got {self.budget}).")

    def quantization(self, turn_tokens: TurnTokens) -> Quantization | None:
        """Return the quantisation given by `store`, or None for the model's dtype."""
        return Quantization.of(self.store, None)

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return slots without a limit."""
        return Memory(spec, SlotStore(spec, quantization=self.quantization(turn_tokens)))
