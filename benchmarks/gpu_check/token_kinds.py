"""Tokens of an answer, one by one: how each was computed, and how long it took."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from torch import Tensor

from engine import Model
from engine.decode.recorder import Recorder
from engine.memory import Memory
from engine.parts.selectors.beside_window import WindowSelector
from engine.parts.selectors.pruned import PruningSelector

REPLAYED, UNRECORDED, RECORDED_ANEW = "replayed", "unrecorded", "recorded anew"
KINDS = (REPLAYED, UNRECORDED, RECORDED_ANEW)
LEAST = 16  # tokens of an answer below which its speed says nothing


class TokenKinds(Recorder):
    """A model's recorder that notes how it ran each token, and when."""

    def __init__(self, recorder: Recorder) -> None:
        """Watch what a recorder does."""
        vars(self).update(vars(recorder))
        self.kinds: list[str] = []
        self.times: list[float] = []
        # Before each token whose memory has a bank: the stage where its choice restarts, and counts so far
        self.counts: list[tuple[int, Tensor]] = []

    def step(self, ids: Tensor, memory: Memory) -> Tensor | None:
        """Run one token as the recorder does."""
        self.times.append(time.monotonic())
        before = set(map(id, memory.recordings.values()))
        self._note_counts(memory)
        hidden = super().step(ids, memory)
        anew = any(id(each) not in before for each in memory.recordings.values())
        self.kinds.append(UNRECORDED if hidden is None else RECORDED_ANEW if anew else REPLAYED)
        return hidden

    def _note_counts(self, memory: Memory) -> None:
        selector = memory.selector
        if isinstance(selector, WindowSelector) and selector.bank is not None:
            stage = selector.pruning.restart() if isinstance(selector, PruningSelector) else 0
            self.counts.append((stage or 0, selector.bank.traffic.counts.sum(dim=0)))

    def facts(self, ended: float) -> dict[str, Any]:
        """Return counts of the kinds, each token's seconds, and the speed of those that were replayed."""
        ends = [*self.times[1:], ended]
        tokens = [(end - begin, kind) for begin, end, kind in zip(self.times, ends, self.kinds, strict=True)]
        counts = Counter(self.kinds)
        replayed = [seconds for seconds, kind in tokens if kind == REPLAYED]
        return {
            **{kind.replace(" ", "_"): counts[kind] for kind in KINDS},
            "token_seconds": [list(each) for each in tokens],
            **self._hits(),
            "replayed_per_second": 1 / statistics.median(replayed) if len(replayed) >= LEAST else None,
        }

    def _hits(self) -> dict[str, Any]:
        """Return hits and misses of a bank by the stage where choosing restarted (InfiniteHiP, Table 4).

        Those of the last token are not among them.
        """
        found: dict[int, list[int]] = {}
        for (stage, before), (_, after) in pairwise(self.counts):
            sums = found.setdefault(stage, [0, 0])
            found[stage] = [each + new for each, new in zip(sums, (after - before).tolist(), strict=True)]
        looked_up = {stage: counts for stage, counts in sorted(found.items()) if sum(counts)}
        if not looked_up:
            return {}
        hits, misses = (sum(each) for each in zip(*looked_up.values(), strict=True))
        return {"bank_counts": looked_up, "hit_ratio": hits / (hits + misses)}


@contextmanager
def watched(model: Model) -> Iterator[TokenKinds]:
    """Note how each token of the answers inside the block is computed."""
    before = model.recorder
    model.recorder = kinds = TokenKinds(before)
    try:
        yield kinds
    finally:
        model.recorder = before
