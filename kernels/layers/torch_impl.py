"""Small steps of a layer in PyTorch, in few operations. Signatures and meaning are those of `reference`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import softmax
from kernels.rotation import rotate
from kernels.rows import put_rows


def rms_norm(x: Tensor, weight: Tensor, eps: float, shift: float, early: bool) -> Tensor:
    """Compute `reference.rms_norm` in PyTorch."""
    width, dtype = weight.shape, x.dtype
    if dtype.itemsize >= 4:
        return F.rms_norm(x, width, weight + shift if shift else weight, eps)
    normed = F.rms_norm(x.float(), width, None, eps)
    if early and not shift:
        return normed.to(dtype).mul_(weight)
    return normed.mul_(weight.float() + shift if shift else weight.to(torch.float32)).to(dtype)


def gated(x: Tensor, gate: str) -> Tensor:
    """Compute `reference.gated` in PyTorch."""
    first, second = x.chunk(2, dim=-1)
    return (F.silu(first) if gate == "silu" else F.gelu(first, approximate="tanh")).mul_(second)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Compute `reference.turn` in PyTorch."""
    return rotate(x, cos, sin)


def append(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    at: int | Tensor,
    keys: Tensor,
    rotated: Tensor,
    values: Tensor,
) -> Tensor:
    """Do and return as `reference.append`; queries and keys are rotated together."""
    turned = rotate(torch.cat([q, k]) if len(q) else k, cos, sin)
    put_rows(at, (keys, k), (rotated, turned[len(q) :]), (values, v))
    return turned[: len(q)]


def merge(first: Tensor, first_total: Tensor, second: Tensor, second_total: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `reference.merge` in PyTorch."""
    return softmax.merge([(first, first_total), (second, second_total)])
