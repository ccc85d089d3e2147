"""Rotary position embedding (RoPE) from tables, half-split: dimension i is paired with i + R/2 (R <= D rotated)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [..., D] by cos and sin, broadcastable to [..., R/2], in the dtype of x."""
    half = cos.shape[-1]
    if half == 0:
        return x
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = (first * cos).addcmul_(second, sin, value=-1), (second * cos).addcmul_(first, sin)
    return torch.cat((*turned, x[..., 2 * half :]), dim=-1)
