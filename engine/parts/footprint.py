"""Footprints: what a reading will hold and attend to, predicted before anything is allocated.

Each part of a memory gives its own footprint. `Method.plan` adds them up. All of it is arithmetic on sizes: the bytes
follow the tensors that the parts allocate, and tests compare the two.

Neutral values are the defaults, so a part states only its own share. Fields add up unless a comment says how two
parts combine.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from engine.records import DEVICE, Usage

TurnTokens = Callable[[str], int]  # number of tokens that a text takes as a turn

NO_LIMIT = 1 << 30  # queries
OPERATIONS = 190  # of PyTorch, views included, that a layer runs for a token of an answer


@dataclass(frozen=True)
class ReadingTask:
    """A text to be read."""

    tokens: int  # of the text
    prefix: int  # tokens that the chat template puts before it
    chunk: int  # most tokens of a pass
    turn_tokens: TurnTokens
    read: int = 0  # tokens of the text that a checkpoint holds already
    beginning_of: int = 0  # tokens of the longer text that this one begins, if it does

    @property
    def total(self) -> int:
        """Tokens with the prefix."""
        return self.prefix + self.tokens


def _both(a: Usage, b: Usage) -> Usage:
    """Return the entries and bytes of two parts, tier by tier."""
    return Usage(_tiers(a.entries, b.entries), _tiers(a.bytes, b.bytes))


def _tiers(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {**a, **{tier: a.get(tier, 0) + count for tier, count in b.items()}}


def _whole(a: float, b: float) -> float:
    """Return the sum, rounded: entries are whole."""
    return round(a + b)


class Additive:
    """A dataclass that can be added field by field."""

    def __add__(self, other: Self) -> Self:
        """Return what two parts have together."""
        values = {}
        for each in dataclasses.fields(self):  # type: ignore[arg-type]
            combine = each.metadata.get("combine", operator.add)
            values[each.name] = combine(getattr(self, each.name), getattr(other, each.name))
        return type(self)(**values)


@dataclass(frozen=True)
class Work(Additive):
    """Tokens that pass through the model and entries that they attend to, per KV head and layer."""

    passed: int = 0  # tokens that go through the model, catalyst prompts included
    inserted: int = 0  # the method's own tokens that go through it beside them
    attended: float = 0.0  # entries that a token attends to while reading, on average
    attended_per_answer_token: float = field(default=0, metadata={"combine": _whole})
    widest: int = 0  # most entries that one pass attends to, its own included
    positions: int = field(
        default=0, metadata={"combine": max}
    )  # highest position that is rotated to, if above `widest`
    operations: int = 0  # of PyTorch, views included, that a layer runs for a token of an answer on a CPU
    recorded: bool = field(
        default=True, metadata={"combine": operator.and_}
    )  # whether a GPU replays a recorded pass for such a token
    coded: bool = field(
        default=False, metadata={"combine": operator.or_}
    )  # whether entries are decoded, layer by layer, to be attended to
    explicit: bool = field(
        default=False, metadata={"combine": operator.or_}
    )  # whether reading needs a matrix of logits, or gathered keys


@dataclass(frozen=True)
class Lookup(Additive):
    """How queries search the archive, and what they fetch from it."""

    searched: int = 0  # entries that each token of an answer is compared with
    fetched: float = 0.0  # entries that a token of the text has sent over the link, as often as kernels ask for them
    asked: float = 0.0  # the same of a token of an answer, where kernels read host memory in place
    fetched_per_answer_token: int = 0
    looks: int = field(default=1, metadata={"combine": max})  # times that a question is asked
    search_every: int = field(default=1, metadata={"combine": max})  # tokens of an answer that one search serves
    in_place: bool = field(
        default=False, metadata={"combine": operator.or_}
    )  # whether a GPU searches over the link, rather than the host
    asked_together: int = field(
        default=NO_LIMIT, metadata={"combine": min}
    )  # most queries of a question that one search serves
    picking: float = 0.0  # query heads per KV head that select for themselves; 0 if they select together
    sketched: int = 0  # bytes on the device of one entry's sketches in all layers
    candidates: int = 0  # entries whose keys each query head fetches after a search by sketches


@dataclass(frozen=True)
class Footprint(Additive):
    """Bytes that a memory will hold, and its work."""

    usage: Usage = field(
        default=Usage({}, {}), metadata={"combine": _both}
    )  # when the reading is finished, as `Memory.usage` counts it
    condense_bytes: int = 0  # on the device, beside usage, while the memory is condensed or packed
    conversation_bytes: int = 0  # on the device, for the forks of a conversation
    saved_bytes: int = 0  # on disk, of what is in no slab, without rotated keys or unused capacity
    host_saving_bytes: int = 0  # in host memory, beside usage, while a slab is saved
    host_conversation_bytes: int = 0  # in host memory, for the first slabs of these forks
    resident: int = 0  # entries of the archive that lie on a GPU
    resident_bytes: int = 0  # their bytes, which are in usage too
    weight_bytes: int = 0  # on the device, of trained weights beside the model's
    work: Work = Work()
    lookup: Lookup = Lookup()
    arriving_bytes: int = field(
        default=0, metadata={"combine": max}
    )  # on the device, of a pass whose copy to the host is not finished; before the memory is condensed or packed

    @property
    def temporary_bytes(self) -> int:
        """Bytes on the device that a reading needs for a while, beside usage."""
        return max(self.condense_bytes, self.arriving_bytes)


def state_footprint(size: int) -> Footprint:
    """Return the footprint of the states of recurrent layers. size: bytes of one state of all of them.

    A pass needs two more. A conversation holds at most five: its own, those of a pass, and those from before the turn
    and before its answer.
    """
    return Footprint(Usage({}, {DEVICE: size}), 2 * size, 5 * size, size)


def mean_attended(tokens: int, limit: int) -> float:
    """Return how many entries a token sees on average, if each sees all before it and itself, up to `limit`."""
    if tokens <= limit:
        return (tokens + 1) / 2
    return (limit * (limit + 1) / 2 + (tokens - limit) * limit) / tokens
