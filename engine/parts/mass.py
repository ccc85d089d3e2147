"""Attention mass: how much attention each token of the source got while an answer was given."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_WAITING = 1 << 22  # numbers that wait to be added at most
NOT_IN_SOURCE = -1  # the source position of the prefix, the questions and the answers


def no_source(tokens: int) -> Tensor:
    """Return the source positions of tokens that are not in the source, int32 [T]."""
    return torch.full((tokens,), NOT_IN_SOURCE, dtype=torch.int32)


def mass_rows(source: Tensor) -> Tensor:
    """Return the rows of `AttentionMass.sums` for source positions, int [...]."""
    return source - NOT_IN_SOURCE


class AttentionMass:
    """Attention probability by source position, summed over layers, heads and queries.

    Layers of a pass wait for one another and are added together, since each addition is a kernel of its own.
    """

    def __init__(self, source_tokens: int, device: torch.device) -> None:
        """Start at zero. source_tokens: length of `total`."""
        self.sums = torch.zeros(source_tokens + 1, dtype=torch.float32, device=device)  # the first: not in the source
        self._waiting: dict[tuple[torch.Size, ...], list[tuple[Tensor, Tensor]]] = {}  # by shape
        self._num_waiting = 0  # numbers in them
        self._due: range | None = None  # queries of a held pass that are to be added; None where no pass is held

    @property
    def total(self) -> Tensor:
        """Mass of each source token, float32 [source_tokens]."""
        self.flush()
        return self.sums[1:]

    def clear(self) -> None:
        """Set all sums to zero, at the same address."""
        self._forget_waiting()
        self._due = None
        self.sums.zero_()

    def hold(self) -> None:
        """Let the queries of the next pass wait for `count`, until `release`: some may be left out."""
        self.flush()
        self._due = range(0)

    def count(self, queries: int) -> None:
        """Count so many more queries of a held pass, in their order."""
        assert self._due is not None, "no pass is held"
        self._due = range(self._due.start, self._due.stop + queries)

    def release(self) -> None:
        """Leave out the queries of a held pass that have not been counted."""
        self.flush()
        self._forget_waiting()
        self._due = None

    @property
    def holds(self) -> bool:
        """True if queries of the pass wait, each for itself."""
        return self._due is not None

    def add(self, rows: Tensor, probability: Tensor) -> None:
        """Add the probability that fell on rows of the sums.

        Probabilities of heads or queries that share positions are summed first, because adding one by one at the same
        address is slow.

        Args:
            rows: int (`mass_rows`), broadcastable to `probability`, or [H, 1, 1, N], those of each KV head.
            probability: float32 [HQ, NB, N]; [HQ, T, N] in a held pass.
        """
        if rows.dim() == 4:
            probability = probability.view(len(rows), -1, *probability.shape[1:])
            probability = probability.sum(dim=1, keepdim=True) if self.holds else probability
        else:
            rows = rows.view(*(1,) * (probability.dim() - rows.dim()), *rows.shape)
        self._waiting.setdefault((rows.shape, probability.shape), []).append((rows, probability))
        self._num_waiting += probability.numel()
        if self._num_waiting > MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Add to the sums what waits: of a held pass, what has been counted. The last layer of a pass asks for it."""
        due = self._due
        if due is not None and not due:
            return
        for alike in self._waiting.values():
            each = alike if due is None else [(rows, given[..., due.start : due.stop, :]) for rows, given in alike]
            rows, probability = (torch.stack(tensors) for tensors in zip(*each, strict=True))
            summed = probability.sum_to_size(rows.shape).reshape(-1)
            self.sums.index_add_(0, rows.reshape(-1).to(self.sums.device), summed.to(self.sums))
        if due is None:
            self._forget_waiting()
        else:
            self._due = range(due.stop, due.stop)

    def save(self) -> Tensor:
        """Return a copy of the sums, for `restore`."""
        self.flush()
        return self.sums.clone()

    def restore(self, saved: Tensor) -> None:
        """Go back to the sums that `save` returned."""
        self._forget_waiting()
        self.sums.copy_(saved)

    def _forget_waiting(self) -> None:
        self._waiting, self._num_waiting = {}, 0
