"""Drafts: tokens that may come next in an answer, copied from the text or the chat and checked in one pass.

An answer that quotes says what stands somewhere already. So the last place where its latest tokens stand is looked up,
and the tokens behind it pass together with the latest one. Such a pass takes little longer than one of a single token,
and gives the logits behind each. The next token is chosen from these as it would be without a draft, by sampling too.
If it is the drafted one, it has passed already; otherwise the rest of the draft is left out of the memory.

Source: Inference with Reference (https://arxiv.org/abs/2304.04487), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.memory import Memory
from engine.memory_usage import oom_as_engine_error
from engine.model import Model
from engine.models.experts import experts_in
from engine.parts.mass import AttentionMass, no_source

LEAST_EQUAL, MOST_EQUAL = 2, 4  # last tokens that must stand before a draft, and for how many one place may beat others
FIRST, LONGEST = 4, 8  # tokens of the first draft, and of any
PRICE = 0.125  # of a drafted token, in passes of one token; 0.05 in bfloat16 (`benchmarks.drafts`)
LOSS, LOSS_PER_TOKEN = 1.0, 0.03  # passes that wrong drafts may cost
MOST_HELD = 1 << 22  # numbers of attention that wait until a draft is checked, at most


class Drafts:
    """Finds tokens that may come next, and stops where they turn out wrong too often."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        """Copy from these tokens, int64 [T] each, and from those of the answer. The latest come last."""
        self._ids = torch.cat([*known]).numpy()
        self._most = FIRST
        self._balance = LOSS  # passes that have been saved, less those that were paid

    def add(self, tokens: Sequence[int]) -> None:
        """Add tokens of the answer."""
        self._ids = np.append(self._ids, tokens)
        self._balance += LOSS_PER_TOKEN * len(tokens)

    def following(self, most: int) -> list[int]:
        """Return up to `most` tokens behind the last place where the most of the latest tokens stand, at least two.

        There are at most twice as many as were right the last time, and two; none where drafts do not pay.
        """
        ids = self._ids
        if self._balance < 0.0 or len(ids) <= LEAST_EQUAL:
            return []
        behind = np.flatnonzero((ids[:-2] == ids[-2]) & (ids[1:-1] == ids[-1])) + LEAST_EQUAL
        for equal in range(LEAST_EQUAL + 1, MOST_EQUAL + 1):
            longer = behind[behind >= equal]
            longer = longer[ids[longer - equal] == ids[-equal]]
            behind = longer if len(longer) else behind
        return ids[behind[-1] :][: min(most, self._most)].tolist() if len(behind) else []

    def checked(self, drafted: int, right: int) -> None:
        """Learn how many tokens of a draft were right."""
        self._most = min(LONGEST, 2 * right + 2)
        self._balance += right - PRICE * drafted


class DraftedPasses:
    """The passes of an answer's tokens, with drafts where they fit and pay.

    They fit a memory that keeps everything, where tokens are not recorded, and models without recurrent layers and
    without experts: each token of a pass would have experts of its own to read.
    """

    def __init__(
        self, model: Model, memory: Memory, mass: AttentionMass, feed: Callable[[list[int]], Tensor], drafts: Drafts
    ) -> None:
        """Begin behind a question.

        Args:
            model: answers.
            memory: takes the tokens.
            mass: counts their attention.
            feed: adds tokens without a draft, and returns the hidden state [hidden] of the last.
            drafts: finds the tokens that may come.
        """
        self._model, self._memory, self._mass, self._feed, self._drafts = model, memory, mass, feed, drafts
        alike = not model.spec.recurrent and not experts_in(model.network)
        self._fit = memory.keeps_all and alike and not model.recorder.possible
        self._heads = sum(layer.kv_heads for layer in model.spec.layers)
        self._draft: list[int] = []  # of the pass that has not ended
        self._right = 0  # tokens of it that the answer has
        self._logits = torch.empty(0)  # behind the token before the draft, and behind each of the draft

    def logits(self, coming: list[int]) -> Tensor:
        """Add tokens to the answer and return logits [vocabulary] for the next one."""
        if self._fit:
            self._drafts.add(coming)
        if coming == self._draft[self._right : self._right + 1]:
            self._right += 1
            self._mass.count(1)
            return self._logits[self._right]
        self.end()
        self._draft = self._drafts.following(self._longest()) if self._fit and len(coming) == 1 else []
        if not self._draft:
            return self._model.logits(self._feed(coming))
        self._mass.hold()
        ids = torch.tensor(coming + self._draft)
        self._logits = self._model.logits(self._model.forward(ids, self._memory, no_source(len(ids))))
        self._right = 0
        self._mass.count(1)
        return self._logits[0]

    def end(self) -> None:
        """End the last pass: the memory keeps the tokens that the answer has, and no others."""
        if self._draft:
            with oom_as_engine_error(self._model.device, "after a draft"):
                self._memory.end_pass(kept=1 + self._right)
            self._mass.release()
            self._drafts.checked(len(self._draft), self._right)
            self._draft = []

    def _longest(self) -> int:
        """Return how many tokens a draft may have: the pass has one more, and their attention waits."""
        held = self._heads * (self._memory.store.entries + LONGEST)
        return max(0, min(LONGEST, self._memory.pass_limit() - 1, MOST_HELD // held - 1))
