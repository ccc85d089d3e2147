"""Small steps of a layer in plain PyTorch: the reference for the other implementations.

Sizes: D width of a vector, T tokens, H and HQ heads, R rotated width, N rows of a buffer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.rotation import rotate

GATES = ("silu", "gelu_tanh")


def rms_norm(x: Tensor, weight: Tensor, eps: float, shift: float, early: bool) -> Tensor:
    """Return x over its root mean square, times `shift` + weight, in the dtype of x.

    Args:
        x: [..., D].
        weight: [D].
        eps: added to the mean of the squares.
        shift: 0, or 1 where weights are stored less 1, as Gemma's are.
        early: round to the dtype of x before the weight is applied, as Llama does.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    normed = x.to(wide) * torch.rsqrt(x.to(wide).square().mean(dim=-1, keepdim=True) + eps)
    normed = normed.to(x.dtype).to(wide) if early else normed
    return (normed * (shift + weight.to(wide))).to(x.dtype)


def gated(x: Tensor, gate: str) -> Tensor:
    """Return act(first half) * second half of x, [..., D] of [..., 2 D], in the dtype of x.

    gate: one of `GATES`, the activation. It is rounded to the dtype of x before the product.
    """
    first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    active = F.silu(first) if gate == "silu" else F.gelu(first, approximate="tanh")
    return active.to(x.dtype) * second.to(x.dtype)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [H, T, D] rotated by cos and sin [T, R/2] or [R/2] of its dtype (`kernels/rotation.py`)."""
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
    """Write keys as they are, keys rotated, and values into rows of buffers; return the queries rotated.

    Args:
        q: [HQ, T, D]; HQ may be 0.
        k: [H, T, D].
        v: [HV, T, D]; HV may be 0.
        cos: [T, R/2], of the dtype of k.
        sin: likewise.
        at: the first row, or int64 [1] on the device.
        keys: [H, N, D], written to.
        rotated: [H, N, D], written to.
        values: [HV, N, D], written to.
    """
    rows = int(at) + torch.arange(k.shape[1], device=k.device)
    keys[:, rows], rotated[:, rows], values[:, rows] = k, rotate(k, cos, sin), v
    return rotate(q, cos, sin)


def merge(first: Tensor, first_total: Tensor, second: Tensor, second_total: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention to two sets of keys in one softmax, and its log-sum-exp.

    Args:
        first: [HQ, T, D], attention to one set.
        first_total: [HQ, T], its log-sum-exp; -inf where a query sees none of the keys.
        second: like `first`.
        second_total: like `first_total`.
    """
    total = torch.logaddexp(first_total, second_total)
    parts = ((first, first_total), (second, second_total))
    return sum((x * (each - total).exp().nan_to_num()[..., None] for x, each in parts), start=torch.zeros(())).to(
        first.dtype
    ), total
