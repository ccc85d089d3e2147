"""Quantisation of groups of rows in plain PyTorch; the CPU implementation.

Quantisation is symmetric, without zero points. With 8 and 4 bits the largest magnitude of a group maps to the largest
code: x is about code * scale, with an error of at most scale / 2 (for 8-bit floats x / 16, or less near zero). The
2-bit codes are -1.5, -0.5, 0.5 and 1.5: evenly spaced levels with the least mean squared error for a normal
distribution. Their scale is the least-squares fit.
Sizes: R groups of one head, P rows of a group, D head size, W bytes of a quantised row.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.quint4x2: 7.0, torch.float8_e4m3fn: 448.0, torch.quint2x4: 1.5}
KINDS = tuple(LARGEST)
SHARING = {torch.quint4x2: 2, torch.quint2x4: 4}  # codes per byte, first in the lowest bits
LOWEST = {torch.quint4x2: 8.0, torch.quint2x4: 1.5}  # offset of stored codes: 0 stands for -LOWEST
BELL = 0.9957  # step of four levels, in standard deviations of a normal distribution (Max 1960, table II)


def width(kind: torch.dtype, size: int) -> int:
    """Return W, the bytes of a quantised row of `size` channels.

    Raises:
        ValueError: `size` is not a multiple of the codes per byte.
    """
    share = SHARING.get(kind, 1)
    if size % share:
        raise ValueError(f"{share} codes of {8 // share} bits share a byte, and a head size of {size} is no multiple.")
    return size // share


def stored(kind: torch.dtype) -> torch.dtype:
    """Return the dtype that holds codes of this kind: uint8 if a byte holds several, else the kind itself."""
    return torch.uint8 if kind in SHARING else kind


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantise groups of rows.

    Args:
        x: [R, P, D], any float dtype.
        kind: int8, float8_e4m3fn, quint4x2 or quint2x4. In the last two, byte i holds channels i, i + W, ...

    Returns:
        Codes [R, P, W], int8, float8 or uint8, and scales float32 [R].
    """
    x = x.float()
    if kind == torch.quint2x4:
        return _in_two_bits(x)
    scale = x.abs().amax(dim=(1, 2)) / LARGEST[kind]
    scaled = _divided(x, scale)
    if kind == torch.float8_e4m3fn:
        return scaled.clamp(-LARGEST[kind], LARGEST[kind]).to(kind), scale
    numbers = scaled.round().clamp(-LARGEST[kind], LARGEST[kind])
    return (_packed(numbers, kind) if kind in SHARING else numbers.to(torch.int8)), scale


def _in_two_bits(x: Tensor) -> tuple[Tensor, Tensor]:
    step = BELL * x.square().mean(dim=(1, 2)).sqrt()
    numbers = (_divided(x, step) - 0.5).round().clamp(-2, 1) + 0.5
    scale = (x * numbers).sum(dim=(1, 2)) / numbers.square().sum(dim=(1, 2))
    return _packed(numbers, torch.quint2x4), scale


def _divided(x: Tensor, by: Tensor) -> Tensor:
    return x / by.clamp_min(torch.finfo(torch.float32).tiny)[:, None, None]


def _packed(numbers: Tensor, kind: torch.dtype) -> Tensor:
    digits, bits = (numbers + LOWEST[kind]).to(torch.uint8), 8 // SHARING[kind]
    first, *others = torch.split(digits, width(kind, numbers.shape[-1]), dim=-1)
    for number, other in enumerate(others, start=1):
        first = first | (other << (bits * number))
    return first


def _digits(codes: Tensor, kind: torch.dtype) -> list[Tensor]:
    """Return the stored numbers of each position in a byte: [..., W] for channels 0 .. W - 1, then the next W, and so
    on.
    """
    share = SHARING[kind]
    bits = 8 // share
    return [(codes >> (bits * number)) & ((1 << bits) - 1) for number in range(share)]


def unpack(codes: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return codes [..., W] as numbers [..., D] in `dtype`, without the scale."""
    if kind not in SHARING:
        return codes.to(dtype)
    return torch.cat(_digits(codes, kind), dim=-1).to(dtype) - LOWEST[kind]


def products(q: Tensor, codes: Tensor, kind: torch.dtype) -> Tensor:
    """Return dot products [H, R, N] of q [H, R, D] with codes [H, N, W] as numbers, without the scale."""
    if kind not in SHARING:
        return q @ codes.to(q.dtype).transpose(1, 2)
    parts = zip(torch.split(q, codes.shape[2], dim=2), _digits(codes, kind), strict=True)
    first, *others = (part @ digits.to(q.dtype).transpose(1, 2) for part, digits in parts)
    for other in others:
        first += other
    return first.sub_(LOWEST[kind] * q.sum(dim=2, keepdim=True))


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return groups [R, P, D] in `dtype` from codes [R, P, W] and scales float32 [R]."""
    return (unpack(codes, kind, torch.float32) * scale[:, None, None]).to(dtype)
