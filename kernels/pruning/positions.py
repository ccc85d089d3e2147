"""Positions of keys while pruning, by rule. Sizes: NB query blocks, C chunks, R rotated width."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# Rules for a key's position while pruning (engine/positions.py uses them):
CONSTANT = 0  # 0
BRANCH = 1  # 0 in the first half of a range; 1 in the second, and for the representative of a chunk
CHUNK = 2  # the number of its chunk in this stage's list
TOKEN = 3  # (its row + offset) // group
FIXED = {CONSTANT, BRANCH}  # rules with position 0 or 1 for every key


@dataclass(frozen=True)
class KeyPositions:
    """Positions of keys while pruning.

    Attributes:
        rule: int64 [NB].
        group, offset: arguments of TOKEN; group is int64 [NB].
        cos, sin: [P, R/2], RoPE tables.
        possible_rules: a superset of the rules in `rule`; None if only reading `rule` can tell.
    """

    rule: Tensor
    group: Tensor
    offset: int
    cos: Tensor
    sin: Tensor
    possible_rules: frozenset[int] | None = None

    @cached_property
    def rules_present(self) -> frozenset[int]:
        """Rules that may occur in `rule`."""
        return frozenset(self.rule.tolist()) if self.possible_rules is None else self.possible_rules

    @property
    def fixed(self) -> Tensor:
        """Blocks whose keys all have position 0 or 1, bool [NB]."""
        return (self.rule == CONSTANT) | (self.rule == BRANCH)

    def of(self, index: Tensor, number: Tensor) -> Tensor:
        """Return the positions of keys for CHUNK and TOKEN, int64, broadcastable to [..., NB, C].

        Args:
            index: [..., NB, C], rows of the keys.
            number: [C], their chunks.
        """
        if self.rules_present == {CHUNK}:
            return number
        token = torch.div(index + self.offset, self.group[:, None], rounding_mode="floor")
        return torch.where((self.rule == CHUNK)[:, None], number, token)
