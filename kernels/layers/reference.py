"""Norms and gates in plain PyTorch: the reference for the other implementations.

Sizes: D width of a vector.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

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
