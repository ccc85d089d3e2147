"""Choosing the next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import NO_NUMBERS, ModelError
from engine.method import require

LIKELY = 1024  # tokens among which the nucleus mostly is; to sort a vocabulary of 150K takes as long as many a pass


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when to stop.

    temperature 0 is greedy; top_p: nucleus; max_tokens: of one answer; stop: texts that end it; seed: of chance;
    max_reasoning: tokens that a model may think before it is made to answer; 0: it answers at once.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 200
    stop: tuple[str, ...] = ()
    seed: int = 0
    max_reasoning: int = 4096

    def __post_init__(self) -> None:
        """Reject what cannot be."""
        require(self.temperature >= 0.0, f"temperature cannot be negative ({self.temperature}).")
        require(0.0 < self.top_p <= 1.0, f"top_p must be above 0 and at most 1, not {self.top_p}.")
        require(self.max_tokens >= 1, f"max_tokens is at least 1, not {self.max_tokens}.")
        require(self.max_reasoning >= 0, f"max_reasoning is at least 0, not {self.max_reasoning}.")
        require(all(self.stop), "A stop text cannot be empty.")


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """One token id from logits [vocabulary].

    Raises:
        ModelError: they are no numbers.
    """
    if not torch.isfinite(logits.amax()):
        raise ModelError(f"The model gives no numbers for its next word: {NO_NUMBERS}")
    if sampling.temperature == 0.0:
        return int(logits.argmax())
    behind = logits.double() - logits.amax()  # at most 0, so that no temperature makes them infinite
    probabilities = (behind / sampling.temperature).softmax(dim=-1).float()
    if sampling.top_p == 1.0:
        return int(torch.multinomial(probabilities.cpu(), 1, generator=generator))
    ordered, ids = probabilities.topk(min(LIKELY, len(probabilities)))
    if ordered.sum() < sampling.top_p:
        ordered, ids = probabilities.sort(descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= sampling.top_p, 0.0)
    return int(ids[int(torch.multinomial(ordered.cpu(), 1, generator=generator))])
