"""`locret`: retaining heads judge every entry once, as it is read, and the best stay.

Locret: Enhancing Eviction in Long-Context LLM Inference with Trained Retaining Heads
(https://arxiv.org/abs/2410.01805), Algorithm 1. A text is read in chunks of B tokens; each token's entries get a score
from the heads (`retaining.py`), which stays with them and is never worked out again. After a chunk only the b best
entries of each KV head are kept, among them the chunk's last n_s, the stabilizers, which keep the context continuous
where reading goes on; after the last chunk there are no stabilizers. The last n_loc tokens of the text come after that
and are not evicted. What is kept is rotated anew to 0, 1, 2, ..., as the authors' own code does.

b is counted as the paper counts it: stabilizers are inside it; the chunk on its way through and the last n_loc tokens
come on top (`passing`). Generation evicts nothing in the paper. A conversation may be longer than any room, though,
so here its tail is judged by the same scores (the paper's appendix H): when another B tokens have been said, all but
the last n_loc are condensed to b again.

Not in the paper: scores are max-pooled over neighbouring entries before the cut (`pooling`), without which answers of
several tokens lose their tail, and by default B and n_s are shares of b, so that one setting suffices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from engine.footprint import Footprint, Task
from engine.memories.coded import MODEL, STORES, Coding
from engine.memories.sharing import SHARES, widest
from engine.memories.slot_plan import seen
from engine.memories.slots import SlotMemory, pooled
from engine.method import Method, TurnTokens, require
from engine.models.spec import ModelSpec
from engine.records import DEVICE, LoadedParts, Parts, Usage
from engine.trained.retaining import KIND, RetainingHeads, find_heads, head_bytes
from engine.trained.sidecar_weights import sidecar_digest

SCORE_DECIMALS = 3  # scores estimate dot products of some units; no head is that exact


@dataclass(frozen=True, kw_only=True)
class Locret(Method):
    """Algorithm 1.

    budget: b; chunk: B, tokens between two evictions, None for half the budget; stabilizers: n_s, None for a sixth of
    the budget; local: n_loc; pooling: neighbours a score is max-pooled over before the cut (odd, 1 for none); share:
    how the budget is shared among layers and heads (`sharing.py`); store: what entries are kept as (`coded.py`); heads:
    file of the retaining heads, empty for those beside the model.
    """

    name: ClassVar[str] = "locret"
    family: ClassVar[str] = "condensing"
    summary: ClassVar[str] = "A fixed memory of what trained heads, judging as they read, expect to matter."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},  # with the chunk on its way still inside what the model was trained for
        "wide": {"budget": 3072},
    }
    long_window: ClassVar[str | None] = "wide"
    chosen_first: ClassVar[bool] = True  # with half the entries it answered more than any other (docs/results.md)
    weights_setting: ClassVar[str | None] = KIND.setting
    reads_again: ClassVar[bool] = True
    choices: ClassVar[Mapping[str, Collection[Any]]] = {"share": SHARES, "store": STORES}

    budget: int | None = 1024
    chunk: int | None = None
    stabilizers: int | None = None
    local: int = 100
    pooling: int = 9
    share: str = "even"
    store: str = MODEL
    heads: str = ""

    def __post_init__(self) -> None:
        """Reject settings that contradict one another."""
        super().__post_init__()
        require(self.budget is None or self.budget >= 16, f"'locret' needs a budget of 16 or more, not {self.budget}.")
        require(self.chunk is None or self.chunk >= 1, f"chunk is a number of tokens, 1 or more, not {self.chunk}.")
        require(self.stabilizers is None or self.stabilizers >= 0, f"stabilizers is 0 or more, not {self.stabilizers}.")
        require(
            self.budget is None or self.stabilizer_entries < self.budget,
            f"{self.stabilizers} stabilizers leave nothing of a budget of {self.budget} to choose: "
            f"raise the budget, or lower stabilizers.",
        )
        require(self.local >= 0, f"local is a number of tokens, 0 or more, not {self.local}.")
        require(self.pooling >= 1 and self.pooling % 2 == 1, f"pooling is odd and positive, not {self.pooling}.")
        if self.heads:  # a saved reading must find them from another working directory
            object.__setattr__(self, "heads", str(Path(self.heads).expanduser().resolve()))

    @property
    def chunk_tokens(self) -> int:
        """B."""
        return self.chunk or max(1, (self.budget or 0) // 2)

    @property
    def stabilizer_entries(self) -> int:
        """n_s."""
        return (self.budget or 0) // 6 if self.stabilizers is None else self.stabilizers

    def weights_digest(self, spec: ModelSpec) -> str:
        """A digest of the retaining heads."""
        return sidecar_digest(KIND, spec, self.heads)

    def passing(self, spec: ModelSpec) -> int:
        """The chunk and the last tokens, which the paper does not count."""
        return 0 if self.budget is None else self.chunk_tokens + self.local

    def coding(self, turn_tokens: TurnTokens) -> Coding | None:
        """By the store."""
        return Coding.of(self.store, self.budget)

    def plan(self, spec: ModelSpec, task: Task) -> Footprint:
        """The last tokens come on top of what the last eviction left; the heads lie beside the model's weights."""
        plain = dataclasses.replace(super().plan(spec, task), weight_bytes=head_bytes(spec, self.heads))
        if self.budget is None:
            return plain
        text = max(0, task.total - self.local)
        held = min(text, self.budget) + task.total - text
        wide = plain.widest + widest(self.share, self.budget) - self.budget
        usage = Usage({DEVICE: held}, plain.usage.bytes)
        return dataclasses.replace(plain, usage=usage, answering=round(seen(spec, held)), widest=wide)

    def new_memory(
        self, spec: ModelSpec, turn_tokens: TurnTokens, kind: type[RetainedMemory] | None = None
    ) -> RetainedMemory:
        """Nothing read yet. kind: of memory, for methods that build upon this one.

        Raises:
            WeightsError: no retaining heads, or none that fit this model.
        """
        return (kind or RetainedMemory)(spec, self, find_heads(spec, self.heads), self.coding(turn_tokens))


class RetainedMemory(SlotMemory):
    """Entries with their causal importance; the least important go whenever a chunk is over."""

    def __init__(self, spec: ModelSpec, settings: Locret, heads: RetainingHeads, coding: Coding | None) -> None:
        """heads: in the dtype and on the device of the model."""
        capacity = None if settings.budget is None else settings.budget + settings.passing(spec)
        super().__init__(spec, capacity, settings.share, coding)
        self.settings = settings
        self.retaining = heads
        self.text_end = 0  # where the last `local` tokens of the text begin; 0 while no text is announced
        self.fresh = 0  # tokens since the last eviction; in a conversation, those that it spared included

    def reserve(self, tokens: int) -> None:
        """Learns where the text ends, for the last tokens are treated differently."""
        super().reserve(tokens)
        self.text_end = max(0, tokens - self.settings.local)

    def worth(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What the retaining heads say [H, T]."""
        # Rounded, because the first layer knows no context: equal tokens are equals there, whatever pass they came in.
        return self.retaining.score(layer, q, k, v).float().round(decimals=SCORE_DECIMALS)

    def commit(self, novelty: Tensor | None = None) -> None:
        """Keep the tokens of the pass until their chunk is over."""
        super().commit(novelty)
        self.fresh += len(self._incoming)

    @property
    def _in_text(self) -> bool:
        """Whether chunks are read, rather than the text's last tokens or a conversation."""
        return self.seen < self.text_end or (self.seen == self.text_end and self.fresh > 0)

    def room(self) -> int:
        """What is left of the chunk."""
        if self.settings.budget is None:
            return super().room()
        if self._in_text:  # more of a text may come after what were its last tokens
            return max(0, min(self.settings.chunk_tokens - self.fresh, self.text_end - self.seen))
        return self.settings.chunk_tokens + self.settings.local - self.fresh

    def wants_room(self) -> bool:
        """A finished reading has had its last eviction, and so has room for a whole chunk."""
        return self.room() == 0

    def condense(self) -> None:
        """Evict all but the b best; `fresh` ones are spared as Algorithm 1 says, or as a conversation needs."""
        assert self.settings.budget is not None
        if self._in_text:
            spared = 0 if self.seen == self.text_end else self.settings.stabilizer_entries
            self._evict(self.settings.budget, spared)
            self.fresh = 0
        else:
            self._evict(self.settings.budget + self.settings.local, self.settings.local)
            self.fresh = self.settings.local

    def _evict(self, size: int, spared: int) -> None:
        """Keep `size` entries per head on average, the last `spared` of each for sure."""
        if size >= self.entries:
            return
        scores = {number: pooled(self._column(number, "score"), self.settings.pooling) for number in self.judged}
        for score in scores.values():
            score[:, score.shape[1] - spared :] = float("inf")
        self.keep_best(scores, size, spared)

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """The slots, and where in the chunk they stand."""
        parts, meta = super().state()
        return parts, meta | {"text_end": self.text_end, "fresh": self.fresh}

    def restore(self, parts: LoadedParts, meta: dict[str, Any]) -> None:
        """Scores come back with their entries; they are never worked out again."""
        super().restore(parts, meta)
        self.text_end, self.fresh = int(meta["text_end"]), int(meta["fresh"])
