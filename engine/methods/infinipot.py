"""`infinipot`: a pot of entries that is distilled whenever it is full.

InfiniPot: Infinite Context Processing on Memory-Constrained LLMs (https://arxiv.org/abs/2410.01518). The pot holds
|M| entries per KV head and layer (`budget`). When it is full, a catalyst prompt is put to the model (CaP): what its
tokens attend to is representative of the text. What the model found surprising as it read is novel (NuC). The pot is
distilled to |C| = `keep` * |M| entries: first the most novel, a share alpha of |C|, then per KV head the most
representative. The catalyst's own entries are dropped, and what is kept is rotated anew to 0 .. |C|-1 (CR-RoPE).

The paper leaves open, and here are settings chosen by measurement (docs/methods/infinipot.md): |C|/|M|, the
reduction over the query heads of a group, and smoothing the catalyst's scores over neighbouring entries, without
which answers of several tokens lose their tail. The first token of a text has no -log p; it counts as most novel,
which also keeps the attention sink. Novelty belongs to a token and is shared by all heads; where heads hold different
entries after a distillation, each ranks the ones it holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.errors import SettingsError
from engine.footprint import Footprint, Task
from engine.memories.coded import MODEL, STORES, Coding
from engine.memories.sharing import SHARES, widest
from engine.memories.slot_plan import seen
from engine.memories.slots import SlotMemory, highest, pooled
from engine.method import Method, TurnTokens, require
from engine.models.spec import ModelSpec
from engine.records import DEVICE, Usage

PROMPTS = {
    "G": "Summarize the critical points highlighted in this section.",
    "G1": "Summarize this section's critical points.",
    "G2": "Highlight the critical points from this section.",
    "Q": "Considering the following question, summarize the critical points highlighted in this section. "
    "Question: {question}",
    "U": "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",
    "P": "\n\n\n\n\n\n\n\n",
}
REDUCTIONS = ("max", "mean")


@dataclass(frozen=True, kw_only=True)
class InfiniPot(Method):
    """CaP and NuC in two steps, as Code 1 of the paper's appendix B.

    prompt: a key of PROMPTS or a prompt of one's own; question: what prompt Q is filled with; keep: |C|/|M|;
    novelty_share: alpha, 0 for CaP alone, 1 for NuC alone; pooling: neighbours a catalyst score is max-pooled over
    (odd, 1 for none); reduction: over the query heads of a group; share: how what the catalyst chooses is shared among
    layers and heads (`sharing.py`); store: what entries are kept as (`coded.py`).
    """

    name: ClassVar[str] = "infinipot"
    family: ClassVar[str] = "condensing"
    summary: ClassVar[str] = "A fixed pot of entries, distilled to what is representative and novel whenever full."

    # The pocket model cannot summarise; asked for a name, it looks at statements. Found on documents of another seed
    # than the benchmarks'. The defaults are what the paper states, and pooling (docs/methods/infinipot.md).
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {},
        "pocket": {"prompt": "What is the name?", "novelty_share": 0.0, "keep": 0.75, "pooling": 21},
    }
    reads_again: ClassVar[bool] = True
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"reduction": REDUCTIONS, "share": SHARES, "store": STORES}

    budget: int | None = 2048
    keep: float = 0.5
    prompt: str = "G"
    question: str = ""
    novelty_share: float = 0.5
    pooling: int = 9
    reduction: str = "max"
    share: str = "even"
    store: str = MODEL

    def __post_init__(self) -> None:
        """Reject settings that contradict one another."""
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
        """Unless the catalyst alone decides."""
        return self.novelty_share > 0.0

    def catalyst(self) -> str | None:
        """The catalyst prompt; none where novelty alone decides."""
        if self.novelty_share == 1.0:
            return None
        return PROMPTS.get(self.prompt, self.prompt).replace("{question}", self.question)

    def coding(self, turn_tokens: TurnTokens) -> Coding | None:
        """The catalyst passes behind what waits."""
        return Coding.of(self.store, self.budget, self._catalyst_tokens(turn_tokens))

    def _catalyst_tokens(self, turn_tokens: TurnTokens) -> int:
        prompt = self.catalyst()
        return turn_tokens(prompt) if prompt else 0

    def new_memory(self, spec: ModelSpec, turn_tokens: TurnTokens, kind: type[Pot] | None = None) -> Pot:
        """An empty pot. kind: of pot, for methods that build upon this one.

        Raises:
            SettingsError: the catalyst prompt leaves no room to read.
        """
        length = self._catalyst_tokens(turn_tokens)
        if self.budget is not None and self.budget - round(self.keep * self.budget) < 2 * length + 16:
            raise SettingsError(
                f"A pot of {self.budget} distilled to {round(self.keep * self.budget)} leaves no room for a catalyst "
                f"prompt of {length} tokens: raise the budget, or lower keep."
            )
        return (kind or Pot)(spec, self, length, self.coding(turn_tokens))

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """One pot, however long the text; each distillation costs a pass of the catalyst."""
        plain = super().plan(spec, task)
        if self.budget is None:
            return plain
        length = self._catalyst_tokens(task.turn_tokens)
        size, room = round(self.keep * self.budget), self.budget - length
        if task.total <= room:
            times, held = 0, task.total
        else:
            each = max(1, room - size)
            times = -(-(task.total - room) // each)
            held = size + task.total - room - (times - 1) * each
        if times and room - held < spare(self.budget):
            times, held = times + 1, min(size, held)
        usage = Usage({DEVICE: held}, plain.usage.bytes)
        full = seen(spec, (size + room) / 2 if times else task.total / 2)
        wide = plain.widest + widest(self.share, size) - size
        return dataclasses.replace(plain, usage=usage, passed=task.total + times * length, attended=full, widest=wide)


def spare(budget: int) -> int:
    """Entries that a pot has free once a text is read that did not fit it, so that a first question seldom waits."""
    return min(256, budget // 4)


class Pot(SlotMemory):
    """The memory pot."""

    def __init__(self, spec: ModelSpec, settings: InfiniPot, catalyst_tokens: int, coding: Coding | None) -> None:
        """catalyst_tokens: entries the catalyst takes while the pot is distilled; they count against the budget."""
        super().__init__(spec, settings.budget, settings.share, coding)
        self.settings = settings
        self.catalyst_tokens = catalyst_tokens

    def room(self) -> int:
        """What is left in the pot beside the catalyst."""
        if self.capacity is None:
            return super().room()
        return max(0, self.capacity - self.catalyst_tokens - self.entries)

    def wants_room(self) -> bool:
        """Where a text did not fit the pot: one that does is not distilled before something is said."""
        return self.capacity is not None and self.entries < self.seen and self.room() < spare(self.capacity)

    def observes_behind(self) -> bool:
        """Unless what fills the pot is still to be coded, or the attention of an answer is counted."""
        return self.capacity is not None and self.coding is None and self.mass is None

    def condense(self) -> None:
        """Distil the pot to |C| entries; `observed` holds what the catalyst looked at."""
        assert self.capacity is not None
        size = min(round(self.settings.keep * self.capacity), self.entries)
        novel = round(self.settings.novelty_share * size)
        scores = {number: self._representative(number) for number in self.judged}
        if novel:
            for number, score in scores.items():
                score.scatter_(1, highest(self._column(number, "score"), novel), float("inf"))
        self.keep_best(scores, size, novel)

    def _representative(self, number: int) -> Tensor:
        """CaP scores [H, held] of slots: attention summed over the catalyst's tokens, one per KV head, pooled."""
        heads, held = self.heads[number].kv_heads, self.held(number)
        if self.observed is None:
            return torch.zeros(heads, held, device=self.spec.device)
        summed = self.observed[number].view(heads, -1, held)
        score = summed.amax(dim=1) if self.settings.reduction == "max" else summed.mean(dim=1)
        return pooled(score, self.settings.pooling)
