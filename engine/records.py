"""The records that the engine hands out: measurements, progress, answers. Plain data, no behaviour.

Page, command line, benchmarks and database consume the same records, so a number has one name everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

DEVICE, HOST, DISK = "device", "host", "disk"


@dataclass(frozen=True)
class Usage:
    """What a memory holds, counted from its tensors. What is on disk is mapped into memory when it is looked at.

    entries: tier -> entries per KV head and layer (the average, where they differ).
    bytes: tier -> bytes of all layers together, preallocated room included.
    traffic: of a device cache of the host tier, hits and misses in units, and moved_bytes; empty where there is none.
    stages: how often each stage of a pruning ran, over layers and passes, of a reading or a conversation since it was
    opened; empty where nothing is pruned.
    """

    entries: dict[str, int]
    bytes: dict[str, int]
    traffic: dict[str, int] = field(default_factory=dict, compare=False)
    stages: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ReadProgress:
    """One step of a reading. Seconds are of reading alone, over interruptions; tokens per second are those that it has
    read in them, without what a context that it goes on behind had read before.

    seconds: of everything; of these, distill_seconds choosing what is kept, catalyst_seconds the catalyst's tokens. On
    a GPU these two are the time in which that work was handed over, not done (`engine.loops.passes.Pass`).
    """

    stage: str  # "reading" | "distilling" | "ready"
    tokens_done: int
    tokens_total: int
    seconds: float
    distill_seconds: float
    catalyst_seconds: float
    tokens_per_second: float
    usage: Usage


@dataclass(frozen=True)
class Passage:
    """A stretch of the source that an answer rested on: tokens `start` to `end` (exclusive), `weight` of the mass."""

    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class AnswerPiece:
    """The next few characters of an answer, or of the reasoning before it."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True)
class Sentence:
    """A sentence of an answer, characters `start` to `end` (exclusive) of its text, and what it rested on, best first.

    Weights of passages are shares of the mass of the whole answer.
    """

    start: int
    end: int
    passages: list[Passage]


@dataclass(frozen=True)
class Answer:
    """A finished answer with its measurements.

    sentences: only where the caller says where they end; reasoning: what the model said to itself before, empty for
    most; tokens_per_second counts its tokens too, and the first token is one of them; reasoning_cut: whether it was as
    long as it may be, and was ended; read_again: tokens of the text that were, before it was answered;
    held_again, alone: see `rereading.Again`.
    """

    text: str
    finish_reason: str  # "stop" | "length" | "repetition"
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
    read_again: int = 0
    held_again: float = 1.0
    alone: bool = False


@dataclass(frozen=True)
class Part:
    """Named tensors that are saved together. A sealed part never changes once it has been written."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    sealed: bool = False


Parts: TypeAlias = dict[str, Part]
LoadedParts: TypeAlias = dict[str, dict[str, Tensor]]
