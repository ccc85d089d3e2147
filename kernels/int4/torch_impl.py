"""Unpacking weights of 4 bits in PyTorch, by views. Signature and meaning are those of `reference`."""

from __future__ import annotations

import torch
from torch import Tensor


def unpack(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute `reference.unpack` in PyTorch."""
    tiles, chunks, _, words = codes.shape
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=codes.device)
    # [tiles, chunks, row, pair, word, odd, eighth]: a column is 32 * word + 8 * eighth + 2 * pair + odd
    parts = codes.view(tiles, chunks, 8, 4, words, 1).bitwise_right_shift(shifts) & 15
    parts = parts.view(tiles, chunks, 8, 4, words, 2, 4)
    code = parts.permute(0, 2, 1, 4, 6, 3, 5).reshape(8 * tiles, len(scales), -1)
    scale, offset = scales.transpose(0, 1).float()[..., None].unbind(2)
    numbers: Tensor = ((code - 8) * scale).add_(offset).flatten(1)
    return numbers.to(dtype)
