"""What the plain implementations of the retrieving papers share: token by token, one head at a time, no cleverness."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.memories.sharing import SPREAD
from engine.memories.window import WindowMemory
from engine.models.rope import Rope
from engine.models.spec import Scoring

SCALE = 8**-0.5
GROUP = 3  # query heads per KV head


def stream(count: int, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """q [6, T, 8], k and v [2, T, 8]."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(heads, count, 8, generator=generator) for heads in (6, 2, 2))  # type: ignore[return-value]


class Turned:
    """Rows x [heads, T, D] rotated to any one position: turned[position], remembered."""

    def __init__(self, rope: Rope, x: Tensor) -> None:
        self.rope, self.x = rope, x
        self.known: dict[int, Tensor] = {}

    def __getitem__(self, position: int) -> Tensor:
        if position not in self.known:
            self.known[position] = self.rope.to_constant(self.x, position)
        return self.known[position]


def through(memory: WindowMemory, qkv: tuple[Tensor, Tensor, Tensor], chunk: int) -> Tensor:
    """The output of the last layer for a stream that passes in chunks; all layers are given the same."""
    q, k, v = qkv
    first, outputs = memory.seen, []
    for begin in range(0, q.shape[1], chunk):
        part = slice(begin, begin + chunk)
        memory.begin(torch.arange(first + begin, first + min(begin + chunk, q.shape[1]), dtype=torch.int32))
        for layer in range(len(memory.spec.layers)):
            output = memory.attend(layer, q[:, part], k[:, part], v[:, part], Scoring(SCALE))
        memory.commit()
        outputs.append(output)
    return torch.cat(outputs, dim=1)


def tail(qkv: tuple[Tensor, Tensor, Tensor], first: int, last: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens first .. last of a stream."""
    q, k, v = qkv
    return q[:, first:last], k[:, first:last], v[:, first:last]


def mixed(probability: Tensor, v: Tensor) -> Tensor:
    """Outputs [HQ, T, D] for probabilities [HQ, T, N]."""
    return probability @ v.repeat_interleave(GROUP, 0)


def full_attention(rope: Rope, q: Tensor, k: Tensor) -> Tensor:
    """Probabilities [HQ, T, T] of causal attention at true positions."""
    scores = rope.rotate(q, 0) @ rope.rotate(k, 0).repeat_interleave(GROUP, 0).transpose(1, 2) * SCALE
    return scores.masked_fill(torch.ones(q.shape[1], q.shape[1]).triu(1).bool(), float("-inf")).softmax(-1)


def attended(q: Turned, k: Turned, now: int, places: dict[int, tuple[int, int]]) -> Tensor:
    """Probabilities [HQ, T] of query `now` over tokens: {token: (position of the query, position of the key)}.

    q: [HQ, T, D]; k: [HQ, T, D], keys repeated for each head of a group.
    """
    logits = torch.full(k.x.shape[:2], float("-inf"))
    for token, (query_place, key_place) in places.items():
        logits[:, token] = (q[query_place][:, now] * k[key_place][:, token]).sum(-1) * SCALE
    return logits.softmax(-1)


def one_by_one(scores: list[list[float]], size: int, spared: int) -> list[int]:
    """How many entries heads keep, `size` on average, where the best that is left, of any head, is taken each time."""
    rest = size - spared
    least, most = (spared + round(factor * rest) for factor in (1 - SPREAD, 1 + SPREAD))
    ranked = [sorted(own, reverse=True) for own in scores]
    counts = [min(least, len(own)) for own in ranked]
    while sum(counts) < size * len(scores):
        free = [head for head, count in enumerate(counts) if count < min(most, len(ranked[head]))]
        counts[max(free, key=lambda head: ranked[head][counts[head]])] += 1
    return counts
