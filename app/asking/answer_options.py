"""Options for answering, as a person may change them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import UsageError

SAMPLED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Sampling settings that a model may bring in its own configuration."""

LONGEST = 100_000
"""Most tokens of an answer, or of the reasoning before it."""

AT_ONCE = 4.5e9
"""Most weights of a model that by default answers at once, because it would reason for minutes on a processor."""

LOOKS = 3e8
"""Least weights of a model whose attention tells places: SmolLM2 (1.3e8) finds fewer with it than by words alone."""


@dataclass(frozen=True)
class AnswerOptions:
    """Options for one answer.

    temperature, top_p, top_k, min_p, repetition_penalty: sampling settings; None for the model's own.
    max_tokens: most tokens of the answer.
    max_reasoning: most tokens of the reasoning before the answer; 0 turns reasoning off.
    reason: whether a model that can reason first does so; None: only one with more than AT_ONCE weights.
    seed: seed of sampling; None takes the service's, or a random one if it has none.
    stop: texts that end the answer; they are not part of it.
    read_again: whether to answer from the passages that the question is about, read again alone.
    rules: text to put before the question, such as a program's system message. It is not kept.
    json_schema: the answer is JSON that fits it, without reasoning; None for any text.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int = 200
    max_reasoning: int = 4096
    seed: int | None = None
    stop: Sequence[str] = ()
    read_again: bool = True
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    rules: str = ""
    reason: bool | None = None
    json_schema: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse values that are impossible.

        Raises:
            UsageError, engine.SettingsError: a value is impossible.
        """
        if self.temperature is not None and not 0.0 <= self.temperature <= 5.0:
            raise UsageError(f"temperature must be between 0 and 5, not {self.temperature}.")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top-p must be above 0 and at most 1, not {self.top_p}.")
        if self.top_k is not None and self.top_k < 0:
            raise UsageError(f"top-k is 0 (all tokens) or more, not {self.top_k}.")
        if self.min_p is not None and not 0.0 <= self.min_p <= 1.0:
            raise UsageError(f"min-p must be between 0 and 1, not {self.min_p}.")
        if self.repetition_penalty is not None and not 0.5 <= self.repetition_penalty <= 5.0:
            raise UsageError(f"A repetition penalty is between 0.5 and 5, not {self.repetition_penalty}.")
        if not 1 <= self.max_tokens <= LONGEST:
            raise UsageError(f"An answer has 1 to {LONGEST:,} tokens, not {self.max_tokens}.")
        if not 0 <= self.max_reasoning <= LONGEST:
            raise UsageError(f"A reasoning has 0 to {LONGEST:,} tokens, not {self.max_reasoning}.")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise UsageError(f"A seed is a whole number from 0 to 2^63 - 1, not {self.seed}.")
        if not all(self.stop):
            raise UsageError("A text that ends an answer cannot be empty.")
        if self.json_schema is not None:
            if self.stop:
                raise UsageError("A text that ends an answer would cut its JSON: leave one of both out.")
            from engine import grammar_of  # loads slowly

            grammar_of(self.json_schema)

    def sampled(self) -> dict[str, Any]:
        """Return the sampling settings that a person has set."""
        return {name: getattr(self, name) for name in SAMPLED if getattr(self, name) is not None}
