"""Quantisation of groups of rows, in float32: the reference for the other implementations.

Quantisation is symmetric, without zero points. With 8 and 4 bits the largest magnitude of a group maps to the largest
code: x is about code * scale, with an error of at most scale / 2 (for 8-bit floats x / 16, or less near zero). The
2-bit codes are -1.5, -0.5, 0.5 and 1.5: evenly spaced levels with the least mean squared error for a normal
distribution. Their scale is the least-squares fit.
Sizes: R groups of one head, P rows of a group, D head size, W bytes of a quantised row, S codes of a byte.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.quantise.kinds import BELL, LARGEST, LOWEST, SHARING, stored, width


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantise groups of rows.

    Args:
        x: [R, P, D], any float dtype.
        kind: int8, float8_e4m3fn, quint4x2 or quint2x4. In the last two, byte i holds channels i, i + W, ...

    Returns:
        Codes [R, P, W], int8, float8 or uint8, and scales float32 [R].
    """
    x, tiny, largest = x.float(), torch.finfo(torch.float32).tiny, LARGEST[kind]
    if kind == torch.quint2x4:
        step = BELL * x.square().mean(dim=(1, 2)).sqrt()
        numbers = (x / step.clamp_min(tiny)[:, None, None] - 0.5).round().clamp(-2, 1) + 0.5
        scale = (x * numbers).sum(dim=(1, 2)) / numbers.square().sum(dim=(1, 2))
    else:
        scale = x.abs().amax(dim=(1, 2)) / largest
        numbers = x / scale.clamp_min(tiny)[:, None, None]
        numbers = (numbers if kind.is_floating_point else numbers.round()).clamp(-largest, largest)
    if kind not in SHARING:
        return numbers.to(kind), scale
    digits = (numbers + LOWEST[kind]).view(*x.shape[:2], SHARING[kind], width(kind, x.shape[2]))  # [R, P, S, W]
    return torch.einsum("rpsw,s->rpw", digits, _weights(kind, x.device).float()).to(stored(kind)), scale


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return groups [R, P, D] in `dtype` from codes [R, P, W] and scales float32 [R]."""
    numbers = codes.float()
    if kind in SHARING:
        digits = codes[..., None, :].int() // _weights(kind, codes.device)[:, None] % (256 ** (1 / SHARING[kind]))
        numbers = digits.flatten(2) - LOWEST[kind]
    return torch.einsum("rpd,r->rpd", numbers, scale).to(dtype)


def _weights(kind: torch.dtype, device: torch.device) -> Tensor:
    """Return [S]: the value in a byte of one unit of each of its codes."""
    return 2 ** (torch.arange(SHARING[kind], device=device) * (8 // SHARING[kind]))
