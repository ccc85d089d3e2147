"""Attention mass: how much attention each token of the source got while an answer was given."""

from __future__ import annotations

import torch
from torch import Tensor

NOT_IN_SOURCE = -1  # the source position of the prefix, the questions and the answers


def no_source(tokens: int) -> Tensor:
    """Return the source positions of tokens that are not in the source, int32 [T]."""
    return torch.full((tokens,), NOT_IN_SOURCE, dtype=torch.int32)


class AttentionMass:
    """Attention probability by source position, summed over layers, heads and queries."""

    def __init__(self, source_tokens: int, device: torch.device) -> None:
        """Start at zero. source_tokens: length of `total`."""
        self.sums = torch.zeros(source_tokens + 1, dtype=torch.float32, device=device)  # the first: not in the source

    @property
    def total(self) -> Tensor:
        """Mass of each source token, float32 [source_tokens]."""
        return self.sums[1:]

    def clear(self) -> None:
        """Set all sums to zero, at the same address."""
        self.sums.zero_()

    def add(self, source: Tensor, probability: Tensor) -> None:
        """Add the probability that fell on source positions.

        Probabilities of heads or queries that share positions are summed first, because adding one by one at the same
        address is slow.

        Args:
            source: int, broadcastable to `probability`, or [H, 1, 1, N], the positions of each KV head.
            probability: float32 [HQ, NB, N].
        """
        if source.dim() == 4:
            probability = probability.view(len(source), -1, *probability.shape[1:])
        place = source.reshape(-1).to(self.sums.device) - NOT_IN_SOURCE
        self.sums.index_add_(0, place, probability.sum_to_size(source.shape).reshape(-1).to(self.sums))

    def save(self) -> Tensor:
        """Return a copy of the sums, for `restore`."""
        return self.sums.clone()

    def restore(self, saved: Tensor) -> None:
        """Go back to the sums that `save` returned."""
        self.sums.copy_(saved)
