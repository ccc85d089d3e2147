"""Shared parts of the plain implementations of the retrieving papers: token by token, one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.memory import Memory
from engine.models.rope import Rope
from engine.models.spec import Scoring
from engine.parts.sharing import SPREAD

SCALE = 8**-0.5
GROUP = 3  # query heads per KV head


def stream(count: int, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Make q [6, T, 8], k and v [2, T, 8]."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(heads, count, 8, generator=generator) for heads in (6, 2, 2))  # type: ignore[return-value]


class Turned:
    """Rows x [heads, T, D] rotated to one position: turned[position]. Rotations are cached."""

    def __init__(self, rope: Rope, x: Tensor) -> None:
        self.rope, self.x = rope, x
        self.known: dict[int, Tensor] = {}

    def __getitem__(self, position: int) -> Tensor:
        if position not in self.known:
            self.known[position] = self.rope.to_constant(self.x, position)
        return self.known[position]


def through(memory: Memory, qkv: tuple[Tensor, Tensor, Tensor], chunk: int) -> Tensor:
    """Pass a stream through all layers in chunks, with equal inputs, and return the last layer's output."""
    q, k, v = qkv
    first, outputs = memory.seen, []
    for begin in range(0, q.shape[1], chunk):
        part = slice(begin, begin + chunk)
        memory.begin_pass(torch.arange(first + begin, first + min(begin + chunk, q.shape[1]), dtype=torch.int32))
        for layer in range(len(memory.spec.layers)):
            output = memory.attend(layer, q[:, part], k[:, part], v[:, part], Scoring(SCALE))
        memory.end_pass()
        outputs.append(output)
    return torch.cat(outputs, dim=1)


def tail(qkv: tuple[Tensor, Tensor, Tensor], first: int, last: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens `first` to `last` of a stream."""
    q, k, v = qkv
    return q[:, first:last], k[:, first:last], v[:, first:last]


def mixed(probability: Tensor, v: Tensor) -> Tensor:
    """Return outputs [HQ, T, D] for probabilities [HQ, T, N]."""
    return probability @ v.repeat_interleave(GROUP, 0)


def full_attention(rope: Rope, q: Tensor, k: Tensor) -> Tensor:
    """Return probabilities [HQ, T, T] of causal attention at true positions."""
    scores = rope.rotate(q, 0) @ rope.rotate(k, 0).repeat_interleave(GROUP, 0).transpose(1, 2) * SCALE
    return scores.masked_fill(torch.ones(q.shape[1], q.shape[1]).triu(1).bool(), float("-inf")).softmax(-1)


def attended(q: Turned, k: Turned, now: int, places: dict[int, tuple[int, int]]) -> Tensor:
    """Return probabilities [HQ, T] of query `now` over tokens.

    Args:
        q: [HQ, T, D].
        k: [HQ, T, D], keys repeated for each head of a group.
        places: {token: (position of the query, position of the key)}.
    """
    logits = torch.full(k.x.shape[:2], float("-inf"))
    for token, (query_place, key_place) in places.items():
        logits[:, token] = (q[query_place][:, now] * k[key_place][:, token]).sum(-1) * SCALE
    return logits.softmax(-1)


def one_by_one(scores: list[list[float]], size: int, spared: int) -> list[int]:
    """Count entries kept by heads, `size` on average, taking the best remaining entry of any head each time."""
    rest = size - spared
    least, most = (spared + round(factor * rest) for factor in (1 - SPREAD, 1 + SPREAD))
    ranked = [sorted(own, reverse=True) for own in scores]
    counts = [min(least, len(own)) for own in ranked]
    while sum(counts) < size * len(scores):
        free = [head for head, count in enumerate(counts) if count < min(most, len(ranked[head]))]
        counts[max(free, key=lambda head: ranked[head][counts[head]])] += 1
    return counts
