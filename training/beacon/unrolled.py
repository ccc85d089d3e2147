"""Reading with beacons as one graph, so that gradients flow through all windows (section 3.2 of the paper).

It reads window by window like `engine/parts/evictors/beacons.py`, but keeps keys and values of all beacons in the graph
instead of in slots. A test compares the hidden states of both.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine import Model
from engine.models.attention_interface import run
from engine.models.spec import ModelSpec, Scoring
from engine.parts.evictors.beacons import window_places
from engine.trained.beacons import Beacons


class Unrolled:
    """Beacons of earlier windows and the current window. Without sliding windows, soft caps or sinks."""

    def __init__(self, spec: ModelSpec) -> None:
        """Start with an empty memory."""
        self.spec = spec
        self.keys: list[list[Tensor]] = [[] for _ in spec.layers]  # per layer and window [H, K, D], before RoPE
        self.values: list[list[Tensor]] = [[] for _ in spec.layers]
        self.beacons = 0
        self._tokens = 0

    def begin(self, tokens: int, ratio: int) -> int:
        """Start a window of `tokens` tokens with this ratio, and return the number of its beacons."""
        place = window_places(0, tokens, ratio).to(self.spec.device)
        self._tokens = tokens
        self._queries = self.beacons + place
        self._keys = torch.cat([torch.arange(self.beacons, device=place.device), self._queries])
        self._seen = self._keys <= self._queries[:, None]
        return len(place) - tokens

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Return causal attention over beacons and window."""
        rope, tokens = self.spec.layers[layer].rope, self._tokens
        keys, values = torch.cat([*self.keys[layer], k], dim=1), torch.cat([*self.values[layer], v], dim=1)
        self.keys[layer].append(k[:, tokens:])
        self.values[layer].append(v[:, tokens:])
        output: Tensor = F.scaled_dot_product_attention(
            rope.rotate(q, self._queries)[None],
            rope.rotate(keys, self._keys)[None],
            values[None],
            attn_mask=self._seen,
            scale=scoring.scaling,
            enable_gqa=q.shape[0] != k.shape[0],
        )[0]
        return output

    def end(self, beacons: int) -> None:
        """Finish the window: its raw tokens are dropped, its beacons stay."""
        self.beacons += beacons


def read_through(model: Model, beacons: Beacons, ids: Tensor, window: int, ratios: list[int]) -> Tensor:
    """Return hidden states [T, hidden] of a text read in windows.

    Args:
        model: reads the text.
        beacons: weights of the tokens that follow each stretch.
        ids: int64 [T].
        window: tokens of a window.
        ratios: ratio of each of the ceil(T / window) windows.
    """
    memory, hidden = Unrolled(model.spec), []
    for part, ratio in zip(torch.split(ids.to(model.device), window), ratios, strict=True):
        count = memory.begin(len(part), ratio)
        hidden.append(run(model.network, part, memory, beacons.extra_tokens(count)))
        memory.end(count)
    return torch.cat(hidden)
