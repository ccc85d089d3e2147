"""Records that the engine hands out: measurements, progress, answers. Plain data, no behaviour.

Page, command line, benchmarks and database use the same records, so a number has one name everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

DEVICE, HOST, DISK = "device", "host", "disk"


@dataclass(frozen=True)
class Usage:
    """Contents of a memory, counted from its tensors. Parts on disk are mapped into memory when they are read.

    Attributes:
        entries: per tier, entries per KV head and layer (the average if they differ).
        bytes: per tier, bytes of all layers, allocated capacity included.
        traffic: of a device bank: hits and misses in units, and moved_bytes. Empty without a bank.
        stages: how often each pruning stage ran, over layers and passes, since the reading or conversation was opened.
            Empty without pruning.
    """

    entries: dict[str, int]
    bytes: dict[str, int]
    traffic: dict[str, int] = field(default_factory=dict, compare=False)
    stages: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ReadProgress:
    """One step of a reading.

    Times are of reading alone, over interruptions. On a GPU, the parts of `seconds` are the time to launch their work
    (`engine.loops.passes.Pass`).

    Attributes:
        stage: "reading", "distilling" or "ready".
        tokens_done: tokens read so far.
        tokens_total: tokens to read.
        seconds: time of the whole reading.
        distill_seconds: part of it for condensing.
        catalyst_seconds: part of it for the catalyst's tokens.
        tokens_per_second: speed of this reading, without tokens that an earlier context had read.
        usage: the memory now.
    """

    stage: str
    tokens_done: int
    tokens_total: int
    seconds: float
    distill_seconds: float
    catalyst_seconds: float
    tokens_per_second: float
    usage: Usage


@dataclass(frozen=True)
class Passage:
    """A stretch of the text that an answer rested on.

    Attributes:
        start: first token.
        end: token behind the last one.
        weight: share of the attention mass.
    """

    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class AnswerPiece:
    """The next characters of an answer, or of the reasoning before it."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True)
class Sentence:
    """A sentence of an answer with its sources.

    Attributes:
        start: its first character in the answer's text.
        end: the character behind it.
        passages: sources, best first. Weights are shares of the mass of the whole answer.
    """

    start: int
    end: int
    passages: list[Passage]


@dataclass(frozen=True)
class Answer:
    """A finished answer with its measurements.

    Attributes:
        text: the answer.
        finish_reason: "stop", "length" or "repetition".
        passages: sources of the whole answer.
        sentences: sources of each sentence; empty unless the caller finds their ends.
        prompt_tokens: tokens of the question with its template.
        answer_tokens: tokens of the text.
        time_to_first_token_sec: time until the first token, reasoning included.
        decode_sec: time after it.
        tokens_per_second: speed over reasoning and answer.
        usage: the memory after the turn.
        reasoning: the model's thoughts before the answer; empty for most models.
        reasoning_tokens: tokens of them.
        reasoning_sec: time for them.
        reasoning_cut: whether they reached their limit and were ended.
        logprob: mean natural logarithm of the probability of the answer's tokens, its end included.
        least_logprob: that of the least probable one.
        read_again: tokens of the text that were read again, and from which alone the answer was given, in its order.
            Empty for an answer from the memory.
        from_memory: what the memory answered by itself, as far as it was asked; "" if it was not.
    """

    text: str
    finish_reason: str
    passages: list[Passage]
    sentences: list[Sentence]
    prompt_tokens: int
    answer_tokens: int
    time_to_first_token_sec: float
    decode_sec: float
    tokens_per_second: float
    usage: Usage
    reasoning: str = ""
    reasoning_tokens: int = 0
    reasoning_sec: float = 0.0
    reasoning_cut: bool = False
    logprob: float = 0.0
    least_logprob: float = 0.0
    read_again: tuple[range, ...] = ()
    from_memory: str = ""


@dataclass(frozen=True)
class Part:
    """Named tensors that are saved together. A sealed part never changes once it is written."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    sealed: bool = False


Parts: TypeAlias = dict[str, Part]
LoadedParts: TypeAlias = dict[str, dict[str, Tensor]]
