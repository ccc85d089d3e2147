"""Sampling: the choice of the next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from engine.errors import NO_NUMBERS, ModelError, SettingsError, require

LIKELY = 1024  # tokens that mostly contain the nucleus; sorting a vocabulary of 150K takes as long as a pass


@dataclass(frozen=True)
class Sampling:
    """Settings of the choice of tokens, and limits of an answer.

    Attributes:
        temperature: 0 is greedy.
        top_p: mass of the nucleus.
        max_tokens: tokens of one answer at most.
        stop: texts that end an answer.
        seed: of the random generator.
        max_reasoning: tokens of reasoning at most, after which the model must answer. 0: it answers at once.
        top_k: number of likeliest tokens to choose from, 0 for all.
        min_p: least probability of a token, as a share of the likeliest token's.
        repetition_penalty: divides the logits of tokens that the answer already has; 1 for none.
        json_schema: the answer is JSON that fits it, without reasoning. A cut answer is completed. None for any text.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 200
    stop: tuple[str, ...] = ()
    seed: int = 0
    max_reasoning: int = 4096
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    json_schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Reject values out of range."""
        require(self.temperature >= 0.0, f"temperature cannot be negative ({self.temperature}).")
        require(0.0 < self.top_p <= 1.0, f"top_p must be above 0 and at most 1, not {self.top_p}.")
        require(self.top_k >= 0, f"top_k cannot be negative ({self.top_k}).")
        require(0.0 <= self.min_p <= 1.0, f"min_p must be between 0 and 1, not {self.min_p}.")
        require(self.repetition_penalty > 0.0, f"repetition_penalty must be above 0, not {self.repetition_penalty}.")
        require(self.max_tokens >= 1, f"max_tokens is at least 1, not {self.max_tokens}.")
        require(self.max_reasoning >= 0, f"max_reasoning is at least 0, not {self.max_reasoning}.")
        require(all(self.stop), "A stop text cannot be empty.")
        require(not self.stop or self.json_schema is None, "A stop text would cut the JSON: leave one of both out.")


def own_sampling(published: GenerationConfig | None) -> Sampling:
    """Return a model's sampling by its generation config, for people who choose none.

    A config without these settings, or with invalid ones, means greedy.
    """
    found: dict[str, Any] = {}
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty"):
        value = getattr(published, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    samples = getattr(published, "do_sample", None)
    if samples is False or (samples is None and "temperature" not in found):
        found["temperature"] = 0.0
    found.setdefault("temperature", 1.0)  # transformers' default for models that sample
    found["top_k"] = max(0, int(found.get("top_k", 0)))  # some configs write -1 for none
    try:
        return Sampling(**found)
    except SettingsError:
        return Sampling()


def penalize(logits: Tensor, said: Sequence[int], penalty: float) -> Tensor:
    """Return logits [vocabulary] with lower values for tokens already said, as in CTRL (arXiv:1909.05858).

    Only tokens of the answer count. Those of the text must stay likely, since answers consist of them.
    """
    if penalty == 1.0 or not said:
        return logits
    ids = torch.tensor(sorted(set(said)), device=logits.device)
    spoken = logits[ids]
    return logits.index_copy(0, ids, torch.where(spoken > 0, spoken / penalty, spoken * penalty))


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Choose one token id from logits [vocabulary].

    Raises:
        ModelError: the logits are not finite.
    """
    if not torch.isfinite(logits.amax()):
        raise ModelError(f"The model gives no numbers for its next word: {NO_NUMBERS}")
    if sampling.temperature == 0.0:
        return int(logits.argmax())
    behind = logits.double() - logits.amax()  # at most 0, so that no temperature makes it infinite
    probabilities = (behind / sampling.temperature).softmax(dim=-1).float()
    kept = probabilities
    ids: Tensor | None = None
    if sampling.top_k:
        kept, ids = probabilities.topk(min(sampling.top_k, len(probabilities)))
        kept = kept / kept.sum()
    elif sampling.top_p < 1.0:
        kept, ids = probabilities.topk(min(LIKELY, len(probabilities)))
        if kept.sum() < sampling.top_p:
            kept, ids = probabilities.sort(descending=True)
    if sampling.top_p < 1.0:
        before = kept.cumsum(dim=-1) - kept
        kept = kept.masked_fill(before >= sampling.top_p, 0.0)
    if sampling.min_p:
        kept = kept.masked_fill(kept < sampling.min_p * kept.amax(), 0.0)
    drawn = int(torch.multinomial(kept.cpu(), 1, generator=generator))
    return drawn if ids is None else int(ids[drawn])


def log_probability(logits: Tensor, token: int) -> float:
    """Return the natural logarithm of a token's probability by logits [vocabulary]."""
    return float(logits[token].float() - logits.float().logsumexp(dim=0))
