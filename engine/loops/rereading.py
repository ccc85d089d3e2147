"""Rereading: a part of the text is read once more before a question is answered, as if the text ended with it.

A person may name that part: the pages that a question is about. Otherwise it is the passages that the question attends
to, where the memory has forgotten some of them. If a method keeps few entries, the remains of a passage are often not
enough to answer from, and still the question's tokens attend to them. So the question is asked twice: the first time
finds the passages, which are then read again word for word, and the second time it is answered.

Reread tokens are forgotten with the answer. Until then they are in a fork of their own, which a plan counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.parts.archive.focus import AROUND, MOST
from engine.parts.sources import passages

ANSWER = 64  # entries kept free for the beginning of an answer


@dataclass(frozen=True)
class Reread:
    """Facts of a rereading.

    Attributes:
        tokens: number of tokens that were read again.
        held: share of the KV heads, 0 to 1, that still held these tokens when the question came.
        alone: whether the rest of the text was dropped from the memory to make space.
    """

    tokens: int
    held: float = 1.0
    alone: bool = False


def to_read_again(mass: Tensor, remembered: Tensor) -> list[Tensor]:
    """Choose the passages to read again, best first.

    Args:
        mass: float32 [tokens], the attention of a question to each token of the text.
        remembered: float32 [tokens], the share of KV heads that hold it. Passages that all heads hold are left out.

    Returns:
        The positions of each passage, int64 [N], ascending, without overlap.
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
