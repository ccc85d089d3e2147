"""What a reading will keep and look at, worked out before it begins: what `Method.plan` tells the planner.

All of it is arithmetic on sizes. The bytes follow the tensors that the memories allocate: `window_bytes` stands beside
those tensors in `window.py`, `slot_bytes` in `slot_plan.py` and `host_bytes` in `tier_plan.py`, and tests compare the
two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from engine.records import DEVICE, Usage

TurnTokens = Callable[[str], int]  # how many tokens a text takes when it is put to the model as a turn


@dataclass(frozen=True)
class Task:
    """What is to be read.

    tokens: of the text; prefix: what the chat template puts before it; chunk: tokens per pass at most; read: of the
    text, what a checkpoint holds that is gone on from; beginning_of: where it is the beginning of a longer text, the
    tokens of all of that.
    """

    tokens: int
    prefix: int
    chunk: int
    turn_tokens: TurnTokens
    read: int = 0
    beginning_of: int = 0

    @property
    def total(self) -> int:
        """Tokens with the prefix."""
        return self.prefix + self.tokens


@dataclass(frozen=True)
class Footprint:
    """What a memory will hold and what its tokens will attend to. Entries are per KV head and layer.

    usage: when the reading is finished, as `Memory.usage` will count it.
    spare_bytes: on the device, beside that, for the moments in which the memory is condensed or packed.
    tail_bytes: on the device, for a conversation's forks: its own, and the one in which something is read again, which
        may be condensed or packed.
    saved_bytes: on disk, of what is in no slab of the host tier, without rotated keys or room that is not used.
    host_spare_bytes: in host memory, beside usage, while the text is read or saved.
    host_tail_bytes: in host memory, for the first slabs of these forks.
    operations: of PyTorch, views included, that a layer takes for a token of an answer, however little they do.
    recorded: whether such a token's pass is one that a GPU repeats as it was recorded (`graphs.py`).
    passed: tokens that go through the model, catalyst prompts included.
    attended: entries that a token attends to while reading, on average.
    widest: entries that one pass attends to at most, its own included.
    positions: to which queries and keys are rotated, if they are more than that.
    answering: entries that a token of an answer attends to.
    searched: entries of the host tier that each token of an answer is compared with, unless it looks only where its
        question found something.
    sketched, candidates: of those that are compared by sketches on the device, bytes of an entry's in all layers; and
        how many entries' keys each query head fetches then, to compare them as they are.
    in_place: whether whoever computes attention searches, a GPU over the link; else the host does.
    asked_together: queries of a question that one search serves, at most: so many are in a pass.
    picking: query heads for each KV head, where each of them picks by itself what is brought for it, for each token of
    a question too; 0 where they choose together.
    search_every: tokens of an answer for which one search serves.
    brought, brought_answering: entries of the host tier that are read for a token of the text, for one of an answer.
    looks: how often a question is asked.
    inserted: tokens of the method's own that go through the model beside them.
    weight_bytes: on the device, of trained weights that the method has beside the model's.
    coded: whether entries are turned from codes into numbers, a layer's at a time, before they are attended to.
    codes_read_by: queries of a pass, at most, for which a GPU reads codes in place instead.
    explicit: whether reading takes a matrix of logits, or of keys gathered for it; else it runs in fused kernels.
    """

    usage: Usage
    spare_bytes: int
    tail_bytes: int
    saved_bytes: int
    passed: int
    attended: float
    widest: int
    answering: int
    searched: int = 0
    sketched: int = 0
    candidates: int = 0
    in_place: bool = False
    asked_together: int = 1 << 30
    picking: float = 0.0
    search_every: int = 1
    brought: float = 0.0
    brought_answering: int = 0
    looks: int = 1
    inserted: int = 0
    weight_bytes: int = 0
    coded: bool = False
    codes_read_by: int = 0
    explicit: bool = False
    host_spare_bytes: int = 0
    host_tail_bytes: int = 0
    positions: int = 0
    operations: int = 190
    recorded: bool = False

    def with_states(self, size: int) -> Footprint:
        """With so many bytes of recurrent layers' states: a memory's, those on the way through a pass, and of a
        conversation all of these, those of before the turn and before its answer, and those that are on their way
        through a pass that was recorded.
        """
        kept = {**self.usage.bytes, DEVICE: self.usage.bytes[DEVICE] + size}
        return dataclasses.replace(
            self,
            usage=dataclasses.replace(self.usage, bytes=kept),
            spare_bytes=self.spare_bytes + 2 * size,
            tail_bytes=self.tail_bytes + 5 * size,
            saved_bytes=self.saved_bytes + size,
        )


def mean_attended(tokens: int, limit: int) -> float:
    """Entries that a token attends to on average where each sees all before it, itself included, up to `limit`."""
    if tokens <= limit:
        return (tokens + 1) / 2
    return (limit * (limit + 1) / 2 + (tokens - limit) * limit) / tokens
