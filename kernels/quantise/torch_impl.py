"""Quantisation of groups of rows in PyTorch, for CPUs. Signatures and meaning are those of `reference`."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.quantise.kinds import BELL, LARGEST, LOWEST, SHARING, width


def quantise(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantise groups as `reference.quantise` does."""
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
    """Dequantise groups as `reference.dequantise` does."""
    return (unpack(codes, kind, torch.float32) * scale[:, None, None]).to(dtype)
