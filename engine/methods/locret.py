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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.methods.scored import ScoredMethod
from engine.models.spec import ModelSpec
from engine.parts.evictors.scored import ArrivalScoreEvictor
from engine.parts.slots import SlotStore
from engine.trained.retaining import KIND, find_heads, head_bytes
from engine.trained.sidecar_weights import sidecar_digest


@dataclass(frozen=True, kw_only=True)
class Locret(ScoredMethod):
    """Algorithm 1. In the paper's letters: budget b, chunk B, stabilizers n_s, local n_loc.

    Attributes:
        heads: file of the retaining heads, empty for those beside the model. Others: see `ScoredMethod`.
    """

    name: ClassVar[str] = "locret"
    summary: ClassVar[str] = "A fixed memory of what trained heads, judging as they read, expect to matter."
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pocket": {},  # with the chunk on its way still inside what the model was trained for
        "wide": {"budget": 3072},
    }
    long_window: ClassVar[str | None] = "wide"
    chosen_first: ClassVar[bool] = True  # with half the entries it answered more than any other (docs/results.md)
    weights_setting: ClassVar[str | None] = KIND.setting

    heads: str = ""

    def weights_digest(self, spec: ModelSpec) -> str:
        """Return a digest of the retaining heads."""
        return sidecar_digest(KIND, spec, self.heads)

    def weight_bytes(self, spec: ModelSpec) -> int:
        """Return the bytes of the retaining heads."""
        return head_bytes(spec, self.heads)

    def new_evictor(self, spec: ModelSpec, store: SlotStore) -> ArrivalScoreEvictor:
        """Return an evictor that judges entries by the retaining heads.

        Raises:
            WeightsError: no retaining heads, or none that fit this model.
        """
        return ArrivalScoreEvictor(store, self.eviction, find_heads(spec, self.heads).score)
