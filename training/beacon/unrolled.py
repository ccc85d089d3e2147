"""A reading with beacons that gradients can flow through: no stop between windows (section 3.2 of the paper).

Window by window, as `engine/methods/beacon.py` reads, but nothing is written into slots: the beacons' keys and values
of all windows stay parts of one graph. A test holds the two to the same hidden states.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine import Model
from engine.methods.beacon import window_places
from engine.seam import ModelSpec, Scoring, run
from engine.trained.beacons import Beacons


class Unrolled:
    """Beacons of the windows before, and the window on its way. Attends without sliding windows, soft caps or sinks."""

    def __init__(self, spec: ModelSpec) -> None:
        """Nothing read yet."""
        self.spec = spec
        self.keys: list[list[Tensor]] = [[] for _ in spec.layers]  # per layer and window [H, K, D], before RoPE
        self.values: list[list[Tensor]] = [[] for _ in spec.layers]
        self.beacons = 0
        self._tokens = 0

    def begin(self, tokens: int, ratio: int) -> int:
        """A window of so many tokens comes; returns how many beacons go with it."""
        place = window_places(0, tokens, ratio).to(self.spec.device)
        self._tokens = tokens
        self._queries = self.beacons + place
        self._keys = torch.cat([torch.arange(self.beacons, device=place.device), self._queries])
        self._seen = self._keys <= self._queries[:, None]
        return len(place) - tokens

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Causal attention over beacons and window."""
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
        """The window is over: its raw tokens are forgotten."""
        self.beacons += beacons


def read_through(model: Model, beacons: Beacons, ids: Tensor, window: int, ratios: list[int]) -> Tensor:
    """Hidden states [T, hidden] of a text read in windows.

    Args:
        ids: int64 [T]; ratios: of each window in turn, ceil(T / window) of them.
    """
    memory, hidden = Unrolled(model.spec), []
    for part, ratio in zip(torch.split(ids.to(model.device), window), ratios, strict=True):
        count = memory.begin(len(part), ratio)
        hidden.append(run(model.network, part, memory, beacons.guests(count)))
        memory.end(count)
    return torch.cat(hidden)
