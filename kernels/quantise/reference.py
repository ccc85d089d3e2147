"""Quantising pages in plain PyTorch; also what the engine runs on a CPU.

Codes are symmetric around zero, so that no offset need be kept. Of 8 and 4 bits, a page's largest magnitude is the
largest code: x is about code * scale, off by at most half a scale (for 8-bit floats by a sixteenth of x, or less near
zero). The four codes of 2 bits, which are -1.5, -0.5, 0.5 and 1.5, are for numbers spread like a bell: they stand where
these are off least on average, and the scale is the one that fits best.
Sizes: R pages of one head, P rows on a page, D head size, W bytes of a row's codes.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.quint4x2: 7.0, torch.float8_e4m3fn: 448.0, torch.quint2x4: 1.5}
KINDS = tuple(LARGEST)
SHARING = {torch.quint4x2: 2, torch.quint2x4: 4}  # codes that a byte holds, the first of them in its lowest bits
LOWEST = {torch.quint4x2: 8.0, torch.quint2x4: 1.5}  # below zero, the number for which 0 is stored
BELL = 0.9957  # distance of four codes, in deviations of what is normally distributed (Max 1960, table II)


def width(kind: torch.dtype, size: int) -> int:
    """W, the bytes of one row of D = `size` codes.

    Raises:
        ValueError: a D of which they do not share bytes evenly.
    """
    share = SHARING.get(kind, 1)
    if size % share:
        raise ValueError(f"{share} codes of {8 // share} bits share a byte, and a head size of {size} is no multiple.")
    return size // share


def stored(kind: torch.dtype) -> torch.dtype:
    """What codes of a kind lie in: bytes where several of them share one, else their own type."""
    return torch.uint8 if kind in SHARING else kind


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Pages in codes.

    Args:
        x: [R, P, D], any float type.
        kind: int8, float8_e4m3fn, quint4x2 or quint2x4. Of the last two, channels i, i + W, ... share byte i.

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
    """What each code of a byte is stored as: [..., W] of channels 0 .. W - 1, of the W after them, and so on."""
    share = SHARING[kind]
    bits = 8 // share
    return [(codes >> (bits * number)) & ((1 << bits) - 1) for number in range(share)]


def unpack(codes: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Codes [..., W] as numbers [..., D], not scaled yet."""
    if kind not in SHARING:
        return codes.to(dtype)
    return torch.cat(_digits(codes, kind), dim=-1).to(dtype) - LOWEST[kind]


def products(q: Tensor, codes: Tensor, kind: torch.dtype) -> Tensor:
    """Dot products [H, R, N] of q [H, R, D] with codes [H, N, W] as numbers, not scaled."""
    if kind not in SHARING:
        return q @ codes.to(q.dtype).transpose(1, 2)
    parts = zip(torch.split(q, codes.shape[2], dim=2), _digits(codes, kind), strict=True)
    first, *others = (part @ digits.to(q.dtype).transpose(1, 2) for part, digits in parts)
    for other in others:
        first += other
    return first.sub_(LOWEST[kind] * q.sum(dim=2, keepdim=True))


def dequantise(codes: Tensor, scale: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Pages [R, P, D] in `dtype` from codes [R, P, W] and scales float32 [R]."""
    return (unpack(codes, kind, torch.float32) * scale[:, None, None]).to(dtype)
