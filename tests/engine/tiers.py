"""Entries of a host tier."""

from __future__ import annotations

import torch
from torch import Tensor

HEADS, QUERY_HEADS, SIZE, LAYERS = 2, 6, 8, 3


def entries(count: int, seed: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Make random keys and values of `count` entries, with source positions that tell the seed."""
    generator = torch.Generator().manual_seed(seed)
    keys = [torch.randn(HEADS, count, SIZE, generator=generator) for _ in range(LAYERS)]
    values = [torch.randn(HEADS, count, SIZE, generator=generator) for _ in range(LAYERS)]
    return keys, values, torch.arange(count, dtype=torch.int32) + 1000 * seed
