"""Quantising pages in plain PyTorch; also what the engine runs on a CPU.

Codes are symmetric around zero and a page's largest magnitude is the largest code, so that no offset need be kept:
x is about code * scale, off by at most half a scale (for 8-bit floats by a sixteenth of x, or less near zero).
Sizes: R pages of one head, P rows on a page, D head size, W bytes of a row's codes.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.quint4x2: 7.0, torch.float8_e4m3fn: 448.0}
KINDS = tuple(LARGEST)
ZERO = 8  # the code that stands for 0 in four bits


def width(kind: torch.dtype, size: int) -> int:
    """W, the bytes of one row of D = `size` codes.

    Raises:
        ValueError: an odd D, of which two do not share bytes evenly.
    """
    if kind == torch.quint4x2 and size % 2:
        raise ValueError(f"Four-bit codes share bytes in pairs, and a head size of {size} is odd.")
    return size // 2 if kind == torch.quint4x2 else size


def stored(kind: torch.dtype) -> torch.dtype:
    """What codes of a kind lie in: bytes where two of them share one, else their own type."""
    return torch.uint8 if kind == torch.quint4x2 else kind


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Pages in codes.

    Args:
        x: [R, P, D], any float type.
        kind: int8, float8_e4m3fn, or quint4x2: two codes a byte, channel i low and channel i + D/2 high.

    Returns:
        Codes [R, P, W], int8, float8 or uint8 of W = D/2, and scales float32 [R].
    """
    x = x.float()
    scale = x.abs().amax(dim=(1, 2)) / LARGEST[kind]
    scaled = x / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None, None]
    if kind == torch.float8_e4m3fn:
        return scaled.clamp(-LARGEST[kind], LARGEST[kind]).to(kind), scale
    codes = scaled.round().clamp(-LARGEST[kind], LARGEST[kind]).to(torch.int8)
    if kind == torch.int8:
        return codes, scale
    shifted, half = (codes + ZERO).to(torch.uint8), width(kind, x.shape[2])
    return shifted[..., :half] | (shifted[..., half:] << 4), scale


def unpack(codes: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Codes [..., W] as numbers [..., D], not scaled yet."""
    if kind != torch.quint4x2:
        return codes.to(dtype)
    return torch.cat([codes & 15, codes >> 4], dim=-1).to(dtype) - ZERO


def products(q: Tensor, codes: Tensor, kind: torch.dtype) -> Tensor:
    """Dot products [H, R, N] of q [H, R, D] with codes [H, N, W] as numbers, not scaled."""
    if kind != torch.quint4x2:
        return q @ codes.to(q.dtype).transpose(1, 2)
    half = codes.shape[2]
    pairs = (q[..., :half], codes & 15), (q[..., half:], codes >> 4)
    low, high = (part @ digits.to(q.dtype).transpose(1, 2) for part, digits in pairs)
    return low.add_(high).sub_(ZERO * q.sum(dim=2, keepdim=True))


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Pages [R, P, D] in `dtype` from codes [R, P, W] and scales float32 [R]."""
    return (unpack(codes, kind, torch.float32) * scale[:, None, None]).to(dtype)
