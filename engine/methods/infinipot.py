"""`infinipot`: a pot of entries that is distilled whenever it is full.

InfiniPot: Infinite Context Processing on Memory-Constrained LLMs (https://arxiv.org/abs/2410.01518). The pot holds
|M| entries per KV head and layer (`budget`). When it is full, a catalyst prompt is put to the model (CaP): what its
tokens attend to is representative of the text. What the model found surprising as it read is novel (NuC). The pot is
distilled to |C| = `keep` * |M| entries: first the most novel, a share alpha of |C|, then per KV head the most
representative. The catalyst's own entries are dropped, and what is kept is rotated anew to 0 .. |C|-1 (CR-RoPE).

The paper leaves open, and here was chosen by measurement (docs/methods/infinipot.md): |C|/|M|, the largest score of
the query heads of a group, and smoothing the catalyst's scores over neighbouring entries, without which answers of
several tokens lose their tail. The first token of a text has no -log p; it counts as most novel, which also keeps the
attention sink. Novelty belongs to a token and is shared by all heads; where heads hold different
entries after a distillation, each ranks the ones it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import require
from engine.memory import Memory
from engine.methods.base import Method, TurnTokens
from engine.methods.presets import INFINIPOT, PROMPTS
from engine.models.spec import ModelSpec
from engine.parts.evictors.catalyst import CatalystEvictor
from engine.parts.evictors.footprints import Distilling, distilled_footprint
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.quantized_slots import MODEL, STORES, Quantization
from engine.parts.sharing import SHARES
from engine.parts.slots import SlotStore


@dataclass(frozen=True, kw_only=True)
class InfiniPot(Method):
    """CaP and NuC in two steps, as Code 1 of the paper's appendix B.

    Attributes:
        budget: |M|, entries of the pot.
        keep: |C|/|M|.
        prompt: a key of PROMPTS, or a prompt of your own.
        question: what prompt Q is filled with.
        novelty_share: alpha; 0 for CaP alone, 1 for NuC alone.
        pooling: neighbours over which a catalyst score is max-pooled (odd, 1 for none).
        share: how the catalyst's choice is shared among layers and heads (`sharing.py`).
        store: dtype of the entries: the model's, or a quantisation.
    """

    name: ClassVar[str] = "infinipot"
    family: ClassVar[str] = "condensing"
    summary: ClassVar[str] = "A fixed pot of entries, distilled to what is representative and novel whenever full."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = INFINIPOT
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"share": SHARES, "store": STORES}

    budget: int | None = 2048
    keep: float = 0.5
    prompt: str = "G"
    question: str = ""
    novelty_share: float = 0.5
    pooling: int = 9
    share: str = "even"
    store: str = MODEL

    def __post_init__(self) -> None:
        """Refuse settings that contradict one another."""
        super().__post_init__()
        require(
            self.budget is None or self.budget >= 128, f"'infinipot' needs a budget of 128 or more, not {self.budget}."
        )
        require(
            0.0 < self.keep <= 0.9, f"keep is the share |C|/|M| of the pot, above 0 and at most 0.9, not {self.keep}."
        )
        require(0.0 <= self.novelty_share <= 1.0, f"novelty_share must be between 0 and 1, not {self.novelty_share}.")
        require(self.pooling >= 1 and self.pooling % 2 == 1, f"pooling is odd and positive, not {self.pooling}.")
        known = f"{', '.join(PROMPTS)} or a text of your own"
        require(bool(self.prompt), f"prompt is {known}; it cannot be empty.")
        require(
            self.prompt in PROMPTS or len(self.prompt.split()) > 1,
            f"prompt is {known}, of two words at least; not {self.prompt!r}.",
        )
        require(self.prompt != "Q" or bool(self.question), "prompt Q needs a question: set question=...")

    def needs_novelty(self) -> bool:
        """Tell whether novelty has a share, rather than the catalyst alone."""
        return self.novelty_share > 0.0

    def catalyst(self) -> str | None:
        """Return the catalyst prompt, or None if novelty alone decides."""
        if self.novelty_share == 1.0:
            return None
        return PROMPTS.get(self.prompt, self.prompt).replace("{question}", self.question)

    def quantization(self, turn_tokens: TurnTokens) -> Quantization | None:
        """Return the quantisation given by `store`; the catalyst passes behind entries that wait for it."""
        return Quantization.of(self.store, self.budget, self._catalyst_tokens(turn_tokens))

    def _catalyst_tokens(self, turn_tokens: TurnTokens) -> int:
        prompt = self.catalyst()
        return turn_tokens(prompt) if prompt else 0

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens) -> Memory:
        """Return an empty pot with its evictor.

        Raises:
            SettingsError: the catalyst prompt leaves no room to read.
        """
        length = self._catalyst_tokens(turn_tokens)
        require(
            self.budget is None or self.budget - round(self.keep * self.budget) >= 2 * length + 16,
            f"A pot of {self.budget} distilled to {round(self.keep * (self.budget or 0))} leaves no room for a "
            f"catalyst prompt of {length} tokens: raise the budget, or lower keep.",
        )
        store = SlotStore(spec, self.budget, self.share, self.quantization(turn_tokens))
        evictor = CatalystEvictor(store, length, self.keep, self.novelty_share, self.pooling)
        return Memory(spec, store, evictor=evictor)

    def kept_footprint(self, spec: ModelSpec, task: ReadingTask) -> Footprint:
        """Return what one pot takes, however long the text."""
        if self.budget is None:
            return super().kept_footprint(spec, task)
        length = self._catalyst_tokens(task.turn_tokens)
        distilling = Distilling(self.budget, round(self.keep * self.budget), length, self.share)
        return distilled_footprint(spec, task.total, distilling)
