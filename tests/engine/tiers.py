"""Entries of a host tier."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.parts.archive.host_tier import HostTier
from kernels.gathering import gather_rows

HEADS, QUERY_HEADS, SIZE, LAYERS = 2, 6, 8, 3


def entries(count: int, seed: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Make random keys and values of `count` entries, with source positions that tell the seed."""
    generator = torch.Generator().manual_seed(seed)
    keys = [torch.randn(HEADS, count, SIZE, generator=generator) for _ in range(LAYERS)]
    values = [torch.randn(HEADS, count, SIZE, generator=generator) for _ in range(LAYERS)]
    return keys, values, torch.arange(count, dtype=torch.int32) + 1000 * seed


def gathered(tier: HostTier, layer: int, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values [HQ, T, K, D] of entries [HQ, T, K]."""
    banks, rows = (tier.keys(layer), tier.values(layer)), index.reshape(tier.spec.layers[layer].kv_heads, -1)
    keys, values = (gather_rows(bank, rows, index.device, tier.spec.dtype).view(*index.shape, -1) for bank in banks)
    return keys, values
