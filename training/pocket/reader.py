"""Reading and greedy answering for measurements: full attention, or far reading by exact top-k.

A small reader of the training package, without code of the engine, so that the model can be measured on its own. One
conversation at a time, float32.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from training.pocket.network import PocketNetwork, normed, rotate

CHUNK = 256
SINKS = 4  # first tokens, always attended


class Reader:
    """Memory of one document and conversation.

    Args:
        network: the model.
        capacity: most tokens to read and generate in all.
        window: sliding window of far reading; 0 for full attention.
        top_k: far keys for each query head and token.
        distance: constant RoPE distance of far keys; None for window - 1.
    """

    def __init__(
        self,
        network: PocketNetwork,
        capacity: int,
        window: int = 0,
        top_k: int = 64,
        distance: int | None = None,
    ) -> None:
        self.network, self.window, self.top_k = network, window, top_k
        self.distance = window - 1 if distance is None else distance
        self.trained: int = network.llama.config.max_position_embeddings
        shape = (len(network.llama.model.layers), network.kv_heads, capacity, network.size)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.length = 0

    @torch.no_grad()
    def read(self, ids: list[int]) -> None:
        """Read the tokens of a document."""
        for start in range(0, len(ids), CHUNK):
            self._pass(ids[start : start + CHUNK], asking=False)

    @torch.no_grad()
    def answer(self, question: list[int], end: int, limit: int = 80) -> list[int]:
        """Read `question` and return the greedy answer, without the end token (which stays in memory)."""
        logits = self._pass(question, asking=True)
        said: list[int] = []
        while len(said) < limit:
            token = int(logits.argmax())
            logits = self._pass([token], asking=True)
            if token == end:
                break
            said.append(token)
        return said

    def _pass(self, ids: list[int], asking: bool) -> Tensor:
        """Read tokens and return the logits [V] after the last."""
        model = self.network.llama.model
        first, last = self.length, self.length + len(ids)
        x = model.embed_tokens(torch.tensor([ids]))
        for index, layer in enumerate(model.layers):
            q, k, v = (each[0] for each in self.network.projected(layer, x))
            self.keys[index, :, first:last], self.values[index, :, first:last] = k, v
            x = self.network.passed_on(layer, x, self._attend(index, q, first, last, asking)[None])
        self.length = last
        return F.linear(normed(model.norm, x[0, -1]), model.embed_tokens.weight)

    def _attend(self, layer: int, q: Tensor, first: int, last: int, asking: bool) -> Tensor:
        # q: [HQ, T, D]; near: sinks and window at true distances; far: top-k of the rest at a constant distance
        groups, scale = self.network.heads // self.network.kv_heads, self.network.size**-0.5
        begin = max(0, first - self.window + 1) if self.window else 0
        sinks = min(SINKS, begin)
        at = torch.cat((torch.arange(sinks), torch.arange(begin, last)))
        # to bound distances, sinks sit just before the window, as in StreamingLLM, or at their position if near
        shift = begin - sinks
        places = torch.where(at < sinks, at, at - shift)
        mine = torch.arange(first, last)
        cos, sin = self.network.angles(places)
        keys = rotate(self.keys[layer][:, at], cos, sin).repeat_interleave(groups, 0)
        values = self.values[layer][:, at].repeat_interleave(groups, 0)
        cos, sin = self.network.angles(mine - shift)
        scores = rotate(q, cos, sin) @ keys.mT * scale
        seen = self._near_mask(at, mine)
        scores = scores.masked_fill(~seen, -torch.inf)
        stop = last - self.window
        if not (asking and self.window and stop > SINKS):
            return torch.matmul(scores.softmax(-1), values)
        cos, sin = self.network.angles(torch.tensor([self.distance]))
        far_q = rotate(q, cos, sin).reshape(self.network.kv_heads, groups, *q.shape[1:])  # [H, G, T, D]
        far_keys, far_values = self.keys[layer][:, SINKS:stop], self.values[layer][:, SINKS:stop]
        far = torch.einsum("hgtd,hnd->hgtn", far_q, far_keys).flatten(0, 1) * scale
        places = torch.arange(SINKS, stop)
        far = far.masked_fill(places[None, None] > (mine - self.window)[None, :, None], -torch.inf)
        # beyond the trained number of entries, scale scores by the logarithm of their number
        sharper = ((mine + 1).log() / math.log(self.trained)).clamp_min(1.0)[:, None]
        scores, far = scores * sharper, far * sharper
        best = far.topk(min(self.top_k, far.shape[-1]), dim=-1)
        weights = torch.cat((scores, best.values), -1).softmax(-1)
        head = torch.arange(self.network.heads)[:, None, None] // groups
        chosen = far_values[head, best.indices]  # [HQ, T, K, D]
        return weights[..., : at.numel()] @ values + torch.einsum("htk,htkd->htd", weights[..., at.numel() :], chosen)

    def _near_mask(self, at: Tensor, mine: Tensor) -> Tensor:
        """Return the mask [T, near]: causal, and inside the window or a sink."""
        behind = mine[:, None] - at[None]
        seen = behind >= 0
        return seen & ((behind < self.window) | (at[None] < SINKS)) if self.window else seen
