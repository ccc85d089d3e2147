"""Norms and gates in PyTorch, in few operations. Signatures and meaning are those of `reference`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, shift: float, early: bool) -> Tensor:
    """Return `reference.rms_norm`."""
    width, dtype = weight.shape, x.dtype
    if dtype.itemsize >= 4:
        return F.rms_norm(x, width, weight + shift if shift else weight, eps)
    normed = F.rms_norm(x.float(), width, None, eps)
    if early and not shift:
        return normed.to(dtype).mul_(weight)
    return normed.mul_(weight.float() + shift if shift else weight.to(torch.float32)).to(dtype)


def gated(x: Tensor, gate: str) -> Tensor:
    """Return `reference.gated`."""
    first, second = x.chunk(2, dim=-1)
    return (F.silu(first) if gate == "silu" else F.gelu(first, approximate="tanh")).mul_(second)
