"""Reading again: a part of the text is read once more before a question is answered, as if the text ended with it.

A person may name it: the pages that a question is about. Else it is what the question looks at, where the memory no
longer holds all of that: of a text of which few entries are kept, what is left of a passage is often too little to
answer from, and still it is there that the tokens of a question look. So the question is asked twice. After the first
time the passages that it looked at most are read again, word for word; the second time it is answered.

What was read again is forgotten with the answer. Until then it is in a fork of its own, which a plan counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.parts.archive.focus import AROUND, MOST
from engine.parts.sources import passages

ANSWER = 64  # entries that are left free for the beginning of an answer


@dataclass(frozen=True)
class Reread:
    """What was read again: so many tokens.

    held: of the KV heads that were to hold them when the question came, those that did, 0 to 1; alone: whether nothing
    else of the text was remembered then.
    """

    tokens: int
    held: float = 1.0
    alone: bool = False


def to_read_again(mass: Tensor, remembered: Tensor) -> list[Tensor]:
    """What of the text is to be read again: passages, best first.

    Args:
        mass: float32 [tokens], attention that a question gave to each token of the text.
        remembered: float32 [tokens], the share of KV heads that hold it; passages that all of them hold stay out.

    Returns:
        The tokens of each, int64 [N], ascending; none of them twice.
    """
    free = torch.ones(len(mass), dtype=torch.bool)
    found = []
    for passage in passages(mass, MOST, least=0.0):
        around = slice(max(0, passage.start - AROUND), passage.end + AROUND)
        if bool(remembered[around].eq(1).all()):
            continue
        found.append(around.start + free[around].nonzero()[:, 0])
        free[around] = False
    return found
