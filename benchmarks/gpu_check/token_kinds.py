"""Tokens of an answer, one by one: how each was computed, and how long it took."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from engine import Model
from engine.decode.recorder import Recorder
from engine.memory import Memory

REPLAYED, UNRECORDED, RECORDED_ANEW = "replayed", "unrecorded", "recorded anew"
KINDS = (REPLAYED, UNRECORDED, RECORDED_ANEW)
LEAST = 16  # tokens of an answer below which its speed says nothing


class TokenKinds(Recorder):
    """A model's recorder that notes how it ran each token, and when."""

    def __init__(self, recorder: Recorder) -> None:
        """Watch a recorder."""
        vars(self).update(vars(recorder))
        self.kinds: list[str] = []
        self.times: list[float] = []

    def step(self, ids: Tensor, memory: Memory) -> Tensor | None:
        """Run one token as the recorder does."""
        self.times.append(time.monotonic())
        before = set(map(id, memory.recordings.values()))
        hidden = super().step(ids, memory)
        anew = any(id(each) not in before for each in memory.recordings.values())
        self.kinds.append(UNRECORDED if hidden is None else RECORDED_ANEW if anew else REPLAYED)
        return hidden

    def facts(self, ended: float) -> dict[str, Any]:
        """Return counts of the kinds, each token's seconds, and the speed of those that were replayed."""
        ends = [*self.times[1:], ended]
        tokens = [(end - begin, kind) for begin, end, kind in zip(self.times, ends, self.kinds, strict=True)]
        counts = Counter(self.kinds)
        replayed = [seconds for seconds, kind in tokens if kind == REPLAYED]
        return {
            **{kind.replace(" ", "_"): counts[kind] for kind in KINDS},
            "token_seconds": [list(each) for each in tokens],
            "replayed_per_second": 1 / statistics.median(replayed) if len(replayed) >= LEAST else None,
        }


@contextmanager
def watched(model: Model) -> Iterator[TokenKinds]:
    """Note how each token of the answers inside the block is computed."""
    before = model.recorder
    model.recorder = kinds = TokenKinds(before)
    try:
        yield kinds
    finally:
        model.recorder = before
